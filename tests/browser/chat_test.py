# SPDX-License-Identifier: Apache-2.0
# The page of `rapt serve` in a real browser: chat_test.py --rapt PROGRAM. The program's own model (which goes
# on with texts) and a small chat model that the tests train; no request leaves this machine. Exit code 77:
# there is no browser. RAPT_PICTURES=FOLDER: what it looks like, too.
import base64
import json
import pathlib
import re
import sys
import time

import chromium
from page_client import nothing_was_complained_about as complaints_of
from hostile import REPEATED, corpus, nothing_foreign, short
from walk import walk
from page_client import Page, equal, expect, run, serving, slots, stream, test

WEB = serving.SOURCE / "rapt" / "apps" / "web"
LONG = {"ignore_eos": True, "temperature": 0.9, "top_p": 1}


# ------------------------------------------------------------------------------------------------- the words
def check_words():
    """Both languages have the same keys and places; every key is used, and every used one is there."""
    words = {lang: json.loads((WEB / "words" / f"{lang}.json").read_text()) for lang in ("en", "zh")}
    for folder in sorted((WEB / "views").iterdir()):
        for lang, all_words in words.items():
            own = json.loads((folder / f"{lang}.json").read_text())
            equal([k for k in own if not k.startswith(folder.name + "_")], [], f"other keys in {folder.name}")
            all_words.update(own)
    equal(list(words["zh"]), list(words["en"]), "keys of zh.json, in the order of en.json")
    for key in words["en"]:
        places = [set(re.findall(r"\{(\w+)[|}]", words[lang][key])) for lang in words]
        equal(places[1], places[0], f"places in {key}")
        expect(all(words[lang][key].strip() for lang in words), key, "is empty")
    code = "".join(p.read_text() for p in sorted(WEB.rglob("*")) if p.suffix in (".js", ".html"))
    said = set(re.findall(r"['\"`](\w+)['\"`]",
                          code)) | set(re.findall(r"data-(?:text|label|hint|ghost)=\"(\w+)\"", code))
    made = {f"{m}{key[len(m):]}" for m in re.findall(r"`(\w+_)\$\{",
                                                     code) for key in words["en"] if key.startswith(m)}
    made |= {k for k in words["en"] if k.endswith("_label") and k[:-6] in said}
    equal(sorted(set(words["en"]) - said - made), [], "words that nothing says")
    asked = set(re.findall(r"\btr\('(\w+)'",
                           code)) | set(re.findall(r"data-(?:text|label|hint|ghost)=\"(\w+)\"", code))
    asked |= set(re.findall(r"'data-(?:text|label|hint|ghost)': '(\w+)'", code))
    equal(sorted(asked - set(words["en"])), [], "words that are missing")
    for p in WEB.rglob("*.js"):
        text = p.read_text()
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(",
                     "new Function"):
            expect(word not in text, f"{p.name} has {word}")


# ------------------------------------------------------------------------------------------------ its tests
@test
def the_page_is_small(page, server):
    folders = {WEB: "/page/", serving.SOURCE / "rapt" / "report" / "page": "/page/shared/"}
    paths = [where + str(p.relative_to(folder)) for folder, where in folders.items()
             for p in folder.rglob("*.*") if p.suffix != ".html"]
    size = sum(len(server.ask(path).body) for path in ["/", *paths])
    expect(size <= 500_000, f"the page has {size} bytes")


@test
def a_typed_message_streams_in(page, server):
    page.begin()
    page.wait("document.activeElement.id === 'input'")
    page.type("What is a token?")
    page.key("Enter", shift=True)  # a new line
    page.type("Say it shortly.")
    page.run("document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', isComposing: "
             "true, bubbles: true, cancelable: true}))")
    equal(page.run("document.querySelectorAll('.message').length"), 0,
          "Enter inside a composition sends nothing")
    page.key("Enter")
    page.answered(2)
    equal(page.text(".message.user .said"), "What is a token?\nSay it shortly.")
    expect(len(page.text(".message.assistant > .markdown")) > 0, "an answer came")
    about = page.text(".message.assistant .about")
    # The seed is the server's choice: one in some hundred fills the context.
    expect(re.search(r"^\d[\d,]* tokens? · [\d,.]+ tokens/s( · ended because .*)? · seed \d+$", about),
           about)
    expect(re.fullmatch(r"[\d,]+ of 8,192 tokens", page.text(".meter-text")), page.text(".meter-text"))
    equal(page.texts(".conversations .open"), ["What is a token?"])
    expect("c=" in page.run("location.hash"), "the address names the conversation")
    equal(page.run("document.activeElement.id"), "input", "one can go on typing")
    expect(page.run("document.querySelector('#live').textContent.length > 0"),
           "sentences are said to those who listen")


@test
def the_answer_is_the_servers(page, server):
    page.begin()
    page.with_fields({"seed": 5, "max_tokens": 40, **LONG})
    page.ask("Rows and columns")
    page.answered(2)
    direct = server.ask("/v1/chat/completions",
                        {"model": "chat", "messages": [{"role": "user", "content": "Rows and columns"}],
                                                 "seed": 5, "max_tokens": 40, "return_token_ids": True,
                                                 "logprobs": True, **LONG}).json()
    choice = direct["choices"][0]
    page.press(".act-copy ~ .act-tokens")
    page.wait("!!document.querySelector('.token-text span')")
    tokens = page.run("[...document.querySelectorAll('.token-text span')].map((e) => e.textContent)")
    equal(len(tokens), 40, "tokens of the strip")
    page.run("document.querySelectorAll('.token-text span')[7].click()")
    chosen = page.run("import('/page/state.js').then((s) => s.state.chosen)")
    equal(chosen["index"], 7)
    equal(chosen["ids"], direct.get("prompt_token_ids", []) + choice["token_ids"], "ids for a second reading")
    equal(chosen["ids"][chosen["at"]], choice["token_ids"][7])
    equal(chosen["token"]["logprob"], choice["logprobs"]["content"][7]["logprob"], "the server's digits")
    equal(len(chosen["token"]["top"]), 5)
    page.run("document.querySelectorAll('.token-text span')[7].focus()")
    page.key("ArrowRight")
    page.key("ArrowRight")
    page.key("ArrowLeft")
    equal(page.run("[document.activeElement.dataset.t, document.querySelectorAll('.token-text .on').length]"),
          ["8", 1])
    expect("probability" in page.run("document.activeElement.getAttribute('aria-label')"),
           "a token says its figures")
    equal(page.run("document.querySelectorAll('.token-card li').length"), 5, "bars of the alternatives")
    colour = "getComputedStyle(document.querySelectorAll('.token-text span')[7]).backgroundColor"
    surprise = page.run(colour)
    page.run("(() => { const s = document.querySelector('.token-head select'); s.value = 'probability'; "
             "s.dispatchEvent(new Event('change')); })()")
    expect(page.run(colour) != surprise, "another colouring")
    index = round(255 * (1 - 2.718281828459045 ** chosen["token"]["logprob"]))
    wanted = page.run(f"fetch('/page/shared/colours.json').then((r) => r.json()).then((c) => "
                      f"c.light.slice({6 * index}, {6 * index + 6}))")
    rgb = [int(x) for x in re.findall(r"\d+", page.run(colour))]
    expect(all(abs(int(wanted[2 * i:2 * i + 2], 16) - rgb[i]) <= 3 for i in range(3)), "colour", rgb, wanted)
    page.run("document.querySelector('.twin').open = true")
    page.wait("document.querySelectorAll('.twin tbody tr').length === 40")
    page.picture_in("chat-tokens")


