# SPDX-License-Identifier: Apache-2.0
# The view "inside" in a real browser: inside_test.py --rapt PROGRAM. What its sentences, pictures and tables
# say is what `rapt inspect` says of the same text. Caches of f32, as the command line has them.
import json
import math
import re
import sys

from page_client import nothing_was_complained_about as complaints_of
from page_client import equal, expect, run, serving, test

TEXT = "The cat sat on the mat, and the dog looked at the cat. The cat sat on the mat again."
READY = ("document.querySelector('#view-inside')?.dataset.state === 'ready' && "
         "!!document.querySelector('[data-finding=zero]')")


def number(x):
    """As numbers.js writes it."""
    size = abs(x)
    if size >= 1e5 or 0 < size < 5e-4:
        return re.sub(r"e([+-])0*(\d)", r"e\1\2", f"{x:.1e}")
    return f"{x:.{0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3}f}"


def same(got, wanted, what):
    """Two numbers as written, but for the last digit."""
    step = 10.0 ** -len(got.partition(".")[2].partition("e")[0])
    expect(abs(float(got) - wanted) <= 0.51 * step + 1e-4 * abs(wanted), what, got, wanted)


def inspect(page, view, *flags, model="default", text=TEXT):
    return serving.rapt_json(page.args, "inspect", view, model, text, *flags)


