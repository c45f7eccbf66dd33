#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Monitor, a view of the page: what it shows is what GET /v1/monitor and /slots say, while answers run and
after them; it begins when it is seen, ends when it is not, and says so when the server is away.

  python3 tests/browser/monitor_test.py --rapt build/rapt [--only numbers]
"""
import contextlib
import json
import socket
import sys
import threading

from page_client import nothing_was_complained_about as complaints_of
from page_client import equal, expect, run, serving, slots, test

LONG = {"max_tokens": 1000000, "stream": True, "logit_bias": {"511": -100, "0": -100},
        "rapt": {"stream": {"keep": 4, "window": 252}}}


def begin(page, width=1280, lang="en"):
    page.begin(width, "#view=monitor", lang)
    page.wait("document.querySelectorAll('.monitor-model').length === 2")


def once(server):
    return server.ask("/v1/monitor?once=1").json()


def next_moments(page, n=1):
    """So many more messages of the server are shown."""
    page.run("window.moments = 0; window.seen = ''")
    page.wait(f"""(() => {{ const now = document.querySelector('.monitor').dataset.moment;
        if (now !== seen) {{ seen = now; ++moments; }} return moments > {n}; }})()""")


def figures(page, model):
    """The values of a model by name, as they are written."""
    return page.run(f"""Object.fromEntries([...document.querySelectorAll(
        '[data-model={model}] [data-figure]')].map((e) => [e.dataset.figure, e.textContent]))""")


def requests(page, model="chat"):
    return page.run(f"""[...document.querySelectorAll('[data-model={model}] .monitor-requests tbody tr')].map(
        (r) => ({{id: Number(r.dataset.id), yours: r.classList.contains('yours'),
                 cells: [...r.children].map((c) => c.textContent)}}))""")


@contextlib.contextmanager
def asking(server, text, source=None, **more):
    """An answer on its way, until the end of the with."""
    body = {"model": "chat", "messages": [{"role": "user", "content": text}], **LONG, **more}
    s = server.connect(source)

    def read():
        with contextlib.suppress(OSError):
            while s.recv(65536):
                pass
    reader = threading.Thread(target=read)
    try:
        s.sendall(serving.message(server.host(), "/v1/chat/completions", body))
        reader.start()
        yield
    finally:
        s.shutdown(socket.SHUT_RDWR)
        reader.join()
        s.close()


def of(n):
    return f"{n:,}"


@test
def numbers_are_those_of_the_server(page, server):
    begin(page)
    equal(page.text(".monitor-state"), "Live: twice a second.")
    # One is written, another one of another address waits for it: --parallel 1.
    with contextlib.ExitStack() as both:
        both.enter_context(asking(server, "First, in one piece"))
        page.wait("document.querySelectorAll('[data-model=chat] .monitor-requests tbody tr').length === 1")
        both.enter_context(asking(server, "The second one waits", "127.0.0.2"))
        page.wait("document.querySelectorAll('[data-model=chat] .monitor-requests tbody tr').length === 2")
        next_moments(page)
        before = once(server)["models"][0]
        next_moments(page, 2)
        shown, rows = figures(page, "chat"), requests(page)
        page.press(".monitor .row button")
        equal(page.run("document.querySelector('.monitor .row button').getAttribute('aria-pressed')"), "true")
        held = page.run("document.querySelector('.monitor').dataset.moment")
        after = once(server)["models"][0]
        equal([r["phase"] for r in after["requests"]], ["writing", "waiting"], "what the server says")
        equal([s["id"] for s in slots(server)], [r["id"] for r in rows], "the requests of /slots")
        for r, x, y in zip(rows, before["requests"], after["requests"]):
            equal((r["id"], r["yours"]), (y["id"], y["yours"]))
            cells = r["cells"]
            equal(cells[0], f"#{y['id']} · yours" if y["yours"] else f"#{y['id']}")
            equal(cells[1], {"writing": "is written", "waiting": "waits"}[y["phase"]])
            equal(cells[2], f"{of(y['read_tokens'])} / {of(y['prompt_tokens'])}")
            equal(cells[3], of(y["reused_tokens"]))
            written = int(cells[4].replace(",", ""))
            expect(x["written_tokens"] <= written <= y["written_tokens"], x, cells, y)
        equal([r["yours"] for r in rows], [True, False], "one's own are marked")
        for name, key in (("running", "running"), ("waiting", "waiting"), ("paused", "paused"),
                          ("suspended", "suspended"), ("rows", "rows"), ("pauses", "pauses"),
                          ("prompt_tokens", "prompt_tokens"), ("cached_tokens", "cached_tokens")):
            equal(before[key], after[key], f"{key} does not change meanwhile")
            equal(shown[name], of(after[key]), name)
        for key in ("generated_tokens", "prefixes"):  # which grow
            n = int(shown[key].replace(",", ""))
            expect(before[key] <= n <= after[key], key, before[key], n, after[key])
        expect(float(shown["written"].replace(",", "")) > 0, shown)
        parts = [float(shown[k].split()[0]) for k in ("compute", "choose", "other")]
        expect(parts[0] > 0 and shown["compute"].endswith(" ms"), shown)
        whole = page.run("Number(/, ([\\d.]+) ms/.exec([...document.querySelectorAll('[data-model=chat] "
                         ".monitor-part .hint')].map((e) => e.textContent).find((t) => "
                         "/last half/.test(t)))[1])")
        expect(abs(sum(parts) - whole) < 0.1 + 0.05 * whole, parts, whole)
        pages = [int(shown[k].split()[0].replace(",", "")) for k in ("private", "shared")]
        expect(before["pages"]["used"] <= sum(pages) <= after["pages"]["used"], pages, after["pages"])
        expect("1 answer is being written" in page.text("[data-model=chat] .monitor-sentence"),
               page.text("[data-model=chat] .monitor-sentence"))
        page.picture_in("monitor-busy", True)
        equal(page.run("document.querySelector('.monitor').dataset.moment"), held, "held still")
        page.press(".monitor .row button")
        next_moments(page)
    # Whoever leaves frees its rows at the next step.
    page.wait("!document.querySelector('[data-model=chat] .monitor-requests tbody tr')")
    equal(slots(server), [])
    expect("Idle" in page.text("[data-model=chat] .monitor-sentence"), "nobody asks")
    next_moments(page, 2)
    for i, model in enumerate(("chat", "default")):
        shown, now = figures(page, model), once(server)["models"][i]
        for key in ("generated_tokens", "prompt_tokens", "cached_tokens", "prefixes", "running", "rows"):
            equal(shown[key], of(now[key]), f"{model}: {key}")
        equal([int(shown[k].split()[0].replace(",", "")) for k in ("private", "shared")],
              [now["pages"]["private"], now["pages"]["shared"]])
        equal((shown["compute"], shown["written"]), ("–", "0.0"), "nothing is computed")
        rate = now["prefix_hit_rate"]
        wanted = "–" if rate is None else f"{100 * rate:.{1 if 0 < rate < 0.1 else 0}f} %"
        equal(shown["prefix_hits"], wanted)


@test
def refusals_are_told_by_reason(page, server):
    already = once(server)["refused"].get("model_not_found", 0)
    for _ in range(3):
        equal(server.ask("/v1/completions", {"model": "nobody", "prompt": "x"}).status, 404)
    server.ask("/v1/completions", {"model": "default", "prompt": "x", "temperature": -1})
    page.wait(f"document.querySelector('.monitor-refused [data-code=model_not_found] td')?.textContent === "
              f"'{already + 3}'")
    said = page.run("Object.fromEntries([...document.querySelectorAll('.monitor-refused tr')].map((r) => "
                    "[r.dataset.code, Number(r.children[1].textContent)]))")
    equal(said, once(server)["refused"])
    equal(page.text(".monitor-refused [data-code=model_not_found] th"), "no model of that name")
    equal(page.text(".monitor [data-figure=refused_all]"), of(sum(said.values())))


@test
def curves_have_a_table(page, server):
    equal(page.run("document.querySelectorAll('[data-model=chat] canvas').length"), 4)
    drawn = page.run("""[...document.querySelectorAll('[data-model=chat] canvas')].map((c) => { const d =
        c.getContext('2d').getImageData(0, 0, c.width, c.height).data; return d.some((x) => x > 0) &&
        c.getAttribute('aria-label').length > 10; })""")
    equal(drawn, [True] * 4)
    page.run("document.querySelector('[data-model=chat] .twin summary').focus()")
    page.key("Enter")
    page.wait("document.querySelectorAll('[data-model=chat] .twin tbody tr').length > 5")
    speeds = page.run("[...document.querySelectorAll('[data-model=chat] .twin tbody tr')].map((r) => "
                      "Number(r.children[1].textContent.replaceAll(',', '')) || 0)")
    expect(max(speeds) > 0 and speeds[0] == 0, "what was written stands in the table:", speeds)


@test
def it_does_not_chatter(page, server):
    page.run("""(() => { window.spoken = 0; const o = new MutationObserver((m) => { spoken += m.length; });
        for (const e of document.querySelectorAll('[aria-live], [role=status], [role=alert]'))
          o.observe(e, {childList: true, characterData: true, subtree: true}); window.listening = o; })()""")
    with asking(server, "Much is going on"):
        page.wait("!!document.querySelector('[data-model=chat] .monitor-requests tbody tr')")
        next_moments(page, 2)
    page.run("listening.disconnect()")
    equal(page.run("spoken"), 0, "said aloud while all numbers change")


@test
def it_comes_and_goes(page, server):
    page.run("""(() => { window.ownFetch = window.fetch; window.signals = []; window.tries = [];
        window.fetch = (path, o = {}) => {
          if (path !== '/v1/monitor') return ownFetch(path, o);
          signals.push(o.signal);
          const next = tries.shift();
          return next ? next() : ownFetch(path, o); }; })()""")
    page.press("#tab-text")
    moment = page.run("document.querySelector('.monitor').dataset.moment")
    page.press("#tab-monitor")
    page.wait(f"document.querySelector('.monitor').dataset.moment !== '{moment}'")
    equal(page.run("signals.map((s) => s.aborted)"), [False], "it asks once it is seen")
    page.press("#tab-text")
    equal(page.run("signals.map((s) => s.aborted)"), [True], "and no longer than that")
    refused = json.dumps({"error": {"code": "queue_full", "message": "busy: you watch this server 4 times "
                                    "already", "type": "rate_limit_error", "param": None}})
    page.run(f"""tries = [() => Promise.reject(new TypeError('away')), () => Promise.resolve(new Response(
        {json.dumps(refused)}, {{status: 429, headers: {{'Retry-After': '1'}}}}))]; 0""")
    page.press("#tab-monitor")
    page.wait("document.querySelector('.monitor-state').textContent.startsWith('The server does not answer')")
    page.wait("document.querySelector('.monitor-state').textContent.includes('four at a time')")
    page.wait("document.querySelector('.monitor-state').textContent === 'Live: twice a second.'")
    equal(page.run("tries.length"), 0)


@test
def both_languages_and_widths(page, server):
    for lang in ("en", "zh"):
        for width in (320, 390, 1280):
            begin(page, width, lang)
            next_moments(page)
            equal(page.run("document.documentElement.scrollWidth"), width, "width")
            equal(page.run("(() => { const v = document.querySelector('#view-monitor'); "
                           "return v.scrollWidth <= v.clientWidth; })()"), True, "of the view")
            missing = page.run("[...document.querySelectorAll('#view-monitor *')].filter((e) => "
                               "/^monitor_/.test(e.textContent) && !e.children.length).map((e) => "
                               "e.textContent)")
            equal(missing, [], "words that are missing")
            page.picture_in(f"monitor-{lang}-{width}", True)
    expect("空闲" in page.text("[data-model=chat] .monitor-sentence"), "in Chinese")


@test
def everything_by_mouse_and_by_keys(page, server):
    held = "document.querySelector('[data-text=monitor_hold]').getAttribute('aria-pressed')"
    twin = "[data-model=chat] .twin"
    for lang in ("en", "zh"):
        for width in (390, 1280):
            begin(page, width, lang)
            with asking(server, "Something to be seen"):  # there are curves
                page.wait(f"!document.querySelector('{twin}').hidden && "
                          "!!document.querySelector('[data-model=chat] .monitor-requests tbody tr')")
            page.press("[data-text=monitor_hold]")
            equal(page.run(held), "true")
            page.press("[data-text=monitor_hold]")
            equal(page.run(held), "false")
            page.press(f"{twin} summary")
            page.wait(f"document.querySelectorAll('{twin} tbody tr').length > 1")
            page.press(f"{twin} summary")
            page.wait(f"!document.querySelector('{twin}').open")
            page.run("document.querySelector('#tab-monitor').focus()")
            reached = []
            for _ in range(20):
                page.key("Tab")
                reached.append(page.run("document.activeElement.dataset.text || "
                                        "document.activeElement.tagName"))
                equal(page.run("getComputedStyle(document.activeElement).outlineStyle"), "solid", reached[-1])
                if reached[-1] == "monitor_hold":
                    page.key("Space")
                    equal(page.run(held), "true")
                    page.key("Enter")
                    equal(page.run(held), "false")
                if page.run(f"document.activeElement.matches('{twin} summary')"):
                    break
            expect("monitor_hold" in reached, reached)
            page.key("Enter")
            page.wait(f"document.querySelectorAll('{twin} tbody tr').length > 1")


@test
def nothing_was_complained_about(page, server):
    complaints_of(page)


if __name__ == "__main__":
    sys.exit(run("Monitor, a view of the page.", flags=("--parallel", "1")))