@test
def stop_frees_the_request(page, server):
    page.begin()
    page.with_fields({"max_tokens": 7000, "min_tokens": 7000, **LONG})
    page.network(bytes_per_second=40_000)
    page.ask("A long one")
    page.wait("document.querySelectorAll('.message.assistant > .markdown *').length > 0")
    expect(len(slots(server)) == 1, "it is being written")
    equal(page.run("[document.querySelector('#send').hidden, document.querySelector('#stop').hidden]"),
          [True, False])
    page.network()
    page.run("""(() => { const asked = window.fetch; window.fetch = async (path, o = {}) => {
        const reply = await asked(path, o);
        if (o.method === 'DELETE') window.freed = reply.status;
        return reply; }; })()""")
    page.press("#stop")
    page.wait("!!window.freed")
    written = server.metric("rapt_generation_tokens_total")
    until = time.monotonic() + page.browser.timeout
    while slots(server):
        expect(time.monotonic() < until, "still there:", slots(server))
    after = server.metric("rapt_generation_tokens_total") - written
    expect(after <= 1, after, "tokens were written after the server had been told to stop")
    page.answered(2)
    expect("stopped" in page.text(".message.assistant .about"), page.text(".message.assistant .about"))
    expect(page.run("document.querySelector('#stop').hidden"), "Send is back")


@test
def edit_branch_regenerate(page, server):
    page.begin()
    page.with_fields({"max_tokens": 12, **LONG})
    page.ask("First")
    page.answered(2)
    one = page.text(".message.assistant > .markdown")
    page.press(".message.assistant .act-again")
    page.wait("!!document.querySelector('.message.assistant .switch') && "
              "document.querySelector('.message.assistant .switch').textContent.includes('2/2')")
    page.answered(2)
    page.press(".message.assistant .switch button")
    page.wait("document.querySelector('.message.assistant .switch').textContent.includes('1/2')")
    equal(page.text(".message.assistant > .markdown"), one, "the first answer is still there")
    page.ask("Second")
    page.answered(4)
    page.press(".message.user .act-edit")
    page.run("document.querySelector('.editor textarea').value = 'First, changed'")
    page.press(".editor .main")
    page.answered(2)
    equal(page.texts(".said"), ["First, changed"])
    equal(page.text(".message.user .switch"), "‹2/2›")
    page.press(".message.user .switch button")
    page.answered(4)
    equal(page.texts(".said"), ["First", "Second"])
    before = page.text(".message:last-child > .markdown")
    page.press(".message:last-child .act-go_on")
    page.wait("document.querySelector('.message:last-child .about').textContent.startsWith('24 tokens')")
    equal(page.run("document.querySelectorAll('.message').length"), 4, "Continue adds to the answer itself")
    expect(len(page.text(".message:last-child > .markdown")) > len(before), "more text")
    page.press(".message:last-child .act-cut")
    page.answered(3)
    page.press(".notice button")
    page.answered(4)
    return page.texts(".said")


@test
def history_stays(page, server):
    said = edit_branch_regenerate(page, server)
    title = page.texts(".conversations .open")
    page.reload()
    page.answered(4)
    equal(page.texts(".said"), said, "after a reload")
    equal(page.texts(".conversations .open"), title)
    page.press("#new")
    page.answered(0)
    page.with_fields({"max_tokens": 5, "min_tokens": 5, **LONG})
    page.ask("Quite another matter")
    page.answered(2)
    equal(page.texts(".conversations .open"), ["Quite another matter", "First"])
    page.run("document.querySelector('#side input[type=search]').focus()")
    page.type("second")
    page.wait("document.querySelectorAll('.conversations .open').length === 1")
    equal(page.texts(".conversations .open"), ["First"], "found by what a message says")
    page.press(".conversations .open")
    page.answered(4)
    page.run("(() => { const s = document.querySelector('#side input[type=search]'); s.value = ''; "
             "s.dispatchEvent(new Event('input')); })()")
    page.wait("document.querySelectorAll('.conversations .open').length === 2")
    page.run("document.querySelector('.conversations li .rename').click()")
    page.run("document.querySelector('.conversations li input').value = 'A name <b>of mine</b>'")
    page.run("document.querySelector('.conversations li input').focus()")
    page.key("Enter")
    page.wait("document.querySelector('.conversations .open')?.textContent === 'A name <b>of mine</b>'")
    page.press(".conversations .open")
    page.answered(2)
    page.ask("It keeps its name")
    page.answered(4)
    equal(page.texts(".conversations .open")[0], "A name <b>of mine</b>")
    # Out to a file and in again, beside what is there.
    text = page.run("import('/page/history.js').then(async (h) => h.exported((await h.list()).map((c) => "
                    "c.id)))")
    file = json.loads(text)
    equal([file["rapt"], file["version"], len(file["conversations"])], ["history", 1, 2])
    page.run("document.querySelector('.conversations li .delete').click()")
    page.wait("document.querySelectorAll('.conversations .open').length === 1")
    page.press(".notice:last-child button")
    page.wait("document.querySelectorAll('.conversations .open').length === 2")
    equal(page.run(f"import('/page/history.js').then((h) => h.imported({json.dumps(text)}))"), 2)
    equal(page.run("import('/page/history.js').then(async (h) => (await h.list()).length)"), 4)
    hostile = {"rapt": "history", "version": 1, "conversations": [
        None, 5, {"kind": "chat", "id": {"a": 1}, "title": ["<img src=x>"], "roots": ["x", "x", None],
                  "nodes": [{"id": "x", "text": {"a": 1}, "children": ["x"], "tokens": [{"text": 5}, None]},
                            None]}]}
    equal(page.run(f"import('/page/history.js').then((h) => h.imported({json.dumps(json.dumps(hostile))}))"),
          1)
    equal(page.run("import('/page/history.js').then((h) => h.imported('{}')).catch((e) => 'refused')"),
          "refused")
    page.reload()
    equal(len(page.texts(".conversations .open")), 5)


