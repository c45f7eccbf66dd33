# SPDX-License-Identifier: Apache-2.0
# What the tests of the page share: a tab with the page of a running `rapt serve`, answers that are made up,
# and run(), which starts the server and the browser for the tests of a file.
import json
import os
import pathlib
import sys

import chromium

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "serve"))
import server as serving  # noqa: E402
from server import equal, expect, test  # noqa: E402,F401


class Page(chromium.Tab):
    def __init__(self, browser, address):
        super().__init__(browser, offline=False)
        self.address = address
        self.call("Page.addScriptToEvaluateOnNewDocument", {"source": """
            window.reports = [];
            document.addEventListener('securitypolicyviolation', (e) =>
              reports.push(e.effectiveDirective + ' ' + e.blockedURI));"""})

    def begin(self, width=1280, hash="", lang="en"):
        """As for someone who comes for the first time."""
        self.size(width, 800)
        self.open(self.address)
        self.run("new Promise((done) => { localStorage.clear(); sessionStorage.clear();"
                 f" localStorage.setItem('rapt.lang', '\"{lang}\"');"
                 " const r = indexedDB.deleteDatabase('rapt'); r.onsuccess = r.onerror = done; })")
        self.open(self.address + hash)

    def reload(self):
        self.run("delete document.documentElement.dataset.ready")  # of the page that goes away
        self.call("Page.reload")
        self.wait("document.documentElement?.dataset.ready === 'yes'")

    def text(self, selector):
        return self.run(f"document.querySelector({json.dumps(selector)})?.textContent ?? null")

    def texts(self, selector):
        return self.run(f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.textContent)")

    def press(self, selector):
        """A click with the mouse in the middle of an element, once it stands still and nothing covers it;
        once more where it moved under the pointer all the same."""
        for _ in range(5):
            fell = self.pressed(selector)
            if fell == "hit":
                return
            # What the stray click opened goes again.
            self.run(f"""for (const open of document.querySelectorAll('dialog[open]'))
                if (!open.contains(document.querySelector({json.dumps(selector)}))) open.close()""")
        expect(False, selector, "moves: the click fell on", fell[:200])

    def pressed(self, selector):
        at = self.run(f"""new Promise((done, fail) => {{
            let before = '', frames = 0;
            const look = () => {{
              const e = document.querySelector({json.dumps(selector)});
              if (!e) return fail(new Error('nothing to press: ' + {json.dumps(selector)}));
              e.scrollIntoView({{block: 'center', inline: 'nearest'}});
              const r = e.getBoundingClientRect(), x = r.left + r.width / 2, y = r.top + r.height / 2;
              const now = [x, y, r.width, r.height].join(' '), top = document.elementFromPoint(x, y);
              const there = top && (e.contains(top) || top.contains(e) && getComputedStyle(e).pointerEvents
                  === 'none' || e.labels && [...e.labels].some((l) => l.contains(top)));
              if (now === before && there) {{
                window.pressed = false;
                addEventListener('click', ({{target}}) => {{
                  window.pressed = e.contains(target) || [...e.labels || []].some((l) => l.contains(target)) ?
                    'hit' : target.outerHTML; }}, {{capture: true, once: true}});
                return done([x, y]);
              }}
              before = now;
              if (++frames > 600)
                return fail(new Error('covered: ' + {json.dumps(selector)} + ' by ' + top?.outerHTML));
              requestAnimationFrame(look);
            }};
            look(); }})""")
        self.click(*at)
        # A new document has no such variable: the click led there.
        self.wait("window.pressed !== false")
        return self.run("window.pressed ?? 'hit'")

    def ask(self, text):
        self.run("document.querySelector('#input').focus()")
        self.type(text)
        self.key("Enter")

    def answered(self, count):
        """So many messages are there, none is being written, and something came of the last answer."""
        self.wait(f"""import('/page/state.js').then(({{state}}) => {{
            const all = [...document.querySelectorAll('.message')], last = all.pop();
            return all.length + !!last === {count} && !state.writing &&
              !document.querySelector('[aria-busy=true]') && (!last?.matches('.assistant') ||
               [...last.querySelectorAll('.markdown, .thought, .about, .error')].some(
                 (e) => !e.hidden && e.textContent)); }})""")

    def with_fields(self, fields):
        """Every answer is asked for with these fields, too."""
        self.run(f"""(() => {{ window.ownFetch ||= window.fetch; window.fetch = (path, o = {{}}) => {{
            if (/\\/completions$/.test(path) && o.body)
              o = {{...o, body: JSON.stringify({{...JSON.parse(o.body), ...{json.dumps(fields)}}})}};
            return ownFetch(path, o); }}; }})()""")

    def with_reply(self, status, body, headers=None, once=False):
        """The next answers are these, or the next one is, whatever the server says; kept in window.asked."""
        self.run(f"""(() => {{ window.ownFetch ||= window.fetch; window.asked = [];
            const before = window.fetch;
            window.fetch = (path, o = {{}}) => {{ if (!/\\/completions$/.test(path)) return ownFetch(path, o);
            if ({json.dumps(once)} && asked.length) return before(path, o);
            asked.push(JSON.parse(o.body));
            return Promise.resolve(new Response({json.dumps(body)},
              {{status: {status}, headers: {json.dumps(headers or {})}}})); }}; }})()""")

    def own_replies(self):
        self.run("window.ownFetch && (window.fetch = window.ownFetch)")

    def picture_in(self, name, whole=False):
        folder = os.environ.get("RAPT_PICTURES")
        if folder:
            self.picture(os.path.join(folder, f"{name}.png"), whole)


