# SPDX-License-Identifier: Apache-2.0
# The page's small attention: play_test.py --rapt PROGRAM. Its numbers against the formulas of the papers,
# written out here in plain Python; its controls by keyboard and mouse, in both languages, at four widths.
import itertools
import json
import math
import random
import re
import sys

from page_client import nothing_was_complained_about as complaints_of
from walk import walk
from page_client import equal, expect, run, test

MODULE = "/page/views/play/attention.js"
DEFAULTS = {"seed": 1, "heads": 2, "dim": 4, "keys": "own", "scale": "root", "factor": 1, "temperature": 1,
            "cap": 0, "norm": "none", "positions": "none", "mask": "causal", "window": 3, "keep": 1,
            "normal": "softmax", "sink": "none", "logit": 0, "gate": "none", "bias": 0}
CHOICES = {"keys": ["own", "queries"], "scale": ["root", "none", "own"], "norm": ["none", "rms", "l2"],
           "positions": ["none", "rope", "alibi", "sinusoid"], "mask": ["causal", "full", "window", "keep"],
           "normal": ["softmax", "sigmoid"], "sink": ["none", "zero", "learned"], "gate": ["none", "sigmoid"]}
RANGES = {"heads": [1, 2, 3, 4], "dim": [2, 4, 6, 8], "seed": [1, 7, 99], "factor": [0.05, 1.5, 4],
          "temperature": [0.1, 0.7, 4], "cap": [0, 0.5, 8], "window": [1, 3, 12], "keep": [1, 2, 4],
          "logit": [-4, 0.25, 6], "bias": [-6, 0.5, 6]}
ENGLISH, CHINESE = "The cat sat on the mat".split(), list("小猫坐在垫子上")


# ----------------------------------------------------------------------------------------- the reference
def murmur(h):
    h ^= h >> 16
    h = h * 0x85EBCA6B & 0xFFFFFFFF
    h ^= h >> 13
    h = h * 0xC2B2AE35 & 0xFFFFFFFF
    return h ^ h >> 16


def number(seed, stream, i):
    """A sum of four uniform numbers, shifted and stretched to mean 0 and variance 1, to two places."""
    four = [murmur((murmur((murmur(seed) + stream) & 0xFFFFFFFF) + (4 * i + j) * 0x9E3779B9) & 0xFFFFFFFF)
            for j in range(4)]
    return math.floor(100 * math.sqrt(3) * (sum(four) / 2**32 - 2) + 0.5) / 100


def hash_of(text):
    h = 0x811C9DC5
    for byte in text.lower().encode():
        h = (h ^ byte) * 0x01000193 & 0xFFFFFFFF
    return h