@test
def a_reload_goes_on(page, server):
    if "/stream/{id}" not in server.ask("/openapi.json").text():
        raise serving.Skip("this server keeps no streams")
    page.begin()
    fields = {"max_tokens": 600, "min_tokens": 600, "seed": 11, **LONG}
    page.with_fields(fields)
    page.network(bytes_per_second=60_000)
    page.ask("Go on after a reload")
    page.wait("document.querySelectorAll('.message.assistant > .markdown *').length > 0")
    page.wait("""import('/page/history.js').then(async (h) => { const [c] = await h.list(); return c &&
        [...(await h.load(c.id)).nodes.values()].some((n) => n.role === 'assistant' && n.text); })""")
    expect(page.run("import('/page/state.js').then(({state}) => !!state.writing)"), "still being written")
    page.run("delete document.documentElement.dataset.ready")
    page.call("Page.reload")
    page.network()
    page.wait("document.documentElement?.dataset.ready === 'yes'")
    page.wait("document.querySelector('.message.assistant .about')?.textContent.startsWith('600 tokens')")
    page.answered(2)
    direct = server.ask("/v1/chat/completions",
                        {"model": "chat", "messages": [{"role": "user", "content": "Go on after a reload"}],
                                                 "top_p": 1, **fields}).json()
    kept = page.run("import('/page/history.js').then(async (h) => [...(await h.load((await "
                    "h.list())[0].id)).nodes.values()].find((n) => n.role === 'assistant').text)")
    equal(kept, direct["choices"][0]["message"]["content"], "the whole answer, as if nothing had happened")


@test
def a_connection_that_breaks_goes_on(page, server):
    page.begin()
    fields = {"max_tokens": 80, "min_tokens": 80, "seed": 12, **LONG}
    page.with_fields(fields)
    page.run("""(() => { const asked = window.fetch; window.broken = 0;
      window.fetch = async (path, more) => {
        const reply = await asked(path, more);
        if (!/completions$|stream\\//.test(path) || more?.method === 'DELETE' || broken >= 2) return reply;
        ++broken;  // the answer's connection, and the first one that reads on
        const reader = reply.body.getReader(); let pieces = 0;
        return new Response(new ReadableStream({async pull(out) {
            const {done, value} = await reader.read();
            if (done) return out.close();
            if (++pieces > 4) { reader.cancel(); return out.error(new TypeError('network')); }
            out.enqueue(value); }}), {status: reply.status, headers: reply.headers}); }; })()""")
    page.network(bytes_per_second=60_000)
    page.ask("Go on behind a break")
    page.wait("document.querySelector('.message.assistant .about')?.textContent.startsWith('80 tokens')")
    page.answered(2)
    page.network()
    equal(page.run("window.broken"), 2, "connections that broke")
    equal(page.texts(".message .error:not([hidden])"), [], "errors")
    direct = server.ask("/v1/chat/completions",
                        {"model": "chat", "messages": [{"role": "user", "content": "Go on behind a break"}],
                         "top_p": 1, **fields}).json()
    equal(page.run("import('/page/history.js').then(async (h) => [...(await h.load((await "
                   "h.list())[0].id)).nodes.values()].find((n) => n.role === 'assistant').text)"),
          direct["choices"][0]["message"]["content"], "the whole answer, as if nothing had happened")


@test
def a_reply_that_is_cut_keeps_what_came(page, server):
    """Without a stream to read on from: between two events, inside one, and behind words that are no JSON."""
    page.begin()
    whole = stream("Half", " of", " it")
    for i, body in enumerate((whole[:whole.rindex("data: {")], whole[:whole.index('"content": " it"') + 9],
                              whole[:whole.rindex("data: {")] + "data: {broken}\n\n")):
        page.with_reply(200, body)
        page.ask(f"Cut {i}")
        page.answered(2 * i + 2)
        last = ".message:last-child"
        equal([page.text(f"{last} > .markdown"), page.text(f"{last} .error [role=alert]")],
              ["Half of" + ("" if i == 1 else " it"),
               "The connection broke off before the answer was complete."])
        page.own_replies()
    page.with_reply(200, stream(" and the rest."))
    page.press(".message:last-child .error button")
    page.wait("document.querySelector('.message:last-child > .markdown').textContent.endsWith('the rest.')")
    page.answered(6)
    equal(page.text(".message:last-child > .markdown"), "Half of it and the rest.")
    equal(page.run("asked[0].continue_final_message"), True)
    page.own_replies()


@test
def an_answer_between_two_drawings_is_seen(page, server):
    page.begin()
    page.with_reply(200, stream("All", " at", " once"))
    page.run("""import('/page/state.js').then(({set, state}) => {
        const own = IDBObjectStore.prototype.put;  // drawn while the question is kept, as by a late /props
        IDBObjectStore.prototype.put = function (x) {
          set({props: {...state.props}});
          return own.call(this, x); };
        const frame = window.requestAnimationFrame, later = [];
        window.requestAnimationFrame = (f) => later.push(f);
        window.drawAgain = () => {
          IDBObjectStore.prototype.put = own;
          window.requestAnimationFrame = frame;
          later.forEach(frame); }; })""")
    page.ask("Quick?")
    page.wait("import('/page/history.js').then(async (h) => { const [c] = await h.list(); return c &&"
              " [...(await h.load(c.id)).nodes.values()].some((n) => n.finish === 'stop'); })")
    page.run("drawAgain()")
    page.answered(2)
    equal(page.text(".message.assistant > .markdown"), "All at once")
    page.own_replies()


@test
def two_clicks_ask_once(page, server):
    page.begin()
    page.with_reply(200, stream("One", " answer"))
    page.ask("Twice?")
    page.answered(2)
    page.run("for (let i = 0; i < 3; ++i) document.querySelector('.act-again').click()")
    page.wait("document.querySelector('.message.assistant .switch').textContent.includes('2/2')")
    page.answered(2)
    equal(page.run("asked.length"), 2, "answers that were asked for")
    page.run("(() => { document.querySelector('#input').value = 'And twice more?';"
             " for (let i = 0; i < 3; ++i) document.querySelector('#send').click(); })()")
    page.answered(4)
    equal([page.run("asked.length"), page.texts(".said")], [3, ["Twice?", "And twice more?"]])
    page.own_replies()