def numbers(text):
    return re.findall(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", text.replace("−", "-").replace(",", ""))


def begin(page, model="default", width=1280, lang="en"):
    page.begin(width, "#view=inside", lang)
    page.wait("[...document.querySelector('#model').options].some((o) => o.value === "
              f"{json.dumps(model)})")
    page.run(f"""(() => {{ const s = document.querySelector('#model');
        if (s.value !== {json.dumps(model)}) {{
          s.value = {json.dumps(model)}; s.dispatchEvent(new Event('change')); }} }})()""")
    page.wait("document.querySelector('#model').value === " + json.dumps(model))
    page.wait("import('/page/state.js').then(({state}) => state.props && state.model === "
              f"{json.dumps(model)})")
    page.wait(READY)


def finding(page, name):
    return page.text(f"[data-finding={name}] .finding-words")


def steppers(page):
    return page.texts(".inside .now")


def choose(page, selector, value):
    page.run(f"(() => {{ const s = document.querySelector({json.dumps(selector)}); s.value = "
             f"{json.dumps(value)}; s.dispatchEvent(new Event('change')); }})()")


def maps_of(page, model):
    """All maps by `rapt inspect attention`: [layer][head][query][key]."""
    return [[inspect(page, "attention", "--layer", str(l), "--head", str(h), model=model)["data"]["weights"]
             for h in range(6)] for l in range(6)]


# ---------------------------------------------------------------------------------------------- the sentences
@test
def which_token_do_most_heads_look_at(page, server):
    begin(page)
    best = []
    for layer in maps_of(page, "default"):
        for rows in layer:
            sums = [sum(column) for column in zip(*rows)]
            best.append((max(range(len(sums)), key=lambda t: sums[t]), max(sums) / len(rows)))
    most = max(set(t for t, _ in best), key=lambda t: sum(x == t for x, _ in best))
    shares = [s for t, s in best if t == most]
    said = finding(page, "looked")
    tokens = inspect(page, "heads")["text"]["tokens"]
    expect(said.startswith(f"Most heads ({len(shares)} of 36) look at token {most} “{tokens[most]}”"), said)
    same(numbers(said)[-1], sum(shares) / len(shares), "mean share")


@test
def which_head_copies_the_previous_token(page, server):
    begin(page)
    heads = inspect(page, "heads")["data"]["heads"]
    best = max(heads, key=lambda h: h["previous"])
    said = finding(page, "previous")
    expect(said.startswith(f"Layer {best['layer']}, head {best['head']} copies the previous token"), said)
    same(numbers(said)[2], best["previous"], "its weight")
    named = sum(h["label"].startswith("previous token") for h in heads)
    expect(f" {named} heads are labelled so" in said, said, named)
    said, sinks = finding(page, "sinks"), sum(h["sink"] > 0.3 for h in heads)
    expect(said.startswith(f"{sinks} of 36 heads are sinks"), said)


@test
def what_the_strongest_massive_channel_is_worth(page, server):
    begin(page)
    effect = inspect(page, "massive", "--zero")["data"]["interventions"][0]
    spot, said = effect["set"][0], finding(page, "zero")
    expect(f"channel {spot['channel']} at token {spot['token']} " in said and
           f"after layer {effect['layer']})" in said, said)
    before, after = re.search(r"from ([\d.]+) to ([\d.]+)", said).groups()
    same(before, effect["perplexity_before"], "before")
    same(after, effect["perplexity_after"], "after")
    text = finding(page, "text")
    same(numbers(text)[-1], effect["perplexity_before"], "perplexity of the text")
    same(numbers(text)[-2], math.log(effect["perplexity_before"]), "mean loss")
    was = numbers(finding(page, "massive"))
    same(was[2], spot["was"], "the activation")
    page.picture_in("inside", whole=True)


@test
def what_the_gates_do(page, server):
    begin(page)
    expect("no gates" in finding(page, "gate"), finding(page, "gate"))
    begin(page, "default-gated")
    gates = inspect(page, "gates", model="default-gated")["data"]["gates"]
    said = finding(page, "gate")
    same(numbers(said)[0], sum(g["mean"] for g in gates) / len(gates), "mean of the gates")
    closed = [sum(g["closed"] for g in gates if g["layer"] == l) / 6 for l in range(6)]
    shut = max(range(6), key=lambda l: closed[l])
    got = re.search(r"([\d.]+) % of their values are closed \(below 0\.1\), the most in layer (\d) "
                    r"\(([\d.]+) %\), ([\d.]+) % in layer 0", said)
    expect(got, said)
    same(got[1], 100 * sum(g["closed"] for g in gates) / len(gates), "closed")
    equal(int(got[2]), shut)
    same(got[3], 100 * closed[shut], "closed there")
    same(got[4], 100 * closed[0], "closed in layer 0")
    ids = inspect(page, "heads", model="default-gated")["text"]["ids"]
    open_ = server.ask("/v1/look", {"model": "default-gated", "ids": ids, "want": ["tokens"],
                                    "edits": ["attn_gate.*:replace=100"]}).json()["tokens"]["perplexity"]
    page.wait("!!document.querySelector('[data-finding=open]')")
    same(numbers(finding(page, "open"))[2], open_, "gates held open")
    page.picture_in("inside-gated", whole=True)


@test
def the_four_answers_in_chinese_and_on_the_first_screen(page, server):
    """The same numbers as the command line's, found without scrolling: on a phone they begin there."""
    for model in ("default", "default-gated"):
        begin(page, model, 1280, "zh")
        heads = inspect(page, "heads", model=model)
        best = []
        for rows in (rows for layer in maps_of(page, model) for rows in layer):
            sums = [sum(column) for column in zip(*rows)]
            best.append((max(range(len(sums)), key=lambda t: sums[t]), max(sums) / len(rows)))
        most = max(set(t for t, _ in best), key=lambda t: sum(x == t for x, _ in best))
        shares = [s for t, s in best if t == most]
        said = finding(page, "looked")
        token = heads["text"]["tokens"][most]
        expect(said.startswith(f"多数头（36 个中的 {len(shares)} 个）最关注词元 {most} “{token}”"), said)
        same(numbers(said)[-1], sum(shares) / len(shares), "mean share")
        copies, said = max(heads["data"]["heads"], key=lambda h: h["previous"]), finding(page, "previous")
        expect(f"是第 {copies['layer']} 层第 {copies['head']} 头：" in said, said)
        same(numbers(said)[2], copies["previous"], "its weight")
        effect = inspect(page, "massive", "--zero", model=model)["data"]["interventions"][0]
        spot, said = effect["set"][0], finding(page, "zero")
        expect(f"词元 {spot['token']} " in said and f"的通道 {spot['channel']}，" in said and
               f"第 {effect['layer']} 层之后" in said, said)
        before, after = re.search(r"从 ([\d.]+) 变为 ([\d.]+)", said).groups()
        same(before, effect["perplexity_before"], "before")
        same(after, effect["perplexity_after"], "after")
        said = finding(page, "gate")
        if model == "default":
            equal(said, "这个模型的注意力没有门。")
        else:
            gates = inspect(page, "gates", model=model)["data"]["gates"]
            same(numbers(said)[0], sum(g["mean"] for g in gates) / len(gates), "mean of the gates")
            same(numbers(said)[1], 100 * sum(g["closed"] for g in gates) / len(gates), "closed")
        for lang in ("zh", "en"):
            begin(page, model, 1280, lang)
            low = page.run("Math.max(...['looked', 'previous', 'zero', 'gate'].map((name) => "
                           "document.querySelector(`[data-finding=${name}]`)"
                           ".getBoundingClientRect().bottom))")
            expect(low <= 800, lang, "below the first screen", low)
            begin(page, model, 390, lang)
            top = page.run("document.querySelector('[data-finding=looked]').getBoundingClientRect().top")
            expect(top < 700, lang, "begins far below on a phone", top)


# ------------------------------------------------------------------------------------- pictures and tables
@test
def figures_of_heads(page, server):
    begin(page)
    heads = inspect(page, "heads")["data"]["heads"]
    page.run("document.querySelector('#inside-heads-table').open = true")
    page.wait("!!document.querySelector('#inside-heads-table td')")
    keys = ["first", "sink", "self", "previous", "induction", "entropy", "distance", "variance", "strongest",
            "max_logit"]
    for key in keys:
        choose(page, "#inside-heads .head select:nth-of-type(2)", key)
        got = page.run("[...document.querySelectorAll('#inside-heads-table tbody tr')].map((r) => "
                       "[...r.querySelectorAll('td')].map((c) => c.textContent))")
        for h in heads:
            same(got[h["layer"]][h["head"]], h[key], f"{key} of {h['layer']} {h['head']}")
    choose(page, "#inside-heads .head select:nth-of-type(2)", "first")
    label = next(h["label"] for h in heads if h["layer"] == 5 and h["head"] == 3)
    page.run("[...document.querySelectorAll('#inside-heads canvas')][0].focus()")
    page.wait("document.querySelector('.inside .badge').textContent.startsWith('previous token')")
    equal(page.text(".inside .badge"), label)


@test
def the_map_and_who_looks_where(page, server):
    begin(page)
    weights = inspect(page, "attention", "--layer", "5", "--head", "3")["data"]["weights"]
    equal(steppers(page)[:2], ["Layer 5", "Head 3"], "the clearest head that is no sink")
    page.run("document.querySelector('#inside-token-20').click()")
    page.wait("document.querySelector('#inside-arcs-title').textContent.startsWith('From 20')")
    page.wait(READY)
    wanted = sorted(((w, k) for k, w in enumerate(weights[20]) if w > 5e-4), key=lambda x: (-x[0], x[1]))[:8]
    out = page.run("[...document.querySelectorAll('#inside-out button')].map((b) => "
                   "[b.querySelector('.where').textContent, b.querySelector('.weight').textContent])")
    equal([int(t) for t, _ in out], [k for _, k in wanted], "keys")
    for (_, got), (w, _) in zip(out, wanted):
        same(got, w, "weight of a key")
    into = page.run("[...document.querySelectorAll('#inside-in button')].map((b) => "
                    "[b.querySelector('.where').textContent, b.querySelector('.weight').textContent])")
    looks = sorted(((weights[q][20], q) for q in range(21, len(weights)) if weights[q][20] > 5e-4),
                   key=lambda x: (-x[0], x[1]))[:8]
    equal([int(t) for t, _ in into], [q for _, q in looks], "who looks there")
    equal(page.run("document.querySelectorAll('#inside-arcs .arc.out').length"), len(wanted))
    # The pixel of a cell: darker where the weight is larger, and the readout in words.
    at = page.run("(() => { const c = document.querySelector('#inside-map canvas');"
                  " c.scrollIntoView({block: 'center'}); const r = c.getBoundingClientRect();"
                  " return [r.left, r.top, r.width, r.height]; })()")
    n = len(weights)
    page.click(at[0] + (19 + 0.5) / n * at[2], at[1] + (20 + 0.5) / n * at[3])
    same(page.text("#inside-map-read").split()[-1], weights[20][19], "readout of the map")
    equal(page.run("[document.querySelector('#inside-map canvas').width, "
                   "document.querySelector('#inside-map canvas').height]"), [n, n])
    lengths = inspect(page, "norms")["data"]["stacks"][0]
    page.run("document.querySelector('#inside-token-table').open = true")
    page.wait("document.querySelectorAll('#inside-token-table tbody tr').length === 7")
    rows = page.run("[...document.querySelectorAll('#inside-token-table tbody tr')].map((r) => "
                    "[...r.querySelectorAll('td')].map((c) => c.textContent))")
    for r, row in enumerate(rows):
        same(row[1], lengths["residual"][r][20], "length of the stream")
        if r:
            same(row[2], lengths["attn_out"][r - 1][20], "what attention adds")
    lens = inspect(page, "lens", "--top", "5")["data"]
    got = page.run("[...document.querySelectorAll('.lens tbody tr')].map((r) => [...r.querySelectorAll('td')]"
                   ".map((c) => c.querySelector('small')?.textContent.trim() ?? c.textContent))")
    for r, row in enumerate(got):
        for i in range(5):
            same(row[i], lens["top_probabilities"][r][20][i], f"lens, row {r}")
        same(row[5], lens["entropy"][r][20], "entropy of the lens")
        equal(int(row[6]), lens["rank"][r][20], "rank of the true token")


@test
def the_largest_activations(page, server):
    begin(page)
    page.run("document.querySelector('#inside-token-20').click()")
    data = inspect(page, "massive")["data"]["stacks"][0]
    page.run("document.querySelector('#inside-massive-table').open = true")
    page.wait("document.querySelectorAll('#inside-massive-table tbody tr').length === 7")
    rows = page.run("[...document.querySelectorAll('#inside-massive-table tbody tr')].map((r) => "
                    "[...r.querySelectorAll('td')].map((c) => c.textContent))")
    equal(page.run("[...document.querySelectorAll('#inside-massive-table th')].slice(1, 5).map((c) => "
                   "c.textContent)"), [f"channel {c}" for c in data["channels"]])
    for r, row in enumerate(rows):
        for i in range(4):
            same(row[1 + i], data["trace"][i][r], "trace of a channel")
        same(row[5], data["median"][r], "median")
    cell = page.run("document.querySelector('#inside-grid-table tr.on td.on').textContent")
    same(cell, math.log10(data["largest"][6][20] / data["median"][6]), "a cell of the grid")
    choose(page, "#inside-grid select", "residual")
    page.wait("!document.querySelector('#inside-grid-table tr.on td.on')?.textContent.startsWith('0.')")
    lengths = inspect(page, "norms")["data"]["stacks"][0]["residual"]
    same(page.run("document.querySelector('#inside-grid-table tr.on td.on').textContent"), lengths[6][20],
         "length in the grid")


# ---------------------------------------------------------------------------------------------------- edits
@test
def a_head_is_switched_off(page, server):
    begin(page)
    page.press(".steppers button[data-edit]")
    page.wait("!document.querySelector('.effect').hidden && " + READY)
    said = page.text(".effect p")
    expect("L5H3:zero" in said, said)
    ids = inspect(page, "heads")["text"]["ids"]
    with_edit = server.ask("/v1/look", {"model": "default", "ids": ids, "want": ["tokens"],
                                        "edits": ["z.5@3:zero"]}).json()["tokens"]
    same(re.search(r"goes from [\d.]+ to ([\d.]+)", said)[1], with_edit["perplexity"], "without the head")
    # What is below is the changed model's.
    heads = inspect(page, "heads", "--edit", "L5H3:zero")["data"]["heads"]
    page.run("document.querySelector('#inside-heads-table').open = true")
    page.wait("!!document.querySelector('#inside-heads-table td')")
    got = page.run("[...document.querySelectorAll('#inside-heads-table tbody tr')][5]"
                   ".querySelectorAll('td')[2].textContent")
    same(got, next(h["first"] for h in heads if (h["layer"], h["head"]) == (5, 2)), "a head beside it")
    # The answers, too: the text's page says so, and takes it away.
    page.run("document.querySelector('#tab-text').click()")
    equal(page.texts("#view-text .chip code"), ["L5H3:zero"])
    page.run("document.querySelector('.paper').focus()")
    page.type("The cat")
    page.with_fields({"temperature": 0, "max_tokens": 12, "ignore_eos": True})
    page.key("Enter", control=True)
    page.wait("document.querySelectorAll('.text-tokens .token-text span').length === 12 && "
              "!document.querySelector('#go').hidden")
    direct = server.ask("/v1/completions", {"model": "default", "prompt": "The cat", "temperature": 0,
                                            "max_tokens": 12, "ignore_eos": True,
                                            "rapt": {"edits": ["L5H3:zero"]}}).json()
    equal(page.run("document.querySelector('.paper').value"), "The cat" + direct["choices"][0]["text"])
    page.press("#view-text .chip")
    equal(page.run("document.querySelector('#view-text .edits').hidden"), True)
    equal(page.run("import('/page/state.js').then(({state}) => state.edits)"), [])


@test
def a_channel_is_set_to_zero(page, server):
    begin(page)
    page.press("[data-finding=zero] button")
    page.wait("!document.querySelector('.effect').hidden && " + READY)
    effect = inspect(page, "massive", "--zero")["data"]["interventions"][0]
    same(re.search(r"goes from [\d.]+ to ([\d.]+)", page.text(".effect p"))[1], effect["perplexity_after"],
         "without it")
    page.press("[data-finding=zero] button")
    page.wait("document.querySelector('.effect').hidden && " + READY)
    # An edit that cannot be is told in words, and the way back works.
    page.run("import('/page/state.js').then(({set}) => set({edits: ['L9H9:zero']}))")
    page.wait("document.querySelector('#view-inside').dataset.state === 'failed'")
    expect("z.9" in page.text(".inside .status"), page.text(".inside .status"))
    page.run("import('/page/state.js').then(({set}) => set({edits: []}))")
    page.wait(READY)
    equal(page.text(".inside .status"), "")


# ----------------------------------------------------------------------------------------------------- live
@test
def looking_while_it_writes(page, server):
    begin(page)
    page.run("document.querySelector('#tab-text').click()")
    page.run("document.querySelector('.paper').focus()")
    page.type("Once upon a time")
    page.with_fields({"seed": 3, "max_tokens": 24, "ignore_eos": True})
    page.run("""import('/page/work.js').then(({onFrame}) => { window.frames_seen = 0;
        onFrame(() => ++window.frames_seen); })""")
    page.wait("window.frames_seen === 0")
    page.key("Enter", control=True)
    page.wait("document.querySelectorAll('.text-tokens .token-text span').length === 24 && "
              "!document.querySelector('#go').hidden")
    expect(page.run("window.frames_seen") >= 20, "frames", page.run("window.frames_seen"))
    # The chosen head's statistic colours the tokens; a click on one leads here.
    values = page.run("[...document.querySelector('.text-tokens .token-head select').options].map((o) => "
                      "o.value)")
    expect("head" in values, values)
    choose(page, ".text-tokens .token-head select", "head")
    expect(page.run("document.querySelector('.text-tokens .token-text span').style.backgroundColor") != "",
           "a coloured token")
    page.run("document.querySelectorAll('.text-tokens .token-text span')[5].click()")
    page.run("document.querySelector('#tab-inside').click()")
    page.wait(READY)
    expect("answer" in page.text(".inside .what"), page.text(".inside .what"))
    chosen = page.run("import('/page/state.js').then(({state}) => state.chosen)")
    expect(steppers(page)[2].startswith(f"{chosen['at']} “"), steppers(page), chosen["at"])
    # Whoever comes from a token sees it at once: the text stands before what was found in it.
    places = [page.run(f"document.querySelector('.inside .{box}').getBoundingClientRect().top")
              for box in ("text", "findings")]
    expect(places[0] < 400 and places[0] < places[1], "the text, then the findings", places)
    # A frame has the figures that reading the text again gives.
    choose(page, "#inside-heads .head select:nth-of-type(1)", "token")
    page.run("document.querySelector('#inside-heads-table').open = true")
    page.wait("document.querySelectorAll('#inside-heads-table td').length === 36 && " + READY)
    again = page.run("[...document.querySelectorAll('#inside-heads-table td')].map((c) => +c.textContent)")
    frame = page.run("""import('/page/views/inside/live.js').then((m) => {
        const one = m.framesOf(%s), stats = m.statsAt(one, %d);
        return [...Array(36).keys()].map((i) => stats[8 * i + 1]); })""" %
                     (json.dumps(chosen["message"]), chosen["at"]))
    for a, b in zip(again, frame):
        expect(abs(a - b) <= 1e-3 + 1e-3 * abs(a), a, b)
    # Space plays the answer, and stops.
    page.run("document.querySelector('#view-inside').focus()")
    before = steppers(page)[2]
    page.key("Space")
    page.wait(f"document.querySelectorAll('.inside .now')[2].textContent !== {json.dumps(before)}")
    equal(page.text(".steppers [data-hint]"), "❚❚ Pause")
    page.key("Space")
    page.wait("document.querySelector('.steppers [data-hint]').textContent === '▶ Play'")
    choose(page, "#inside-heads .head select:nth-of-type(1)", "text")


# ------------------------------------------------------------------------------------------- keys, languages
@test
def by_keyboard_alone(page, server):
    begin(page)
    equal(steppers(page)[:2], ["Layer 5", "Head 3"])
    page.run("document.querySelector('#view-inside').focus()")
    for key in ("ArrowUp", "ArrowUp", "]", "ArrowLeft", "ArrowLeft", "ArrowLeft"):
        page.key(key)
    equal(steppers(page)[:2], ["Layer 3", "Head 4"])
    expect(steppers(page)[2].startswith("34 “"), steppers(page)[2])
    page.key("[")
    page.key("ArrowDown")
    page.key("ArrowRight")
    equal(steppers(page)[:2] + [steppers(page)[2][:2]], ["Layer 4", "Head 3", "35"])
    # In a picture the arrows are the picture's.
    page.run("document.querySelector('#inside-heads canvas').focus()")
    page.key("ArrowLeft")
    page.key("ArrowUp")
    equal(steppers(page)[:2], ["Layer 3", "Head 2"])
    expect("Layer 3, head 2" in page.run("document.activeElement.getAttribute('aria-label')"), "name")
    page.wait(READY)
    # One's own text; Enter reads it, but not while a character is composed.
    page.run("(() => { const a = document.querySelector('#inside-own'); a.focus(); "
             "a.value = 'Two words'; })()")
    page.run("document.activeElement.dispatchEvent(new KeyboardEvent('keydown', "
             "{key: 'Enter', isComposing: true, bubbles: true}))")
    expect("38 tokens" in page.text(".inside .what"), page.text(".inside .what"))
    page.key("Enter")
    n = len(inspect(page, "heads", text="Two words")["text"]["ids"])
    page.wait(f"document.querySelector('.inside .what').textContent.includes('{n} tokens') && {READY}")
    missing = page.run("""[...document.querySelectorAll('.inside canvas:not([aria-hidden])')].filter((c) =>
        c.checkVisibility() && !(c.getAttribute('aria-label') &&
        document.getElementById(c.getAttribute('aria-describedby')))).length""")
    equal(missing, 0, "pictures without a name or description")
    unnamed = page.run("""[...document.querySelectorAll('.inside button, .inside select, .inside textarea')]
        .filter((e) => !(e.innerText || e.getAttribute('aria-label') || e.title)).length""")
    equal(unnamed, 0, "controls without a name")


@test
def everything_by_mouse_and_by_keys(page, server):
    """In both languages, on a phone and on a wide screen: a token, a head, its switch, a table, by the mouse;
    then the same by the keys, from one control to the next, each of which can be seen to have the focus."""
    for lang in ("en", "zh"):
        for width in (390, 1280):
            begin(page, "default", width, lang)
            page.press("#inside-token-20")
            expect(steppers(page)[2].startswith("20 “"), steppers(page))
            page.press(".step-h button:last-child")
            page.press(".step-l button:first-child")
            equal([re.search(r"\d+", s)[0] for s in steppers(page)[:2]], ["4", "4"], "stepped")
            page.wait(READY)
            left, top, wide, high = page.run("""new Promise((done) => {
                const c = document.querySelector('#inside-heads canvas');
                let before = '', still = 0;
                const look = () => {
                  c.scrollIntoView({block: 'center'});
                  const r = c.getBoundingClientRect(), now = [r.left, r.top, r.width, r.height];
                  still = before === String(now) ? still + 1 : 0;
                  before = String(now);
                  if (still === 5) done(now);
                  else requestAnimationFrame(look); };
                look(); })""")
            page.click(left + 3.5 / 6 * wide, top + 3.5 / 6 * high)  # the middle of a cell
            equal([re.search(r"\d+", s)[0] for s in steppers(page)[:2]], ["3", "3"], "a cell")
            page.press(".steppers button[data-edit]")
            page.wait("!document.querySelector('.effect').hidden && " + READY)
            expect("L3H3:zero" in page.text(".effect p"), page.text(".effect p"))
            page.press("#view-inside .chip")
            page.wait("document.querySelector('.effect').hidden && " + READY)
            page.press("#inside-heads-table summary")
            page.wait("document.querySelectorAll('#inside-heads-table td').length === 36")
            page.press("#inside-heads-table summary")
            # By the keys.
            page.run("document.querySelector('#inside-own').focus()")
            reached = set()
            for _ in range(60):
                page.key("Tab")
                name, outline = page.run("""(() => { const e = document.activeElement;
                    return [e.id || e.closest('[id]')?.id || e.tagName,
                            getComputedStyle(e).outlineStyle]; })()""")
                expect(outline == "solid", "focus is not seen on", name)
                reached.add(name)
                if page.run("document.activeElement.matches('#inside-massive-table summary')"):
                    break
            wanted = {"inside-go", "inside-live", "inside-findings", "inside-text", "inside-heads",
                      "inside-map", "inside-all", "inside-grid", "inside-massive", "inside-massive-table"}
            expect(wanted <= reached | {n.split("-token-")[0] + "-text" for n in reached if "-token-" in n},
                   "not reached:", wanted - reached)
            page.key("Enter")
            page.wait("document.querySelectorAll('#inside-massive-table tbody tr').length === 7")
            page.run("document.querySelector('#inside-heads canvas').focus()")
            page.key("ArrowRight")
            equal([re.search(r"\d+", s)[0] for s in steppers(page)[:2]], ["3", "4"], "by the keys")
            page.run("document.querySelector('.steppers button[data-edit]').focus()")
            page.key("Enter")
            page.wait("!document.querySelector('.effect').hidden && " + READY)
            expect("L3H4:zero" in page.text(".effect p"), page.text(".effect p"))
            page.run("document.querySelector('#view-inside .chip').focus()")
            page.key("Enter")
            page.wait("document.querySelector('.effect').hidden && " + READY)


@test
def both_languages_and_all_widths(page, server):
    begin(page, "default-gated", 390, "zh")
    heads = inspect(page, "heads", model="default-gated")["data"]["heads"]
    best = max(heads, key=lambda h: h["previous"])
    said = finding(page, "previous")
    expect(f"第 {best['layer']} 层第 {best['head']} 头" in said, said)
    expect("困惑度" in finding(page, "zero") and "门" in finding(page, "gate"), finding(page, "zero"))
    left = page.run("""(() => { const out = []; const walk = document.createTreeWalker(
        document.querySelector('.inside'), NodeFilter.SHOW_TEXT);
        while (walk.nextNode()) if (/inside_|undefined|NaN|\\{\\w+\\}/.test(walk.currentNode.data))
          out.push(walk.currentNode.data); return out; })()""")
    equal(left, [], "words that are none")
    page.picture_in("inside-zh", whole=True)
    for width in (320, 390, 1280):
        page.size(width, 800)
        equal(page.run("document.documentElement.scrollWidth"), width, "width")
        wide = page.run("""[...document.querySelectorAll('.inside .box, .inside > *')].filter((e) =>
            e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.className)""")
        equal(wide, [], f"what sticks out at {width}")
    page.size(1280, 800)
    page.run("document.querySelector('#lang').click()")
    page.wait("document.querySelector('[data-finding=previous]').textContent.includes('copies')")
    for name in ("dark", "light"):
        page.run(f"import('/page/state.js').then(({{set}}) => {{ document.documentElement.dataset.theme = "
                 f"'{name}'; set({{theme: '{name}'}}); }})")
        dark = page.run("[...document.querySelector('#inside-heads canvas').getContext('2d')"
                        ".getImageData(1, 5, 1, 1).data].slice(0, 3).reduce((a, b) => a + b)")
        expect((dark < 300) == (name == "dark"), "a cell without weight has the colour of the paper", dark)
        page.picture_in(f"inside-{name}", whole=True)


# ---------------------------------------------------------------------------------------------------- errors
@test
def what_does_not_work_is_said_in_words(page, server):
    begin(page)
    # A conversation that is longer than can be read.
    page.run("import('/page/state.js').then(({set}) => set({chosen: {model: 'default', conversation: 'c', "
             "message: 'm', index: 0, token: {text: 'a', top: []}, text: 'a', ids: Array(5000).fill(65), "
             "at: 4999}}))")
    page.wait("document.querySelector('#view-inside').dataset.state === 'failed'")
    expect("5,000 tokens; at most 4,096" in page.text(".inside .status"), page.text(".inside .status"))
    # The server is busy: so it says, and trying again works.
    page.run("""(() => { window.ownFetch ||= window.fetch; window.fetch = (path, o = {}) =>
        path.endsWith('/v1/look') ? Promise.resolve(new Response(JSON.stringify({error: {message: 'busy',
        code: 'overloaded'}}), {status: 429, headers: {'Retry-After': '1'}})) : ownFetch(path, o); })()""")
    page.run("document.querySelector('#inside-own').focus()")
    page.key("Enter")
    page.wait("document.querySelector('.inside .status').textContent.includes('busy')")
    page.own_replies()
    page.press(".inside [data-text=retry]")
    page.wait(READY)
    equal(page.text(".inside .status"), "")
    # The program's own model has a context of 256 tokens.
    page.run("(() => { const a = document.querySelector('#inside-own'); a.focus(); "
             "a.value = 'The cat sat on the mat. '.repeat(70); })()")
    page.key("Enter")
    page.wait("document.querySelector('.inside .status').textContent.includes('at most 256 can be read')")
    # A chat of six hundred tokens: no small maps; of 2,500: no figures over all of it. Both say so.
    begin(page, "chat")
    for n in (600, 2500):
        page.run("import('/page/state.js').then(({set}) => set({chosen: {model: 'chat', conversation: 'c', "
                 f"message: 'm{n}', index: 3, token: {{text: 'a', top: []}}, text: 'a', at: {n - 4}, "
                 f"ids: Array.from({{length: {n}}}, (_, i) => 65 + i % 50)}}}}))")
        page.wait("document.querySelector('#inside-all > .hint').textContent.includes('512') && "
                  f"document.querySelector('.inside .what').textContent.includes('{n:,}') && "
                  "document.querySelector('#view-inside').dataset.state === 'ready' && "
                  "document.querySelectorAll('#inside-out button').length > 0")
        expect(steppers(page)[2].startswith(f"{n - 4} “"), steppers(page))
        expect(finding(page, "looked") is None, "nothing is said that was not computed")
        equal(finding(page, "long") is not None, n > 2048)
        equal(page.run("document.querySelectorAll('.lens tbody tr').length > 1"), True, "lens")
        row = server.ask("/v1/look", {"model": "chat", "ids": [65 + i % 50 for i in range(n)],
                                      "want": ["row"], "token": n - 4, "layer": int(steppers(page)[0][6:]),
                                      "encoding": "json"}).json()["row"]["weights"]
        weights = row["data"][int(steppers(page)[1][5:]) * n:][:n]
        key, got = page.run("(() => { const b = document.querySelector('#inside-out button'); return "
                            "[b.querySelector('.where').textContent, "
                            "b.querySelector('.weight').textContent]; })()")
        same(got, max(weights), "strongest key of a long text")
        equal(int(key), max(range(n), key=lambda k: weights[k]))


@test
def nothing_was_complained_about(page, server):
    # The 400 of the edit that cannot be.
    got = page.complaints()
    page.complaints = lambda: [c for c in got if "/v1/look" not in c and "400" not in c]
    complaints_of(page)


if __name__ == "__main__":
    sys.exit(run("The view that looks inside.", ["--cache-type", "f32"],
                 lambda args: [f"chat={args.models.chat}", "default", "default-gated"]))