def stream(*pieces, **last):
    """The events of an answer that says these pieces."""
    out = ""
    for i, piece in enumerate(pieces):
        logs = {"content": [{"token": piece, "logprob": -0.5 * (i % 7),
                             "bytes": list(piece.encode("utf-8", "replace")),
                             "top_logprobs": [{"token": piece, "logprob": -0.5 * (i % 7), "bytes": None},
                                              {"token": "<b>other</b>", "logprob": -3.0, "bytes": None}]}]}
        out += "data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": piece}, "logprobs": logs,
                                                   "token_ids": [i], "finish_reason": None}]}) + "\n\n"
    done = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
            "rapt": {"seed": 7, "finish": "eos"}, **last}
    return out + "data: " + json.dumps(done) + "\n\ndata: [DONE]\n\n"


def slots(server):
    return server.ask("/slots").json()


# What every file of tests ends with.
def nothing_was_complained_about(page):
    equal(page.run("reports"), [], "reports of the policy")
    equal(page.complaints(), [], "the console")
    asked = [e["request"]["url"] for e in page.seen("Network.requestWillBeSent")]
    hosts = {url.split("/")[2] for url in asked if url.startswith(("http", "ws"))}
    equal(hosts, {page.address.split("/")[2]}, "hosts that were asked")


def run(what, flags=(), models=None):
    """Every @test of the file that asks, each as f(page, server). models(args): what is served; without it
    the tests' chat model and the program's own."""
    path = chromium.program()
    if not path:
        print("skipped: no chromium-headless-shell or chromium is installed")
        return serving.SKIPPED
    args = serving.arguments(what, lambda p: p.add_argument("--default", type=pathlib.Path,
                                                            help="the model without a chat"))
    default = args.default or args.rapt.parent / "default.gguf"
    served = models(args) if models else [f"chat={args.models.chat}", f"default={default}"]
    flags = [*flags, *os.environ.get("RAPT_FLAGS", "").split()]
    with serving.Server(args, *flags, models=served) as server:
        browser = chromium.Browser(path)
        try:
            # RAPT_PAGE: an address that serves the page's files
            page = Page(browser, os.environ.get("RAPT_PAGE", f"http://127.0.0.1:{server.port}/"))
            page.folder, page.args = browser.folder.name, args
            return serving.run_tests(args, page, server)
        finally:
            browser.close()