@test
def a_composition_keeps_its_keys(page, server):
    """Enter and Escape inside the composition of a character are the input method's."""
    def composing(selector, key):
        page.run(f"document.querySelector({json.dumps(selector)}).focus()")
        page.call("Input.imeSetComposition", {"text": "ni", "selectionStart": 2, "selectionEnd": 2})
        page.run(f"document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}',"
                 " isComposing: true, keyCode: 229, bubbles: true, cancelable: true}))")

    page.begin()
    page.with_fields({"max_tokens": 4000, "min_tokens": 4000, **LONG})
    page.network(bytes_per_second=20_000)
    page.ask("A long one")
    page.wait("document.querySelectorAll('.message.assistant > .markdown *').length > 0")
    composing("#input", "Escape")
    expect(page.run("!document.querySelector('#stop').hidden"), "the answer goes on")
    page.type("你好")
    page.key("Escape")
    page.network()
    page.answered(2)
    equal(page.run("document.querySelector('#input').value"), "你好", "what was composed is kept")
    page.press(".message.user .act-edit")
    composing(".editor textarea", "Escape")
    composing(".editor textarea", "Enter")
    equal(page.run("document.querySelectorAll('.editor').length"), 1, "the change goes on")
    page.type("你")
    page.key("Escape")
    equal(page.run("document.querySelectorAll('.editor').length"), 0)
    page.run("document.querySelector('.conversations li .rename').click()")
    composing(".conversations li input", "Escape")
    composing(".conversations li input", "Enter")
    equal(page.run("document.querySelectorAll('.conversations li input').length"), 1, "so does the new name")


@test
def a_browser_that_keeps_nothing(page, server):
    """Full or forbidden storage: what is chosen holds for this visit, and nothing is complained about."""
    page.begin()
    page.run("Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError'); }")
    page.press("#theme")
    equal(page.run("document.documentElement.dataset.theme"), "light")
    page.press("#lang")
    page.wait("document.documentElement.lang === 'zh-Hans'")
    page.press("#lang")
    page.wait("document.documentElement.lang === 'en'")
    page.press("#settings")
    page.run("document.querySelector('dialog .fields input').select()")
    page.type("0.25")
    page.key("Escape")
    page.with_reply(200, stream("Yes."))
    page.ask("Kept?")
    page.answered(2)
    equal(page.run("asked[0].temperature"), 0.25)
    page.own_replies()


@test
def two_tabs_lose_nothing_of_each_other(page, server):
    page.begin()
    texts = page.run("""Promise.all(['history', 'tree'].map((m) => import(`/page/${m}.js`))).then(
      async ([h, t]) => {
        const c = t.newConversation('chat', {title: 'two tabs'}), first = t.add(c, null, 'user', 'first');
        await h.save(c, [first]);
        const other = await h.load(c.id);  // another tab's
        await h.save(other, [t.add(other, first.id, 'assistant', 'there'), other.nodes.get(first.id)]);
        await h.save(c, [t.add(c, first.id, 'assistant', 'here'), c.nodes.get(first.id)]);
        const last = await h.load(c.id);
        return last.nodes.get(first.id).children.map((id) => last.nodes.get(id).text).sort(); })""")
    equal(texts, ["here", "there"], "both tabs' answers, as branches")


@test
def a_full_disk_is_told(page, server):
    page.begin()
    said = page.run("""Promise.all(['history', 'tree'].map((m) => import(`/page/${m}.js`))).then(
      async ([h, t]) => {
        const put = IDBObjectStore.prototype.put;
        IDBObjectStore.prototype.put = () => { throw new DOMException('full', 'QuotaExceededError'); };
        const c = t.newConversation('chat', {title: 'x'});
        await h.save(c, []); await h.save(c, []);
        IDBObjectStore.prototype.put = put;
        await h.save(c, []);
        return [...document.querySelectorAll('.notice')].map((e) => e.textContent); })""")
    equal(len(said), 1, "told once")
    expect("room" in said[0], said[0])
    expect(page.run("import('/page/history.js').then((h) => h.persistent)"), "and it keeps again")


# -------------------------------------------------------------------------------------------- hostile texts
ALLOWED = ("P H3 H4 H5 H6 UL OL LI BLOCKQUOTE PRE CODE DIV SPAN BUTTON TABLE THEAD TBODY TR TH TD A EM "
           "STRONG DEL BR HR")

@test
def hostile_markdown_stays_text(page, server):
    page.begin()
    texts = corpus()
    expect(len(texts) >= 500, len(texts))
    found = page.run(f"""import('/page/markdown.js').then(({{MarkdownView}}) => {{
      const texts = {json.dumps(texts)};
      const allowed = new Set({json.dumps(ALLOWED.split())}), wrong = [];
      const attributes = new Set(['class', 'dir', 'href', 'target', 'rel', 'title', 'type', 'start',
                                  'scope', 'data-sign', 'aria-hidden', 'style']);
      let seed = 1;
      const random = (n) => (seed = seed * 16807 % 2147483647) % n;
      const words = {{copy: 'c', code: 'code', image: 'image', rest: 'rest', onCopy: () => {{}}}};
      const host = () => {{ const e = document.createElement('div'); document.body.append(e); return e; }};
      for (const text of texts) {{
        const whole = host();
        new MarkdownView(whole, words).set(text, true);
        for (const e of whole.querySelectorAll('*')) {{
          if (!allowed.has(e.tagName)) wrong.push(['element', e.tagName, text]);
          for (const a of e.attributes) if (!attributes.has(a.name)) wrong.push(['attribute', a.name, text]);
          if (e.tagName === 'A' && (!/^(https?|mailto):/.test(e.getAttribute('href')) ||
                                    e.rel !== 'noopener noreferrer')) wrong.push(['link', e.href, text]);
        }}
        if (text.length < 2000) {{  // written piece by piece it must come to the same
          const grown = host(), view = new MarkdownView(grown, words);
          for (let at = 0; at < text.length;) view.set(text.slice(0, at += 1 + random(9)));
          view.set(text, true);
          const half = host(), more = new MarkdownView(half, words), at = random(text.length + 1);
          more.set(text.slice(0, at), true);  // it was over, and is gone on with
          more.set(text.slice(0, at));
          more.set(text, true);
          if (half.innerHTML !== whole.innerHTML) wrong.push(['gone on with', at, text]);
          half.remove();
          if (grown.innerHTML !== whole.innerHTML)
            wrong.push(['grown', text, grown.innerHTML, whole.innerHTML]);
          grown.remove();
        }}
        whole.remove();
      }}
      return [wrong.slice(0, 5), wrong.length];
    }})""")
    equal(found, [[], 0], "hostile Markdown")
    # The same through the chat and its tokens.
    page.with_reply(200, stream(*[t for t in texts if len(t) < 200][:520]))
    page.ask("<img src=x onerror=alert(1)>")
    page.answered(2)
    page.press(".message.assistant .act-tokens")
    page.wait("document.querySelectorAll('.token-text span').length >= 520")
    equal(page.run("document.querySelectorAll('#views :is(img, script, iframe, object, embed, form, style, "
                   "link, base, svg, b, i)').length"), 0)
    page.own_replies()


