#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare, a view of the page: two sides from one prompt and one seed. Where they part, the distributions
there, the surprise along the texts and the heads are what the API and `rapt inspect` say of each side alone.

  python3 tests/browser/compare_test.py --rapt build/rapt [--only heads]
"""
import json
import math
import sys

from page_client import nothing_was_complained_about as complaints_of
from page_client import equal, expect, run, serving, slots, test

DEFAULT_PROMPT = "ROMEO:\nThe night is"
SEED, LENGTH = 3, 64
BALANCED = {"temperature": 0.7, "top_p": 0.95}


def begin(page, width=1280, lang="en"):
    page.begin(width, "#view=compare", lang)
    page.wait("document.querySelectorAll('.compare-side select').length === 6 && "
              "document.querySelector('#compare-prompt').value !== ''")


def compared(page):
    """Both texts are written, and read once more."""
    page.wait("!!document.querySelector('.compare-verdict')?.textContent && "
              "document.querySelector('#compare-go').hidden === false && "
              "!document.querySelector('.compare-columns [aria-busy=true]')")


def choose(page, side, label, value):
    """The select of a side that has this label."""
    page.run(f"""(() => {{ const side = document.querySelectorAll('.compare-side')[{side}];
        const e = [...side.querySelectorAll('label')].find((l) => !l.hidden &&
          l.querySelector('[data-text={label}]')).querySelector('select, input, textarea');
        e.value = {json.dumps(value)};
        e.dispatchEvent(new Event(e.tagName === 'SELECT' ? 'change' : 'input', {{bubbles: true}})); }})()""")


def alone(server, model, edits=(), seed=SEED, **fields):
    body = {"model": model, "prompt": DEFAULT_PROMPT, "seed": seed, "max_tokens": LENGTH, "logprobs": 5,
            "return_token_ids": True, **(fields or BALANCED)}
    if edits:
        body["rapt"] = {"edits": list(edits)}
    reply = server.ask("/v1/completions", body).json()
    choice = reply["choices"][0]
    return {"ids": choice["token_ids"], "prompt": choice["prompt_token_ids"], "text": choice["text"],
            "logs": choice["logprobs"], "hash": reply["rapt"]["hash"]}


def kept(page):
    return page.run("JSON.parse(sessionStorage.getItem('rapt.compare')).data")


def percent(logprob):
    p = 100 * math.exp(logprob)
    return "100 %" if p >= 99.95 else f"{p:.0f} %" if p >= 10 else f"{p:.1f} %" if p >= 0.1 else "< 0.1 %"


def shown(text):
    text = text.replace("\n", "↵")
    left = len(text) - len(text.lstrip(" "))
    right = len(text) - len(text.rstrip(" ")) if text.strip(" ") else 0
    return "␣" * left + text.strip(" ") + "␣" * right


@test
def the_first_example_is_one_click_away(page, server):
    begin(page)
    equal(page.run("[...document.querySelectorAll('.compare-side select')].map((s) => s.value)"),
          ["default", "none", "balanced", "default-gated", "none", "balanced"])
    equal(page.run("document.querySelector('#compare-prompt').value"), DEFAULT_PROMPT)
    equal(page.text(".compare-differs"), "Different: the model.")
    expect("every difference" in page.text(".compare .lead"), page.text(".compare .lead"))
    expect(page.text(".compare-empty"), "what will come is said")
    page.press("#compare-go")
    compared(page)
    a, b = alone(server, "default"), alone(server, "default-gated")
    n = next(i for i, (x, y) in enumerate(zip(a["ids"], b["ids"])) if x != y)
    texts = page.run("[...document.querySelectorAll('.compare-column')].map((c) => "
                     "[...c.querySelectorAll('.token-text span')].length)")
    equal(texts, [LENGTH, LENGTH])
    equal([s["text"] for s in kept(page)["sides"]], [a["text"], b["text"]], "the answers")
    equal([s["hash"] for s in kept(page)["sides"]], [a["hash"], b["hash"]], "the bits")
    equal(page.run("[...document.querySelectorAll('.compare-column')].map((c) => "
                   "[...c.querySelectorAll('.token-text span')].findIndex((s) => "
                   "s.classList.contains('parts')))"), [n, n], "where they part")
    equal(page.run("document.querySelectorAll('.compare-column:first-child .same').length"), n)
    mark = page.run("getComputedStyle(document.querySelector('.compare-columns .parts'), '::before').content")
    equal(mark, '"▸"', "not by colour alone")
    words = page.text(".compare-verdict")
    for part in (f"{n} token", "the same, then they part", f"token {n + 1}", shown(a["logs"]["tokens"][n]),
                 shown(b["logs"]["tokens"][n])):
        expect(part in words, part, "is not in", words)
    expect("other requests change no bit" in page.text(".compare-cause"), page.text(".compare-cause"))
    page.picture_in("compare", True)
    # Both distributions at that place, as each model gives them alone.
    rows = page.run("[...document.querySelectorAll('.compare-bars tbody tr')].map((r) => "
                    "[r.querySelector('.who').textContent, ...[...r.querySelectorAll('.figure')].map("
                    "(f) => f.textContent), [...r.querySelectorAll('.badge')].length])")
    table = {r[0]: r[1:] for r in rows}
    for k, one in enumerate((a, b)):
        for token, logprob in one["logs"]["top_logprobs"][n].items():
            equal(table[shown(token)][k], percent(logprob), f"side {k}, {token!r}")
    # What each gives to the other's token: the text up to there, scored by the other model.
    for k, (model, other) in enumerate((("default", b), ("default-gated", a))):
        ids = other["prompt"] + other["ids"][:n + 1]
        echo = server.ask("/v1/completions", {"model": model, "prompt": ids, "max_tokens": 0, "echo": True,
                                              "logprobs": 1}).json()["choices"][0]["logprobs"]
        equal(table[shown(other["logs"]["tokens"][n])][k], percent(echo["token_logprobs"][-1]))
    equal(sum(r[-1] for r in rows), 2, "both tokens that were written are marked")


@test
def surprise_along_the_text_is_each_models_own(page, server):
    a = alone(server, "default")
    scored = {}
    for model in ("default", "default-gated"):
        echo = server.ask("/v1/completions", {"model": model, "prompt": a["prompt"] + a["ids"],
                                              "max_tokens": 0, "echo": True, "logprobs": 1}).json()
        scored[model] = [-x for x in echo["choices"][0]["logprobs"]["token_logprobs"][len(a["prompt"]):]]
    page.run("document.querySelector('.compare-along .twin summary').click()")
    page.wait("document.querySelectorAll('.compare-along .twin tbody tr').length > 0")
    rows = page.run("[...document.querySelectorAll('.compare-along .twin tbody tr')].map((r) => "
                    "[...r.children].map((c) => c.textContent))")
    equal(len(rows), LENGTH)
    for i, row in enumerate(rows):
        x, y = scored["default"][i], scored["default-gated"][i]
        expect(abs(float(row[2]) - x) < 6e-5 and abs(float(row[3]) - y) < 6e-5, row, x, y)
        expect(abs(float(row[4].replace("−", "-")) - (y - x)) < 1e-4, row, y - x)
    means = page.run("[...document.querySelectorAll('.compare-means tbody tr:first-child td')].map((c) => "
                     "Number(c.textContent))")
    for got, model in zip(means, scored):
        expect(abs(got - sum(scored[model]) / LENGTH) < 6e-5, got, model)
    equal(page.run("document.querySelectorAll('.compare-chart rect').length"), LENGTH)
    # Another place by the keys: both distributions there.
    page.run("document.querySelector('.compare-column .token-text span.on').focus()")
    for _ in range(3):
        page.key("ArrowRight")
    at = page.run("[...document.querySelectorAll('.compare-column:first-child .token-text span')].findIndex("
                  "(s) => s.classList.contains('on'))")
    expect(f"Token {at + 1} of A's text" in page.text(".compare-place h2"), page.text(".compare-place h2"))
    top = page.run("[...document.querySelectorAll('.compare-bars tbody tr')].map((r) => "
                   "[r.querySelector('.who').textContent, r.querySelector('td .figure').textContent])")
    for token, logprob in a["logs"]["top_logprobs"][at].items():
        equal(dict(top)[shown(token)], percent(logprob), token)
    page.press(".compare-context button")
    expect("where they part" in page.text(".compare-place h2"), page.text(".compare-place h2"))


@test
def heads_are_those_of_rapt_inspect(page, server):
    a = alone(server, "default")
    ids = ",".join(map(str, a["prompt"] + a["ids"]))
    heads = [serving.rapt_json(page.args, "inspect", "heads", m, "--ids", ids)["data"]["heads"]
             for m in ("default", "default-gated")]
    metric = page.run("document.querySelector('.compare-heads select').value")
    equal(metric, "previous")
    page.run("document.querySelector('.compare-heads .twin summary').click()")
    page.wait("!!document.querySelector('.compare-difference')")
    for which in ("previous", "entropy", "first", "induction"):
        page.run(f"""(() => {{ const s = document.querySelector('.compare-heads select');
            s.value = {json.dumps(which)}; s.dispatchEvent(new Event('change')); }})()""")
        cells = page.run("[...document.querySelectorAll('.compare-difference tbody tr')].map((r) => "
                         "[...r.querySelectorAll('td')].map((c) => Number(c.textContent)))")
        equal(len(heads[0]), 36)
        values = [side["values"][which] for side in kept(page)["heads"][0]]
        for one, two in zip(*heads):
            equal((one["layer"], one["head"]), (two["layer"], two["head"]))
            at = one["layer"], one["head"]
            for side, wanted in zip(values, (one, two)):
                expect(abs(side[at[0]][at[1]] - wanted[which]) < 1e-9, which, at, side[at[0]][at[1]], wanted)
            got, wanted = cells[at[0]][at[1]], two[which] - one[which]
            expect(abs(got - wanted) <= 0.0006 + 0.005 * abs(wanted), which, at, got, wanted)
    read = page.text("#compare-read")
    page.run("document.querySelector('.compare-heads canvas').focus()")
    page.key("ArrowLeft" if ", head 0:" not in read else "ArrowRight")
    expect(page.text("#compare-read") != read, "the keys choose another head")


@test
def a_pair_with_nothing_different_is_identical(page, server):
    begin(page)
    page.press(".compare-tries [data-name=nothing]")
    expect("Nothing is different" in page.text(".compare-differs"), page.text(".compare-differs"))
    page.press("#compare-go")
    compared(page)
    one = alone(server, "default")["hash"]
    words = page.text(".compare-verdict")
    expect(words.startswith("Identical to the last bit") and one in words, words)
    equal(page.run("document.querySelectorAll('.compare .parts').length"), 0)
    equal(page.run("document.querySelectorAll('.compare .token-text .same').length"), 2 * LENGTH)
    values = page.run("[...document.querySelectorAll('.compare-means td')].map((c) => c.textContent)")
    expect(len(set(v for v in values if v)) == 1, values)
    expect("difference 0 " in page.text("#compare-read"), page.text("#compare-read"))


@test
def an_edit_is_the_cause_and_an_own_edit_too(page, server):
    begin(page)
    page.press(".compare-tries [data-name=head]")
    page.wait("document.querySelectorAll('.compare-side')[1].querySelector('[data-for=layer] input').value "
              "=== '3'")
    equal(page.text(".compare-differs"), "Different: the change inside.")
    page.press("#compare-go")
    compared(page)
    sides = kept(page)["sides"]
    equal([s["hash"] for s in sides],
          [alone(server, "default")["hash"], alone(server, "default", ["z.3@h0:zero"])["hash"]])
    # The strongest form of it: a channel that is gone.
    choose(page, 1, "compare_edit", "channel")
    choose(page, 1, "compare_channel", "7")
    choose(page, 1, "compare_layer", "2")
    page.press("#compare-go")
    compared(page)
    edit = {"point": "resid_post.2", "op": "project_out", "value": [int(i == 7) for i in range(192)]}
    for same in ("resid_post.2@c7:zero", edit):  # what lies along a channel is the channel
        equal(kept(page)["sides"][1]["hash"], alone(server, "default", [same])["hash"])
    choose(page, 1, "compare_edit", "own")
    choose(page, 1, "compare_edit_text", "z.1@h2:scale=0.5\nmlp_out.0:zero")
    page.press("#compare-go")
    compared(page)
    equal(kept(page)["sides"][1]["hash"],
          alone(server, "default", ["z.1@h2:scale=0.5", "mlp_out.0:zero"])["hash"])
    # One that cannot be is refused in words, and the other side is there.
    choose(page, 1, "compare_edit_text", "z.99:zero")
    refusal = server.ask("/v1/completions", {"model": "default", "prompt": "x",
                                             "rapt": {"edits": ["z.99:zero"]}})
    equal(refusal.status, 400)
    page.run(f"""(() => {{ window.ownFetch ||= window.fetch; window.fetch = (path, o = {{}}) =>
        (o.body || '').includes('z.99') ? Promise.resolve(new Response({json.dumps(refusal.text())},
          {{status: 400}})) : ownFetch(path, o); }})()""")
    page.press("#compare-go")
    compared(page)
    expect("z.99" in page.text(".compare-column.side-1 .error"), page.text(".compare-column.side-1 .error"))
    equal(page.run("document.querySelectorAll('.compare-column.side-0 .token-text span').length"), LENGTH)


@test
def two_caches_of_one_file(page, server):
    begin(page)
    page.press(".compare-tries [data-name=cache]")
    equal(page.run("[...document.querySelectorAll('.compare-side select')].map((s) => s.value)"),
          ["default", "none", "balanced", "packed", "none", "balanced"])
    equal(page.text(".compare-differs"), "Different: the format of the cache (f32, q4_0).")
    page.press("#compare-go")
    compared(page)
    a, b = alone(server, "default"), alone(server, "packed")
    expect(a["hash"] != b["hash"], "the bits differ")
    equal([s["hash"] for s in kept(page)["sides"]], [a["hash"], b["hash"]])


@test
def another_sampling_draws_from_one_distribution(page, server):
    begin(page)
    page.press(".compare-tries [data-name=sampling]")
    page.press("#compare-go")
    compared(page)
    a, b = alone(server, "default", temperature=0), alone(server, "default", temperature=1, min_p=0.05)
    equal([s["hash"] for s in kept(page)["sides"]], [a["hash"], b["hash"]])
    expect("only the drawing differs" in page.text(".compare-place"), page.text(".compare-place"))


@test
def it_stays_and_can_be_saved(page, server):
    before, words = kept(page), page.text(".compare-verdict")
    page.press("#tab-text")
    page.press("#tab-compare")
    equal(page.text(".compare-verdict"), words, "after another view")
    page.reload()
    page.wait("!!document.querySelector('.compare-verdict')?.textContent")
    equal(page.text(".compare-verdict"), words, "after a reload")
    equal(page.run("!document.querySelector('.compare-heads').hidden"), True)
    page.run("URL.createObjectURL = (blob) => { window.saved = blob.text(); return 'blob:'; }; "
             "HTMLAnchorElement.prototype.click = function() { window.savedName = this.download; }")
    page.run("[...document.querySelectorAll('.compare button')].find((b) => "
             "b.textContent === 'Save as a file').click()")
    saved = json.loads(page.run("saved"))
    equal(page.run("savedName"), "rapt-compare.json")
    equal((saved["sides"], saved["scores"], saved["heads"]),
          (before["sides"], before["scores"], before["heads"]))


@test
def a_reload_in_the_middle_goes_on(page, server):
    begin(page)
    page.run("(() => { const s = [...document.querySelectorAll('.compare > .row select')].pop(); "
             "s.value = '128'; s.dispatchEvent(new Event('change')); })()")
    page.with_fields({"ignore_eos": True})
    page.press("#compare-go")
    page.wait("JSON.parse(sessionStorage.getItem('rapt.compare') || '{}').data?.sides.every((s) => s.stream)")
    page.reload()
    compared(page)
    sides = kept(page)["sides"]
    equal([len(s["tokens"]) for s in sides], [128, 128], [s.get("error") for s in sides])
    body = {"prompt": DEFAULT_PROMPT, "seed": SEED, "max_tokens": 128, "ignore_eos": True, **BALANCED}
    equal([s["text"] for s in sides],
          [server.ask("/v1/completions", {"model": m, **body}).json()["choices"][0]["text"]
           for m in ("default", "default-gated")])


@test
def stop_frees_both(page, server):
    page.begin(1280, "#view=compare")
    page.wait("document.querySelectorAll('.compare-side select').length === 6")
    for side in (0, 1):
        choose(page, side, "model", "chat")
    page.wait("!document.querySelector('.compare-system').hidden")
    page.with_fields({"max_tokens": 8000, "logit_bias": {"511": -100, "0": -100}})
    page.run("document.querySelector('#compare-prompt').value = ''; "
             "document.querySelector('#compare-prompt').focus()")
    page.type("Say something long")
    page.key("Enter", control=True)
    page.wait("[...document.querySelectorAll('.compare-column')].every((c) => "
              "c.querySelectorAll('.token-text span').length > 20)")
    equal(len(slots(server)), 2, "both are being written")
    page.key("Escape")
    compared(page)
    for _ in range(100):
        if not slots(server):
            break
    equal(slots(server), [], "rows are freed")
    sides = kept(page)["sides"]
    expect(all(s["stopped"] and s["tokens"] for s in sides), "what there was is kept")
    n = min(len(s["tokens"]) for s in sides)
    equal(*([t["id"] for t in s["tokens"][:n]] for s in sides), "same bits, however far each came")
    equal(kept(page)["scores"], [None, None], "nothing goes on behind one's back")
    button = ".compare-body > button:not([hidden])"
    equal(page.text(button), "Let each side read both texts")
    page.press(button)
    page.wait("JSON.parse(sessionStorage.getItem('rapt.compare')).data.scores.every(Boolean)")
    compared(page)
    equal(len(kept(page)["scores"][0]["logprob"]), len(sides[0]["tokens"]))


@test
def chat_models_are_asked_as_a_chat(page, server):
    page.own_replies()
    page.with_fields({"max_tokens": 24, "logit_bias": {"511": -100, "0": -100}})
    page.press(".compare-tries [data-name=head]")
    page.press("#compare-go")
    compared(page)
    body = {"model": "chat", "messages": [{"role": "user", "content": "Say something long"}], "seed": SEED,
            "max_tokens": 24, "logit_bias": {"511": -100, "0": -100}, "logprobs": True, "top_logprobs": 5,
            **BALANCED}
    hashes = [server.ask("/v1/chat/completions", {**body, **more}).json()["rapt"]["hash"]
              for more in ({}, {"rapt": {"edits": ["z.1@h0:zero"]}})]
    equal([s["hash"] for s in kept(page)["sides"]], hashes)


@test
def models_that_cut_texts_differently(page, server):
    begin(page)
    choose(page, 1, "model", "chat")
    page.press("#compare-go")
    compared(page)
    texts = [s["text"] for s in kept(page)["sides"]]
    n = next(i for i, (x, y) in enumerate(zip(*texts)) if x != y)
    for side in (0, 1):
        at = page.run(f"""(() => {{ const all = [...document.querySelectorAll('.compare-column')][{side}],
            spans = [...all.querySelectorAll('.token-text span')];
            return spans.findIndex((s) => s.classList.contains('parts')); }})()""")
        tokens = [t["text"] for t in kept(page)["sides"][side]["tokens"]]
        expect(len("".join(tokens[:at])) <= n < len("".join(tokens[:at + 1])), "by letters", tokens, at)
    expect("different tokens" in page.text(".compare-along"), page.text(".compare-along"))
    equal(page.run("document.querySelectorAll('.compare-heads canvas[role=application]').length"), 2)
    equal([side["layers"] * side["heads"] for side in
           (kept(page)["heads"][0][0], kept(page)["heads"][1][1])], [36, 8], "shapes that differ")
    expect("A: layer 0, head 0" in page.text("#compare-read"), page.text("#compare-read"))


@test
def an_answer_of_the_chat_leads_here(page, server):
    page.begin(1280, "#view=chat")
    page.run("(() => { const s = document.querySelector('#model'); s.value = 'chat'; "
             "s.dispatchEvent(new Event('change')); })()")
    page.wait("import('/page/state.js').then(({state}) => state.model === 'chat')")
    page.press("#tab-chat")
    page.with_fields({"max_tokens": 20, "logit_bias": {"511": -100, "0": -100}})
    page.ask("First question")
    page.answered(2)
    page.ask("Second question")
    page.answered(4)
    node = page.run("import('/page/history.js').then(async (h) => { const id = new "
                    "URLSearchParams(location.hash.slice(1)).get('c'), c = await h.load(id); "
                    "const n = [...c.nodes.values()].pop(); "
                    "return {seed: n.seed, hash: n.hash, text: n.text}; })")
    page.press(".message:last-child .act-to_compare")
    page.wait("document.querySelectorAll('#view-compare .compare-side select').length === 6")
    page.wait("document.querySelector('#compare-prompt').value === 'Second question'")
    equal(page.run("[...document.querySelectorAll('.compare-side select')].map((s) => s.value)"),
          ["chat", "none", "balanced", "chat", "head", "balanced"])
    equal(page.run("Number(document.querySelector('.compare > .row input').value)"), node["seed"])
    # What was said before is asked, too: known once the server said that the model chats.
    page.wait("document.querySelector('.compare').textContent.includes('2 earlier messages')")
    page.press("#compare-go")
    compared(page)
    sides = kept(page)["sides"]
    equal((sides[0]["text"], sides[0]["hash"]), (node["text"], node["hash"]), "the answer, once more")
    expect(sides[1]["hash"] != node["hash"], "beside it with a head off")


@test
def both_languages_and_widths(page, server):
    for lang in ("en", "zh"):
        for width in (320, 390, 1280):
            begin(page, width, lang)
            page.press("#compare-go")
            compared(page)
            equal(page.run("document.documentElement.scrollWidth"), width, "width")
            equal(page.run("(() => { const v = document.querySelector('#view-compare'); "
                           "return v.scrollWidth <= v.clientWidth; })()"), True, "of the view")
            stacked = page.run("(() => { const all = [...document.querySelectorAll('.compare-column')], "
                               "[a, b] = all.map((c) => c.getBoundingClientRect()); "
                               "return b.top >= a.bottom; })()")
            equal(stacked, width < 761, "one below the other on a phone")
            missing = page.run("[...document.querySelectorAll('#view-compare *')].filter((e) => "
                               "/^compare_/.test(e.textContent) && !e.children.length).map((e) => "
                               "e.textContent)")
            equal(missing, [], "words that are missing")
            page.picture_in(f"compare-{lang}-{width}", True)
    expect("每一处差别都由此而来" in page.text(".compare-cause"), page.text(".compare-cause"))
    unnamed = page.run("""[...document.querySelectorAll('#view-compare :is(button, input, select, textarea)')]
      .filter((e) => !(e.textContent || e.getAttribute('aria-label') || e.closest('label') ||
                       e.labels?.length))
      .map((e) => e.id || e.outerHTML)""")
    equal(unnamed, [], "controls without a name")


@test
def everything_by_mouse_and_by_keys(page, server):
    place = "document.querySelector('.compare-place h2').textContent"
    for lang in ("en", "zh"):
        for width in (390, 1280):
            begin(page, width, lang)
            page.press(".compare-tries [data-name=head]")
            page.press(".compare-tries [data-name=models]")
            page.press("#compare-go")
            compared(page)
            parting = page.run(place)
            page.press(".compare-column.side-0 [data-t='5']")
            expect(page.run(place) != parting and " 6 " in page.run(place), page.run(place))
            page.press(".compare-context button")
            equal(page.run(place), parting)
            left, top, wide, high = page.run("""new Promise((done) => {
                const c = document.querySelector('.compare-heads canvas');
                c.scrollIntoView({block: 'center'});
                requestAnimationFrame(() => requestAnimationFrame(() => {
                  const r = c.getBoundingClientRect(); done([r.left, r.top, r.width, r.height]); })); })""")
            page.click(left + 2.5 / 6 * wide, top + 1.5 / 6 * high)
            read = page.text("#compare-read")
            expect(("Layer 1, head 2:" if lang == "en" else "第 1 层第 2 头") in read, read)
            # By the keys alone: from the prompt to the button, and there; then the texts and the heads.
            page.run("document.querySelector('#compare-prompt').focus()")
            seen = []
            for _ in range(16):
                page.key("Tab")
                seen.append(page.run("document.activeElement.id || document.activeElement.tagName"))
                outline = page.run("getComputedStyle(document.activeElement).outlineStyle")
                expect(outline == "solid", "focus is not seen on", seen[-1])
                if seen[-1] == "compare-go":
                    break
            equal(seen[-1], "compare-go", seen)
            page.key("Enter")
            page.wait("document.querySelector('#compare-go').hidden || "
                      "!!document.querySelector('.compare-columns [aria-busy=true]')")
            compared(page)
            reached = set()
            for _ in range(40):
                page.key("Tab")
                part = page.run("""(() => { const e = document.activeElement;
                    return [e.closest('.compare-column, .compare-along, .compare-heads')?.className ?? '',
                            getComputedStyle(e).outlineStyle, e.matches('.compare-heads summary')]; })()""")
                equal(part[1], "solid", part)
                reached.add(part[0])
                if part[2]:
                    break
            for name in ("compare-column side-0", "compare-column side-1", "compare-along", "compare-heads"):
                expect(name in reached, name, reached)
            page.key("Enter")
            page.wait("!!document.querySelector('.compare-difference')")


@test
def nothing_was_complained_about(page, server):
    complaints_of(page)


def models(args):
    default = args.default or args.rapt.parent / "default.gguf"
    gated = default.with_name("default-gated.gguf")
    return [f"default={default}", f"default-gated={gated}", f"packed={default}", f"chat={args.models.chat}"]


if __name__ == "__main__":
    sys.exit(run("Compare, a view of the page.", flags=("--cache-type", "f32", "--cache-type", "packed=q4_0"),
                 models=models))