def rotate(x, position):
    """Su et al. 2021, in the layout of Hugging Face: channels i and i + d/2 are a pair."""
    d = len(x)
    y = [0.0] * d
    for i in range(d // 2):
        turn = complex(x[i], x[i + d // 2]) * complex(math.cos(position * 10000 ** (-2 * i / d)),
                                                      math.sin(position * 10000 ** (-2 * i / d)))
        y[i], y[i + d // 2] = turn.real, turn.imag
    return y


def alibi(heads):
    """Press et al. 2022: 2^(-8/n), 2^(-16/n) …; three heads: both of two, and the first of four."""
    return {1: [2**-8], 2: [2**-4, 2**-8], 3: [2**-4, 2**-8, 2**-2],
            4: [2**-2, 2**-4, 2**-6, 2**-8]}[heads]


def sees(s, i, j):
    if s["mask"] == "full":
        return True
    if j > i:
        return False
    return s["mask"] == "causal" or i - j < s["window"] or (s["mask"] == "keep" and j < s["keep"])


def reference(tokens, s):
    T, D, C = len(tokens), s["dim"], 8
    x = [[number(s["seed"], hash_of(t), c) for c in range(C)] for t in tokens]
    if s["positions"] == "sinusoid":  # Vaswani et al. 2017
        for t, c in itertools.product(range(T), range(C)):
            angle = t / 10000 ** (2 * (c // 2) / C)
            x[t][c] += math.sin(angle) if c % 2 == 0 else math.cos(angle)
    heads = []
    for h in range(s["heads"]):
        role = {"q": 0, "k": 0 if s["keys"] == "queries" else 1, "v": 2, "g": 3}
        w = {n: [[number(s["seed"], 16 * h + r + 1, C * d + c) / math.sqrt(C) for c in range(C)]
                 for d in range(D)] for n, r in role.items()}
        made = {n: [[sum(a * b for a, b in zip(line, row)) for line in w[n]] for row in x] for n in role}
        for n in "qk":
            for t in range(T):
                if s["norm"] != "none":
                    square = sum(a * a for a in made[n][t])
                    made[n][t] = [a / math.sqrt((square / D if s["norm"] == "rms" else square) + 1e-6)
                                  for a in made[n][t]]
        scale = {"root": D**-0.5, "none": 1, "own": s["factor"]}[s["scale"]] / s["temperature"]
        scores, weights, sinks, z = [], [], [], []
        for i in range(T):
            row = []
            for j in range(T):
                # StreamingLLM: towards the kept keys a query stands at most where the window begins
                place = min(i, s["keep"] + s["window"] - 1) if s["mask"] == "keep" and j < s["keep"] else i
                q, k = made["q"][i], made["k"][j]
                if s["positions"] == "rope":
                    q, k = rotate(q, place), rotate(k, j)
                a = scale * sum(u * w for u, w in zip(q, k))
                if s["cap"] > 0:
                    a = s["cap"] * math.tanh(a / s["cap"])
                if s["positions"] == "alibi":
                    a -= alibi(s["heads"])[h] * abs(place - j)
                row.append(a)
            seen = [sees(s, i, j) for j in range(T)]
            if s["normal"] == "sigmoid":
                p, sink = [1 / (1 + math.exp(-a)) if n else 0 for a, n in zip(row, seen)], 0
            else:
                extra = {"none": 0, "zero": 1, "learned": math.exp(s["logit"])}[s["sink"]]
                total = extra + sum(math.exp(a) for a, n in zip(row, seen) if n)
                p, sink = [math.exp(a) / total if n else 0 for a, n in zip(row, seen)], extra / total
            scores.append(row), weights.append(p), sinks.append(sink)
            z.append([sum(p[j] * made["v"][j][d] for j in range(T)) for d in range(D)])
        gate = [[1 / (1 + math.exp(-(g + s["bias"]))) for g in row] for row in made["g"]]
        out = z if s["gate"] == "none" else [[a * g for a, g in zip(*rows)] for rows in zip(z, gate)]
        heads.append({"scores": scores, "weights": weights, "sink": sinks, "z": z, "out": out,
                      "v": made["v"], "gate": gate if s["gate"] == "sigmoid" else None})
    return {"x": x, "heads": heads}


def facts(tokens, s, row=-1, head=0):
    """The largest weight, its place, e to the entropy, the sum, the length of the result."""
    h = reference(tokens, {**DEFAULTS, **s})["heads"][head]
    p = h["weights"][row]
    total = sum(p)
    spread = math.exp(-sum(a / total * math.log(a / total) for a in p if a > 0))
    return max(p), p.index(max(p)), spread, total, math.hypot(*h["out"][row])


def flat(x):
    return [y for part in x for y in flat(part)] if isinstance(x, list) else [x]


def fig(x, digits=2):
    return f"{0 if abs(x) < 0.5 * 10**-digits else x:.{digits}f}".replace("-", "−")


# ------------------------------------------------------------------------------------------- on the page
def choose(page, control, value):
    """As a person would: a choice by its letter keys is the browser's; here its events."""
    page.run(f"""(() => {{ const e = document.querySelector('#play-{control}'); e.focus();
        e.value = {json.dumps(str(value))}; e.dispatchEvent(new Event('input', {{bubbles: true}}));
        e.dispatchEvent(new Event('change', {{bubbles: true}})); }})()""")


def said(page):
    return page.text(".play-said")


def cells(page, matrix):
    return page.run(f"[...document.querySelectorAll('{matrix} .cells tbody tr')].map((r) => "
                    "[...r.querySelectorAll('td')].map((c) => c.textContent))")


def begin(page, width=1280, lang="en"):
    page.begin(width, "#view=play", lang)
    page.wait("document.querySelectorAll('.step-sum .cells td').length > 0 && "
              "!!document.querySelector('.step-sum .cells td').style.backgroundColor")


@test
def every_control_by_the_formulas(page, server):
    begin(page)
    equal(page.run(f"import('{MODULE}').then((m) => m.defaults)"), DEFAULTS, "the defaults")
    cases = [{}]
    for control, values in {**CHOICES, **RANGES}.items():
        need = {"factor": {"scale": "own"}, "window": {"mask": "window"}, "keep": {"mask": "keep"},
                "logit": {"sink": "learned"}, "bias": {"gate": "sigmoid"}}.get(control, {})
        cases += [{**need, control: value} for value in values]
    cases += [{"positions": "alibi", "heads": n} for n in RANGES["heads"]]
    cases += [{"positions": p, "mask": "keep", "window": 2, "keep": 2} for p in ("rope", "alibi")]
    draw = random.Random(20)
    cases += [{c: draw.choice(v) for c, v in {**CHOICES, **RANGES}.items()} for _ in range(60)]
    cases = [{**DEFAULTS, **c} for c in cases]
    texts = [ENGLISH if i % 2 == 0 else CHINESE for i in range(len(cases))]
    got = page.run(f"import('{MODULE}').then((m) => {json.dumps([texts, cases])}[0].map((t, i) => "
                   f"m.attend(t, {json.dumps(cases)}[i])))")
    worst = 0
    for tokens, s, there in zip(texts, cases, got):
        here = reference(tokens, s)
        equal(there["x"], here["x"], f"vectors of {s}") if s["positions"] != "sinusoid" else None
        for h, (a, b) in enumerate(zip(there["heads"], here["heads"])):
            a["scores"] = [[c["score"] for c in row] for row in a["steps"]]
            equal([[c["seen"] for c in row] for row in a["steps"]],
                  [[sees(s, i, j) for j in range(len(tokens))] for i in range(len(tokens))], f"mask of {s}")
            expect((a["gate"] is None) == (b["gate"] is None), "a gate where there is one")
            for name in b:
                for x, y in zip(flat(a[name] or []), flat(b[name] or []), strict=True):
                    off = abs(x - y) / max(1, abs(y))
                    worst = max(worst, off)
                    expect(off <= 1e-12, f"{name} of head {h}: {x}, by the formula {y}; {s}")
    print(f"{len(cases)} settings, largest deviation {worst:.1e}")


@test
def tokens_of_both_languages(page, server):
    begin(page)
    wanted = {"The cat's 3 mats, twice!": ["The", "cat's", "3", "mats", ",", "twice", "!"],
              "猫坐在3号垫子。OK": list("猫坐在") + ["3"] + list("号垫子。") + ["OK"],
              "  ": [], "naïve café": ["naïve", "café"], "<b>x</b>": ["<", "b", ">", "x", "<", "/", "b", ">"]}
    got = page.run(f"import('{MODULE}').then((m) => {json.dumps(list(wanted))}.map(m.tokensOf))")
    equal(got, list(wanted.values()))


@test
def what_is_shown_is_what_was_computed(page, server):
    begin(page)
    equal(page.run("document.querySelector('#play-text').value"), " ".join(ENGLISH), "a sentence is there")
    h = reference(ENGLISH, DEFAULTS)["heads"][0]
    shown = [[fig(x) if j <= i else "" for j, x in enumerate(row)] for i, row in enumerate(h["scores"])]
    equal(cells(page, ".step-scores"), shown, "scores")
    shown = [[fig(x) if j <= i else "" for j, x in enumerate(row)] for i, row in enumerate(h["weights"])]
    equal(cells(page, ".step-weights"), shown, "weights")
    equal(cells(page, ".step-sum .matrix:first-child"), [[fig(x) for x in row] for row in h["z"]], "z")
    # The query is the last token; the sum is written out with its numbers.
    terms = " + ".join(f"{fig(p)} · v({t})" for p, t in zip(h["weights"][5], ENGLISH))
    lines = page.texts("#sum_lines > div")
    equal(lines[0], f"z(mat) = {terms}")
    equal(lines[-1], f"= ({', '.join(fig(x) for x in h['z'][5])})")
    top = h["weights"][5].index(max(h["weights"][5]))
    expect(page.text("#weight_lines").startswith(f"p({ENGLISH[top]}) = exp({fig(h['scores'][5][top])}) / "),
           page.text("#weight_lines"))
    page.run("document.querySelector('.step-scores .twin').open = true")
    page.wait("document.querySelectorAll('.step-scores .twin tbody tr').length === 6")
    twin = page.run("[...document.querySelectorAll('.step-scores .twin tbody tr')].map((r) => "
                    "[...r.querySelectorAll('td')].map((c) => c.textContent))")
    equal(twin, [[fig(x, 6) if j <= i else "not seen" for j, x in enumerate(row)]
                 for i, row in enumerate(h["scores"])], "the table beside the picture")
    most, at, *_ = facts(ENGLISH, {})
    equal(said(page), f"“mat” sees 6 tokens; its largest weight, {fig(most)}, lies on “{ENGLISH[at]}”. ")


@test
def a_control_says_what_it_did(page, server):
    begin(page)
    now = {}
    for control, value, first in [
            ("scale", "none", "Scores are the bare products q·k. "),
            ("scale", "root", "Scores are divided by √4 = 2.00. "),
            ("positions", "alibi", "Each step of distance costs 0.0625 of score in this head. "),
            ("mask", "window", "“mat” sees 3 of 6 tokens. "),
            ("mask", "keep", "“mat” sees 4 of 6 tokens. "),
            ("sink", "zero", None), ("gate", "sigmoid", None), ("bias", "-4", None),
            ("normal", "sigmoid", None), ("temperature", "0.5", "Scores are divided by 0.50. "),
            ("cap", "2", None), ("norm", "rms", None)]:
        a = facts(ENGLISH, now)
        now[control] = float(value) if re.fullmatch(r"[-\d.]+", value) else value
        choose(page, control, value)
        b = facts(ENGLISH, now)
        text = said(page)
        if first:
            expect(text.startswith(first), control, value, text)
        if a[1] == b[1] and abs(a[0] - b[0]) >= 0.005:
            expect(f"The largest weight of “mat” went from {fig(a[0])} to {fig(b[0])}. " in text, text)
        elif a[1] != b[1]:
            was, now_on = ENGLISH[a[1]], ENGLISH[b[1]]
            expect(f"was {fig(a[0])} on “{was}”; now it is {fig(b[0])} on “{now_on}”" in text,
                   text)
        if abs(a[3] - b[3]) >= 0.005:
            expect(f"Their sum went from {fig(a[3])} to {fig(b[3])}. " in text, control, text)
        if abs(a[4] - b[4]) >= 0.005:
            expect(f"what it writes went from {fig(a[4])} to {fig(b[4])}. " in text, control, text)
    equal(page.run("document.querySelector('#play-sink').closest('.control').hidden"), True,
          "a sink is the softmax's")
    page.press(".play-reset")
    equal(page.run("document.querySelector('#play-normal').value"), "softmax", "Start over")


@test
def the_questions(page, server):
    begin(page)
    page.press(".ask-scale")
    flat_scores = [flat(reference(ENGLISH, {**DEFAULTS, "seed": 93, "heads": 1, "dim": 8, "mask": "full",
                                             "scale": s})
                        ["heads"][0]["scores"]) for s in ("none", "root")]
    spread = []
    for scores in flat_scores:
        mean = sum(scores) / len(scores)
        spread.append(fig(math.sqrt(sum((x - mean)**2 for x in scores) / len(scores))))
    expect(f"the deviation of the scores goes from {spread[0]} to {spread[1]}. " in said(page), said(page))
    page.press(".ask-mask")
    expect("the first token reads 6 tokens, also those that come later; with it 1:" in said(page), said(page))
    page.press(".ask-sink")
    idle = {**DEFAULTS, "heads": 1, "scale": "own", "factor": 0.05, "logit": 4}
    blur = [fig(sum(math.hypot(*z) for z in reference(ENGLISH, {**idle, "sink": s})["heads"][0]["z"]) / 6)
            for s in ("none", "learned")]
    expect(f"a blur of length {blur[0]} on average. A sink takes most of that: {blur[1]}. " in said(page),
           said(page))
    equal(page.run("document.querySelector('.step-weights .cells thead th:last-child').textContent"), "sink")
    page.press(".ask-rope")
    same = {**DEFAULTS, "heads": 1, "dim": 8, "keys": "queries", "mask": "full", "positions": "rope"}
    row = reference(["go"] * 8, same)["heads"][0]["scores"][0]
    least = min(row)
    expect(f"{fig(row[0])} at distance 0, least at {row.index(least)} with {fig(least)};" in said(page),
           said(page))
    expect(least < row[0] - 0.1, "it swings")


@test
def by_keyboard_alone(page, server):
    begin(page)
    page.run("document.querySelector('#play-text').focus()")
    seen = []
    for _ in range(70):
        page.key("Tab")
        here = page.run("""(() => { const e = document.activeElement;
            if (!e || e === document.body) return null;
            const box = e.matches('.sr') ? e.nextElementSibling : e, s = getComputedStyle(box);
            return [e.id || e.className || e.tagName, e.closest('.matrix') ? 'matrix' : e.name || '',
                    s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2]; })()""")
        if not here:
            break
        seen.append(here)
    reached = {s[0] for s in seen} | {s[1] for s in seen}
    for want in ("play-heads", "play-temperature", "play-mask", "play-gate", "play-row", "play-head",
                 "matrix"):
        expect(want in reached, f"Tab reaches {want}:", reached)
    equal([s for s in seen if not s[2]], [], "where the focus cannot be seen")
    page.run("document.querySelector('#play-temperature').focus()")
    page.key("ArrowRight")
    expect(said(page).startswith("Scores are divided by 1.10. "), said(page))
    page.key("Home")
    expect(said(page).startswith("Scores are divided by 0.10. "), said(page))
    page.press(".play-reset")
    page.run("document.querySelector('.step-weights td[tabindex=\"0\"]').focus()")
    page.key("ArrowUp")
    page.key("ArrowUp")
    page.key("ArrowUp")
    equal(page.run("[...document.querySelectorAll('.cells tbody tr.on')].map((r) => r.rowIndex - 1)"),
          [2] * 7, "the row in every picture")
    equal(page.text("#sum_lines > div")[:8], "z(sat) =")
    equal(page.run("document.querySelector('[name=play-row]:checked').value"), "2")
    page.run("document.querySelector('[name=play-row]:checked').focus()")
    page.key("ArrowLeft")
    equal(page.text("#sum_lines > div")[:8], "z(cat) =")
    page.run("document.querySelector('[name=play-head]:checked').focus()")
    page.key("ArrowRight")
    most, at, *_ = facts(ENGLISH, {}, 1, 1)
    equal(said(page), f"“cat” sees 2 tokens; its largest weight, {fig(most)}, lies on “{ENGLISH[at]}”. ")


@test
def by_mouse_and_with_other_sentences(page, server):
    begin(page)
    page.press(".step-scores tbody tr:nth-child(4) td:nth-child(4)")
    expect(page.text("#score_lines").startswith("q(on) · k(sat) = "), page.text("#score_lines"))
    page.press(".step-scores tbody tr:nth-child(2) td:nth-child(7)")
    expect("“cat” does not see “mat”" in page.text("#score_lines"), page.text("#score_lines"))
    page.press(".chip:nth-of-type(5) span")
    equal(page.text("#sum_lines > div")[:8], "z(the) =")
    page.run("(() => { const e = document.querySelector('#play-text'); e.focus(); e.select(); })()")
    page.type("猫猫<img src=x onerror=alert(1)>")
    equal(page.texts(".step-scores tbody th"),
          ["猫₁", "猫₂", "<", "img", "src", "=₆", "x", "onerror", "=₉", "alert", "(", "1"])
    expect(not page.run("document.querySelector('.play-top .hint').hidden"), "the rest is left out")
    equal(page.run("document.querySelectorAll('#view-play img').length"), 0)
    page.run("document.querySelector('#play-text').select()")
    page.call("Input.imeSetComposition", {"text": "nihao", "selectionStart": 5, "selectionEnd": 5})
    equal(len(page.texts(".step-scores tbody th")), 12, "a composition that is not finished changes nothing")
    page.type("你好")
    equal(page.texts(".step-scores tbody th"), ["你", "好"])
    page.run("(() => { const e = document.querySelector('#play-text'); e.value = ''; "
             "e.dispatchEvent(new Event('input')); })()")
    equal(said(page), "Type a sentence, and its tokens appear.")
    equal(page.run("document.querySelector('.steps').hidden"), True)
    choose(page, "mask", "full")
    page.press(".ask-mask")
    equal(len(page.texts(".step-scores tbody th")), 6, "a question brings its sentence")
    choose(page, "dim", 8)
    page.press("#tab-monitor")
    page.press("#tab-play")
    equal([page.run("document.querySelector('#play-dim').value"), len(page.texts(".step-scores tbody th"))],
          ["8", 6], "nothing is lost on the way to another view and back")


@test
def languages_widths_and_themes(page, server):
    for lang in ("en", "zh"):
        begin(page, 1280, lang)
        for width, theme in itertools.product((1280, 390, 320), ("light", "dark")):
            page.size(width, 800)
            page.theme(theme)
            page.press(".ask-sink")
            expect(page.run("(({scrollWidth, clientWidth}) => scrollWidth <= clientWidth)("
                            "document.querySelector('#view-play'))"), f"{width} {lang}: too wide")
            text = said(page)
            expect({"en": "sink", "zh": "注意力汇"}[lang] in text, text)
            expect(not re.search(r"play_|\{|undefined|NaN", page.text("#view-play")), "words")
            page.picture_in(f"play-{lang}-{width}-{theme}")
        page.theme("light")
    begin(page, 1280, "zh")
    most, at, *_ = facts(CHINESE, {})
    equal(said(page), f"“上”看得到 7 个词元，最大的权重 {fig(most)} 落在“{CHINESE[at]}”上。")
    page.press("#lang")
    page.wait("document.querySelector('#play-text').value === 'The cat sat on the mat'")
    expect(said(page).startswith("“mat” sees 6 tokens"), said(page))


@test
def the_panel_by_keyboard_and_mouse(page, server):
    walk(page, "play", lambda width, lang: begin(page, width, lang))


@test
def nothing_was_complained_about(page, server):
    complaints_of(page)


if __name__ == "__main__":
    sys.exit(run("The page's small attention, in a browser."))