@test
def long_hostile_markdown_takes_linear_work(page, server):
    """Blocks of code that run for a letter, counted by the browser: 43 at most when this was written. (It may
    lose some of its counts, never add any.)"""
    page.call("Profiler.enable")  # before the code is compiled: it gets its counters then
    page.call("Profiler.startPreciseCoverage", {"callCount": True, "detailed": True})
    page.begin()

    def work(text):
        page.call("Profiler.takePreciseCoverage")  # begins at 0 again
        page.run(f"""import('/page/markdown.js').then(({{MarkdownView}}) => {{
            new MarkdownView(document.createElement('div'), {{copy: 'c', code: 'code', image: 'image', rest:
              'rest', onCopy: () => {{}}}}).set({json.dumps(text)}, true); }})""")
        return sum(block["count"] for script in page.call("Profiler.takePreciseCoverage")["result"]
                   if "/page/" in script["url"] for f in script["functions"] for block in f["ranges"])

    for sign in REPEATED:
        blocks, letters = work(sign * 16000), 16000 * len(sign)
        expect(0 < blocks < 100 * letters, f"{sign!r} 16,000 times: {blocks} blocks for {letters} letters")
    page.call("Profiler.stopPreciseCoverage")
    page.call("Profiler.disable")


@test
def hostile_texts_wherever_they_are_shown(page, server):
    """Tokens with their cards and table, titles, names of models, errors: 500 texts and more each."""
    page.begin()
    page.run("window.alert = () => { window.alerted = true; }")
    texts = short()
    expect(len(texts) >= 500, len(texts))
    page.run(f"window.texts = {json.dumps(texts)}; 0")
    seen = page.run("""Promise.all(['tokens', 'message', 'tree'].map((m) => import(`/page/${m}.js`))).then(
      async ([t, m, tree]) => {
        const host = document.querySelector('.messages');
        const strip = new t.TokenStrip(host, {choose: () => null, same: () => false});
        strip.update(texts.map((text, i) => ({text, id: i, logprob: -1, top: texts.slice(i, i + 5).map(
          (x, k) => [x, -1 - k])})));
        for (let i = 0; i < texts.length; ++i) strip.tell(i);
        document.querySelector('.twin').open = true;
        await new Promise((done) => setTimeout(done, 0));
        const c = tree.newConversation('chat', {title: 'x'}), views = [];
        for (const text of texts) {
          const error = {kind: 'refused', status: 400, code: text, message: text, numbers: []};
          const node = tree.add(c, null, 'assistant', '', {model: text, tokens: [], error, detail: text});
          const view = new m.MessageView(c, node, {place: () => [0, 1]});
          host.append(view.element);
          view.update(null);
          views.push(view.element.querySelector('.role').textContent === text &&
                     view.element.querySelector('.error').textContent.includes(text)); }
        return [strip.row.spans.length, document.querySelectorAll('.twin tbody tr').length,
                views.filter(Boolean).length]; })""")
    equal(seen, [len(texts)] * 3, "tokens, rows of their table, errors as they are")
    nothing_foreign(page, "tokens, errors")
    page.run("""import('/page/state.js').then(({set, state}) => set({
        models: texts.map((id) => ({id, tasks: ['chat']})), model: texts[3], props: {...state.props}}))""")
    page.wait("document.querySelectorAll('#model option').length === texts.length")
    nothing_foreign(page, "names of models")
    file = {"rapt": "history", "version": 1, "conversations": [
        {"kind": "chat", "id": f"c{i}", "title": text, "updated": i, "roots": [f"n{i}"], "nodes": [
            {"id": f"n{i}", "role": "user", "text": text, "children": []}]} for i, text in enumerate(texts)]}
    equal(page.run(f"import('/page/history.js').then((h) => h.imported({json.dumps(json.dumps(file))}))"),
          len(texts))
    page.reload()
    page.wait("document.querySelectorAll('.conversations .open').length === texts.length".replace(
        "texts.length", str(len(texts))))
    equal(page.run("[...document.querySelectorAll('.conversations .open')].map((e) => e.textContent)"),
          [text if text else "Without a title" for text in reversed(texts)], "titles as they are")
    nothing_foreign(page, "titles")
    page.run("document.querySelectorAll('.conversations .delete')[7].click()")
    page.wait("!!document.querySelector('.notice')")
    nothing_foreign(page, "a title in a notice")


@test
def markdown_as_people_expect_it(page, server):
    page.begin()
    cases = [("# A *b*", "<h3>A <em>b</em></h3>"),
             ("a **b** `c`", "<p>a <strong>b</strong> <code>c</code></p>"),
             ("- a\n- b\n  - c", "<ul><li>a</li><li>b<ul><li>c</li></ul></li></ul>"),
             ("3. a\n4. b", "<ol start=\"3\"><li>a</li><li>b</li></ol>"),
             ("> a\n> b", "<blockquote><p>a<br>b</p></blockquote>"),
             ("a\n\n---\n\nb", "<p>a</p><hr><p>b</p>"), ("***a***", "<p><em><strong>a</strong></em></p>"),
             ("2 * 3 * 4 snake_case_name", "<p>2 * 3 * 4 snake_case_name</p>"),
             ("**中文。**后面", "<p><strong>中文。</strong>后面</p>"), ("~~a~~", "<p><del>a</del></p>"),
             ("$x_1$ costs $5 and $6", "<p><code class=\"tex\">x_1</code> costs $5 and $6</p>"),
             ("- [x] a\n- [ ] b",
              "<ul><li class=\"task\"><span>☑ </span>a</li><li class=\"task\"><span>☐ </span>b</li></ul>"),
             ("|a|b|\n|:-|-:|\n|1|2|",
              "<div class=\"scroll\"><table><thead><tr><th class=\"to-start\" scope=\"col\">a</th><th "
              "class=\"to-end\" scope=\"col\">b</th></tr></thead><tbody><tr><td "
              "class=\"to-start\">1</td><td class=\"to-end\">2</td></tr></tbody></table></div>"),
             ("[a](http://b.example/c)",
              "<p><a>a</a><span class=\"target\"> (http://b.example/c)</span></p>"),
              ("https://b.example.", "<p><a>https://b.example</a>.</p>"),
             ("![a](https://b.example/x.png)",
              "<p><a>image: a</a><span class=\"target\"> (b.example/x.png)</span></p>"),
             ("```py\nif 1: # x\n```\nb",
              "<div class=\"code\"><div class=\"code-head\"><span>py</span><button "
              "class=\"small\">c</button></div><pre><code><span class=\"k-keyword\">if</span> <span "
              "class=\"k-number\">1</span>: <span class=\"k-comment\"># "
              "x</span>\n<span></span></code></pre></div><p>b</p>"),
             ("1. a\n\n   ```\n   x\n   ```\n2. b", None), ("a  \nb\\\nc", "<p>a<br>b<br>c</p>")]
    got = page.run(f"""import('/page/markdown.js').then(({{MarkdownView}}) => {{
      return {json.dumps([c[0] for c in cases])}.map((text) => {{
      const e = document.createElement('div');
      new MarkdownView(e, {{copy: 'c', code: 'code', image: 'image', rest: 'rest',
                           onCopy: () => {{}}}}).set(text, true);
      for (const x of e.querySelectorAll('*'))
        for (const a of [...x.attributes])
          if (!['class', 'start', 'scope'].includes(a.name)) x.removeAttribute(a.name);
      return e.innerHTML; }}); }})""")
    for (text, wanted), html in zip(cases, got):
        if wanted is not None:
            equal(html, wanted, repr(text))
    expect(got[-2].count("<ol>") == 1 and got[-2].count("<li>") == 2, got[-2])
    # What is complete is never touched again, and a long answer stays inside a frame.
    kept, worst = page.run("""import('/page/markdown.js').then(({MarkdownView}) => {
      const e = document.createElement('div');
      document.body.append(e);
      const view = new MarkdownView(e, {copy: 'c', code: 'c', image: 'i', rest: 'r', onCopy: () => {}});
      let text = '', worst = 0, first = null, kept = true;
      const seen = new MutationObserver(() => {});
      seen.observe(e, {childList: true, subtree: true, characterData: true});
      for (let i = 0; i < 2000; ++i) {
        text += i % 40 === 39 ? '\\n\\n' : i % 90 === 50 ? '\\n- item ' : `word${i} **b** `;
        view.set(text);
        worst = Math.max(worst, seen.takeRecords().length);
        if (i === 200) first = e.firstChild;
        if (first && e.firstChild !== first) kept = false;
      }
      e.remove();
      return [kept, worst];
    })""")
    expect(kept, "the first block was made anew")
    expect(0 < worst < 50, f"{worst} changes for one piece: the open block has 40 words at most")


# --------------------------------------------------------------------------------------------------- errors
@test
def errors_in_plain_words(page, server):
    def error(status, code, message, headers=None, once=False):
        page.with_reply(status,
                        json.dumps({"error": {"message": message, "type": "x", "param": None, "code": code}}),
                        headers, once)

    page.begin()
    page.with_fields({"max_tokens": 5, "min_tokens": 5, **LONG})
    error(429, "queue_full", "busy", {"Retry-After": "2"}, once=True)
    page.ask("Busy?")
    page.wait("document.querySelector('.message.assistant .error .left')?.textContent.includes('Next try "
              "in')")
    expect("busy" in page.text(".message.assistant .error"), page.text(".message.assistant .error"))
    page.wait("document.querySelector('.message.assistant .about').textContent.startsWith('5 tokens')")
    page.answered(2)
    expect(page.run("document.querySelector('.message.assistant .error').hidden"), "tried again by itself")
    error(400, "context_length_exceeded",
          "The prompt of 9,000 tokens leaves no room for an answer: the context holds 8,192. Shorten the "
          "prompt.")
    page.ask("Too long?")
    page.wait("document.querySelector('.message:last-child .error')?.textContent.includes('9,000')")
    expect("8,192" in page.text(".message:last-child .error"), page.text(".message:last-child .error"))
    page.own_replies()
    page.run("window.ownFetch = window.ownFetch || window.fetch; window.fetch = () => Promise.reject(new "
             "TypeError('Failed to fetch'))")
    page.press(".message:last-child .error button")
    page.wait("!document.querySelector('#offline').hidden")
    page.wait("document.querySelector('.message:last-child .error').textContent.includes('rapt serve')")
    page.own_replies()
    page.with_fields({"max_tokens": 5, "min_tokens": 5, **LONG})
    page.press(".message:last-child .error button")
    page.wait("document.querySelector('.message:last-child .error').hidden"
              " && document.querySelector('.message:last-child .about').textContent.startsWith('5 tokens')")
    page.answered(4)
    expect(page.run("document.querySelector('#offline').hidden"), "it is there again")
    page.with_reply(200, stream("<think>first this", " then that</think>\n\nSo: **yes**."))
    page.ask("Think")
    page.answered(6)
    equal([page.text(".message:last-child .thought summary"), page.text(".message:last-child > .markdown")],
          ["What the model thought first", "So: yes."])
    page.ask("And now")
    page.answered(8)
    equal(page.run("asked[1].messages.map((m) => m.content).slice(-2)"), ["So: **yes**.", "And now"],
          "thoughts are not sent again")
    page.own_replies()


@test
def a_key_is_asked_for(page, server):
    path = pathlib.Path(page.folder, "keys")
    path.write_text("a-key-of-the-test\n")
    path.chmod(0o600)
    with serving.Server(page.args, "--key-file", path) as keyed:
        tab = Page(page.browser, f"http://127.0.0.1:{keyed.port}/")
        tab.call("Page.navigate", {"url": tab.address})
        tab.wait("!!document.querySelector('dialog input[type=password]')")
        equal(tab.run("document.activeElement.type"), "password")
        tab.type("a-key-of-the-test")
        tab.key("Tab")
        tab.key("Space")  # keep it for this tab
        tab.key("Tab")
        tab.key("Enter")
        tab.wait("document.documentElement.dataset.ready === 'yes'")
        equal(tab.run("[sessionStorage.getItem('rapt.key'), "
                      "JSON.stringify({...localStorage}).includes('a-key')]"), ["a-key-of-the-test", False])
        tab.reload()
        tab.with_fields({"max_tokens": 4})
        tab.ask("With a key")
        tab.answered(2)
        tab.call("Page.close")


# ---------------------------------------------------------------------------------- languages, widths, keys
@test
def languages_and_widths(page, server):
    page.begin(lang="zh")
    page.with_fields({"max_tokens": 60, "seed": 3, **LONG})
    page.ask("你好，世界")
    page.answered(2)
    equal(page.run("[document.documentElement.lang, document.querySelector('#send').innerText, "
                   "document.querySelector('#lang').innerText]"),
          ["zh-Hans", "发送", "English"])
    left = page.run("""[...document.querySelectorAll('button, label, h2, h3, summary, p')]
      .filter((e) => e.offsetParent && !e.closest('.markdown, .said, .conversations, #lang'))
      .map((e) => e.innerText).filter((t) => /[A-Za-z]{4,}/.test(t) && !/rapt|chat|Rapt/.test(t))""")
    equal(left, [], "words that stayed English")
    for width in (320, 390, 1280):
        page.size(width, 800)
        for name in ("zh", "en"):
            for press in ([], [".message.assistant .act-tokens"], ["#settings"]):
                for selector in press:
                    page.run(f"document.querySelector('{selector}').click()")
                wide = page.run("[document.documentElement.scrollWidth, "
                                "document.querySelector('.chat-scroll').scrollWidth - "
                                "document.querySelector('.chat-scroll').clientWidth, "
                                "document.querySelector('dialog') ? "
                                "document.querySelector('dialog').scrollWidth - "
                                "document.querySelector('dialog').clientWidth : 0]")
                equal(wide, [width, 0, 0], f"nothing sticks out at {width} pixels in {name} {press}")
                if press == ["#settings"]:
                    page.picture_in(f"chat-settings-{name}-{width}")
                    page.key("Escape")
                    page.wait("!document.querySelector('dialog')")
                elif press:
                    page.picture_in(f"chat-tokens-{name}-{width}")
                    page.run(f"document.querySelector('{press[0]}').click()")
            page.run("document.querySelector('#lang').click()")
            other = "中文" if name == "zh" else "English"
            page.wait(f"document.querySelector('#lang').innerText === '{other}'")
    equal(page.run("document.documentElement.lang"), "zh-Hans")
    page.reload()
    equal(page.run("document.documentElement.lang"), "zh-Hans", "the choice is kept")


@test
def light_and_dark(page, server):
    page.begin()
    page.theme("dark")
    page.wait("document.documentElement.dataset.theme === 'dark'")
    dark = page.run("getComputedStyle(document.documentElement).backgroundColor")
    page.press("#theme")
    equal(page.run("[document.documentElement.dataset.theme, document.querySelector('#theme').innerText]"),
          ["light", "Light"])
    expect(page.run("getComputedStyle(document.documentElement).backgroundColor") != dark, "another paper")
    page.theme("light")


@test
def large_letters_and_no_motion(page, server):
    """A window of 1,280 × 800 at 200 %: everything is still there. Who wants no motion gets none."""
    page.begin()
    page.call("Emulation.setEmulatedMedia",
              {"features": [{"name": "prefers-reduced-motion", "value": "reduce"}]})
    page.with_fields({"max_tokens": 4000, "min_tokens": 4000, **LONG})
    page.network(bytes_per_second=20_000)
    page.ask("A long one")
    page.wait("document.querySelectorAll('.message.assistant > .markdown *').length > 0")
    equal(page.run("document.getAnimations().length"), 0, "motion")
    page.network()
    page.press("#stop")
    page.answered(2)
    page.size(640, 400)
    for tab in page.run("[...document.querySelectorAll('#tabs button')].filter((e) => !e.hidden).map((e) => "
                        "e.id.slice(4))"):
        page.press(f"#tab-{tab}")
        page.wait("!document.querySelector('[aria-busy=true]')")
        equal(page.run("[document.documentElement.scrollWidth, document.documentElement.scrollHeight]"),
              [640, 400], f"{tab} sticks out")
        expect(page.run(f"document.querySelector('#view-{tab}').clientHeight") > 200, tab, "has no room")
    page.press("#tab-chat")
    page.press("#settings")
    page.wait("!!document.querySelector('dialog[open]')")
    expect(page.run("(() => { const r = document.querySelector('dialog').getBoundingClientRect(); "
                    "return r.top >= 0 && r.bottom <= innerHeight; })()"), "the dialog fits")
    page.key("Escape")
    page.theme("light")  # and motion as it was


@test
def by_keyboard_alone(page, server):
    page.begin()
    page.with_fields({"max_tokens": 8, **LONG})
    page.run("document.querySelector('.skip').focus()")
    seen = []
    for _ in range(14):
        page.key("Tab")
        seen.append(page.run("document.activeElement.id || document.activeElement.className || "
                             "document.activeElement.tagName"))
        outline = page.run("(() => { const s = getComputedStyle(document.activeElement), p = "
                           "getComputedStyle(document.activeElement.parentElement); return s.outlineStyle "
                           "=== 'solid' || p.outlineStyle === 'solid'; })()")
        expect(outline, "focus is not seen on", seen[-1])
        if seen[-1] == "input":
            break
    for wanted in ("model", "tab-chat", "lang", "theme", "new", "input"):
        expect(wanted in seen, wanted, "is not reached:", seen)
    page.type("By keys")
    page.key("Enter")
    page.answered(2)
    page.key("Tab", shift=True)
    reached = []
    for _ in range(8):
        reached.append(page.run("document.activeElement.className"))
        if "act-again" in reached[-1]:
            break
        page.key("Tab", shift=True)
    expect("act-again" in reached[-1], reached)
    page.key("Enter")
    page.wait("document.querySelector('.message.assistant .switch')?.textContent.includes('2/2')")
    page.answered(2)
    page.run("document.querySelector('#tab-chat').focus()")
    page.key("ArrowRight")
    equal(page.run("[document.activeElement.id, location.hash.includes('view=text'), "
                   "!document.querySelector('#view-text').hidden]"), ["tab-text", True, True])
    unnamed = page.run("""[...document.querySelectorAll('button, input:not([hidden]), select, textarea')]
      .filter((e) =>
      !(e.innerText || e.getAttribute('aria-label') || e.closest('label') || e.title))
      .map((e) => e.id || e.className)""")
    equal(unnamed, [], "controls without a name")


@test
def a_base_model_goes_on_with_a_text(page, server):
    page.begin()
    page.run("(() => { const s = document.querySelector('#model'); s.value = 'default'; s.dispatchEvent(new "
             "Event('change')); })()")
    page.wait("!document.querySelector('#view-text')?.hidden")
    equal(page.run("document.querySelector('#tab-chat').hidden"), True,
          "no chat with a model that was never taught to")
    expect("never taught" in page.text(".lead"), page.text(".lead"))
    page.run("document.querySelector('.paper').focus()")
    page.type("Once upon a time")
    page.with_fields({"seed": 4, "max_tokens": 32, **LONG})
    page.key("Enter", control=True)
    page.wait("document.querySelectorAll('.text-tokens .token-text span').length === 32 && "
              "!document.querySelector('#go').hidden")
    direct = server.ask("/v1/completions",
                        {"model": "default", "prompt": "Once upon a time", "seed": 4, "max_tokens": 32,
                         **LONG}).json()
    equal(page.run("document.querySelector('.paper').value"),
          "Once upon a time" + direct["choices"][0]["text"])
    page.with_fields({"seed": 5, "max_tokens": 32, **LONG})
    page.run("[...document.querySelectorAll('.writer button')].find((b) => b.innerText === 'Another "
             "ending').click()")
    page.wait("document.querySelector('.writer .switch').textContent.includes('2/2') && "
              "!document.querySelector('#go').hidden")
    page.picture_in("text")
    page.run("[...document.querySelectorAll('.writer button')].find((b) => b.innerText === 'Take "
             "back').click()")
    page.wait(f"document.querySelector('.paper').value === "
              f"{json.dumps('Once upon a time' + direct['choices'][0]['text'])}")
    page.wait("import('/page/history.js').then(async (h) => { const [c] = await h.list();"
              " return (await h.load(c.id)).nodes.size === 1; })")
    page.reload()
    equal(page.run("document.querySelector('.paper').value"),
          "Once upon a time" + direct["choices"][0]["text"], "kept")
    for width in (320, 390, 1280):
        page.size(width, 800)
        equal(page.run("document.documentElement.scrollWidth"), width, "width")
    page.size(1280, 800)


@test
def an_example_asks_and_a_token_leads_inside(page, server):
    """One click asks; what was possible is seen whole wherever the token stands; the chosen one leads on."""
    page.begin()
    page.with_fields({"max_tokens": 80, **LONG})
    example = page.text(".examples button")
    page.press(".examples button")
    page.answered(2)
    equal(page.text(".message.user .said").strip(), example)
    page.press(".message.assistant .act-tokens")
    page.wait("document.querySelectorAll('.token-text span').length === 80")
    expect(page.run("document.querySelector('.see-inside').checkVisibility()") is False, "nothing is chosen")
    sides = set()
    for height in (800, 420):  # room below every token, and below none of the last ones
        page.size(1280, height)
        for at in (0, 79):
            page.run(f"document.querySelectorAll('.token-text span')[{at}].scrollIntoView({{block: 'end'}})")
            place = page.run(f"""(() => {{
                const at = document.querySelectorAll('.token-text span')[{at}].getBoundingClientRect();
                return [at.left + at.width / 2, at.top + at.height / 2]; }})()""")
            page.click(*place)
            said = page.run(f"""(() => {{
                const card = document.querySelector('.token-card').getBoundingClientRect(),
                      room = document.querySelector('.chat-scroll').getBoundingClientRect(),
                      at = document.querySelectorAll('.token-text span')[{at}].getBoundingClientRect();
                return [card.height > 0, card.bottom <= room.bottom, card.top >= room.top,
                        card.top >= at.bottom ? 'below' : card.bottom <= at.top ? 'above' : 'over']; }})()""")
            equal(said[:3], [True, True, True], f"the card of token {at}, {height} high")
            expect(said[3] != "over", "the card hides its token")
            sides.add(said[3])
    equal(sides, {"above", "below"})
    page.size(1280, 800)
    page.press(".see-inside")
    page.wait("!document.querySelector('#view-inside').hidden")


@test
def help_says_what_is_where(page, server):
    """Views that are there are one click away; those that are not say what brings them."""
    page.begin()
    page.press("#help")
    meta = server.ask("/v1/models").json()["data"][0]["meta"]
    for said in (page.text(".help .hint"), page.run("document.querySelector('#model-box').title")):
        expect(f"{meta['n_layer']} layer" in said and f"{meta['n_ctx']:,} tokens" in said, said, meta)
    there = page.run("[...document.querySelectorAll('#tabs button')].filter((e) => !e.hidden)"
                     ".map((e) => e.textContent)")
    equal(page.texts(".help dt button"), there)
    equal(page.texts(".help dt.gone"), ["Experiments", "Training", "Recipes"])
    for hint in page.texts(".help em"):
        expect("--lab" in hint, hint)
    page.press(".help dt:nth-of-type(3) button")
    page.wait("!document.querySelector('dialog') && !document.querySelector('#view-inside').hidden")
    for width in (320, 390, 1280):
        page.size(width, 800)
        page.press("#help")
        equal(page.run("[document.documentElement.scrollWidth, (() => { const b = "
                       "document.querySelector('dialog'); return b.scrollWidth <= b.clientWidth; })()]"),
              [width, True], "width")
        page.press("dialog .shut")
        page.wait("!document.querySelector('dialog')")
    page.size(1280, 800)


@test
def a_change_inside_outlives_a_reload(page, server):
    page.begin()
    chips = "[...document.querySelectorAll('#view-chat .chip')].map((e) => e.textContent)"
    page.run("import('/page/state.js').then(({set}) => set({edits: ['L1H0:zero', 'z.0@h1@p2:scale=0.5']}))")
    said = ["layer 1, head 0 off L1H0:zero ✕", "z.0@h1@p2:scale=0.5 ✕"]
    equal(page.run(chips), said)
    page.reload()
    equal(page.run(chips), said, "after a reload")
    page.press("#view-chat .chip")
    page.press("#view-chat .chip")
    page.reload()
    equal(page.run(chips), [], "taken away")
    page.run("import('/page/state.js').then(({set}) => set({edits: ['L1H0:zero']}))")
    page.run("(() => { const s = document.querySelector('#model'); s.value = 'default'; s.dispatchEvent(new "
             "Event('change')); })()")
    page.wait("import('/page/state.js').then(({state}) => state.model === 'default')")
    page.reload()
    equal(page.run("import('/page/state.js').then(({state}) => state.edits)"), [], "another model's")


@test
def the_panels_by_keyboard_and_mouse(page, server):
    def begin(width, lang):
        page.begin(width, lang=lang)
        page.with_reply(200, stream("A **list**:\n\n", "- one\n", "- two\n\n", "```py\nx = 1\n```\n"))
        page.ask("A list?")
        page.answered(2)

    walk(page, "chat", begin)

    def text(width, lang):
        page.begin(width, lang=lang)
        page.run("(() => { const s = document.querySelector('#model'); s.value = 'default'; s.dispatchEvent("
                 "new Event('change')); })()")
        page.wait("document.querySelector('#view-text')?.hidden === false")
        page.with_fields({"seed": 4, "max_tokens": 16, **LONG})
        page.run("document.querySelector('.paper').focus()")
        page.type("To be or not")
        page.key("Enter", control=True)
        page.wait("document.querySelectorAll('.text-tokens .token-text span').length === 16 && "
                  "!document.querySelector('#go').hidden")

    walk(page, "text", text)


@test
def nothing_was_complained_about(page, server):
    complaints_of(page)
    headers = server.ask("/").headers
    for part in ("default-src 'none'", "script-src 'self'", "require-trusted-types-for 'script'",
                 "frame-ancestors 'none'"):
        expect(part in headers["content-security-policy"], part)
    refused = page.run("(() => { try { document.createElement('div').innerHTML = '<b>x</b>'; return "
                       "'allowed'; } catch (e) { return 'refused'; } })()")
    equal(refused, "refused", "the policy demands Trusted Types")


if __name__ == "__main__":
    check_words()
    sys.exit(run("The page of `rapt serve` in a browser."))
