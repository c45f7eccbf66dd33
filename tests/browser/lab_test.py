#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page's experiments: the guide's sentences, what was measured, and runs with another seed, whose values
are those of `rapt lab`.

  tests/browser/lab_test.py [--rapt build/rapt] [--only PATTERN]
"""
import json
import sys

import page_client
from hostile import from_server, nothing_foreign
from walk import walk
from page_client import equal, expect, run, test
from server import rapt_json, rapt_text

SLOW = "residual"  # a quarter of a minute, most of it training
DONE = "!!document.querySelector('.lab-compared') && !document.querySelector('.lab-working')"
WORKING = "document.querySelector('.lab-main:not([aria-busy]) .lab-working .left')?.textContent.includes('%')"


def at(page, question, lang="en", width=1280):
    page.begin(width=width, hash=f"#view=lab&at={question}", lang=lang)
    page.wait(f"document.querySelector('.lab-topics [aria-current]')?.dataset.question === '{question}' &&"
              " !!document.querySelector('.lab-main:not([aria-busy]) .lab-says')")


def compute(page, seed, effort):
    """What is typed and chosen, and a click on Compute."""
    page.run(f"document.querySelector('.lab-compared')?.remove()")  # of a run before
    page.run(f"document.querySelector('[name=lab-effort][value={effort}]').click()")
    page.run("(() => { const s = document.querySelector('#lab-seed'); s.focus(); s.select(); })()")
    page.type(str(seed))
    page.press(".lab-form .main")


def asked(page, path):
    """What the page's server says."""
    return page.run(f"fetch({json.dumps(path)}).then((r) => r.json())")


def nothing_runs(page):
    return not any(r["running"] for r in asked(page, "/v1/runs")["data"])


def compared(page):
    """Each finding of the table: name, number as it was measured, as it is shown, whether it holds."""
    return page.run("""[...document.querySelectorAll('.lab-compared tbody tr')].map((r) => [
        r.cells[0].textContent, Number(r.cells[3].dataset.measured), r.cells[3].textContent,
        r.cells[4].textContent[0] === '✓'])""")


def of_command_line(args, name, seed, effort):
    found = rapt_json(args, "lab", name, "--seed", seed, "--effort", effort)["facts"]["findings"]
    return [[f["what"], f["measured"], f["holds"]] for f in found]


# ------------------------------------------------------------------------------------------------ sentences
@test
def the_sentences_are_those_of_the_guide(page, server):
    page.begin()
    lab = asked(page, "/v1/lab")
    count = sum(len(t["questions"]) for t in lab["topics"])
    for lang in ("en", "zh"):
        page.begin(hash="#view=lab", lang=lang)
        page.wait("!!document.querySelector('.lab-main .document')")
        said = page.run("[...document.querySelectorAll('.lab-topics button')].map((b) => [b.dataset.question,"
                        " b.lastElementChild.textContent])")
        text = lambda t: t if isinstance(t, str) else t[lang]
        equal(said, [[q["id"], text(q["says"])] for t in lab["topics"] for q in t["questions"]])
        equal(len(said), count)
        equal(page.run("document.querySelectorAll('.lab-topics details').length"), len(lab["topics"]))
        expect(page.run("document.querySelectorAll('.lab-topics details[open]').length") == 1, "one is open")
        # Each chosen one says its sentence, its mark and why, as the terminal does.
        terminal = rapt_text(page.args, "guide", "norms", "--lang", lang).replace("\n", "").replace(" ", "")
        for q in lab["topics"][3]["questions"]:
            page.run(f"document.querySelector('[data-question=\"{q['id']}\"]').click()")
            mark = page.text(".lab-mark").split(" ", 1)
            equal(mark[1], text(lab["marks"][q["mark"]]))
            equal(mark[0], {"right": "✓", "imprecise": "≈", "wrong": "✗"}[q["mark"]])
            shown = page.text(".lab-says").strip("“”")
            equal([shown, page.text(".lab-why"), page.text(".lab-command code")],
                  [text(q["says"]), text(q["why"]).replace("`", ""), q["command"]])
            for words in (shown, text(q["why"])):
                expect(words.replace(" ", "") in terminal, words, "is not in rapt guide norms")
        equal(page.run("document.documentElement.scrollWidth"), 1280)


@test
def what_was_measured_stands_beside(page, server):
    at(page, "norms.place")
    parts = json.loads(rapt_text(page.args, "guide", "norms", "--json"))["parts"]
    begin = next(i for i, p in enumerate(parts) if p.get("text") == "Command: `rapt lab norm-place`")
    chart, table = parts[begin + 1:begin + 3]
    equal(page.text(".lab-main .document figcaption"), chart["title"])
    equal(page.run("[...document.querySelectorAll('.lab-main .document figure:last-child tbody tr')].map("
                   "(r) => [...r.cells].map((c) => c.textContent))"),
          [[str(c) for c in row] for row in table["rows"]])
    page.run("document.querySelector('.lab-main .document details summary').click()")
    page.wait("document.querySelectorAll('.lab-main .document details tbody tr').length > 0")
    equal(page.run("document.querySelectorAll('.lab-main .document details tbody tr').length"),
          sum(len(c["x"]) for c in chart["curves"]), "the figure's table")
    page.picture_in("lab-question")
    # What reads a model's files is not offered, and says why.
    at(page, "sinks.norm")
    expect("in a terminal" in page.text(".lab-run .hint"), page.text(".lab-run"))
    equal(page.run("document.querySelectorAll('.lab-form').length"), 0)


@test
def search_and_marks(page, server):
    at(page, "attention.alpha")
    page.run("document.querySelector('#lab-search').focus()")
    page.type("warm-up")
    found = page.texts(".lab-topics button > span:last-child")
    expect(0 < len(found) < 10, found)
    expect(any("warm-up" in f for f in found), found)
    equal(page.text(".lab-side [role=status]"), f"{len(found)} of 97 sentences")
    page.key("ArrowDown")
    first = page.run("document.activeElement.dataset.question")
    page.key("ArrowDown")
    expect(page.run("document.activeElement.dataset.question") != first, "arrows go on")
    page.key("ArrowUp")
    page.key("Enter")
    page.wait(f"location.hash.includes('at={first}')")
    page.run("(() => { const s = document.querySelector('#lab-search'); s.value = 'no such words at all';"
             " s.dispatchEvent(new Event('input')); })()")
    equal(page.texts(".lab-topics button"), [])
    equal(page.text(".lab-side [role=status]"), "0 of 97 sentences")
    page.run("(() => { const s = document.querySelector('#lab-search'); s.value = '';"
             " s.dispatchEvent(new Event('input')); })()")
    page.press(".lab-chip.lab-wrong")
    equal(page.run("document.querySelectorAll('.lab-topics button').length"),
          page.run("document.querySelectorAll('.lab-topics button .lab-wrong').length"))
    equal(page.text(".lab-chip.lab-wrong"), "✗ wrong · 17")
    equal(page.run("document.querySelector('.lab-chip.lab-wrong').getAttribute('aria-pressed')"), "true")


# ------------------------------------------------------------------------------------------------ runs
@test
def a_run_by_mouse_has_the_values_of_the_terminal(page, server):
    at(page, "biases.key")
    equal(page.run("document.querySelector('#lab-seed').value"), "3", "another one than the stored")
    compute(page, 11, "full")
    page.wait(DONE)
    got = compared(page)
    equal([[g[0], g[1], g[3]] for g in got], of_command_line(page.args, "key-bias", 11, 1))
    stored = asked(page, "/v1/lab/experiments/key-bias")["results"]
    text = lambda t: t if isinstance(t, str) else t["en"]
    before = page.texts(".lab-compared td:nth-child(3)")
    equal(before, ["\n".join(text(r["findings"][i]["shown"]) for r in stored) for i in range(len(got))])
    result = asked(page, f"/v1/runs/{asked(page, '/v1/runs')['data'][0]['id']}?once=1")[-2]
    equal([g[2] for g in got], [text(f["shown"]) for f in result["findings"]])
    held = sum(f["holds"] for f in result["findings"])
    expect(page.run("document.querySelector('.lab-run').textContent").find(
        f"{held} of {len(got)} findings hold.") >= 0, "how many hold")
    expect(page.text(".lab-verdict") == "Verdict: " + text(result["verdict"]).replace("`", ""), "the verdict")
    expect(page.run("document.querySelectorAll('.lab-run .document figure').length") > 0, "its figure")
    expect("key-bias" in page.text("#live"), "said to those who listen")
    page.picture_in("lab-result")


@test
def a_run_by_keyboard_in_chinese_on_a_phone(page, server):
    page.begin(width=390, hash="#view=lab", lang="zh")
    page.wait("!!document.querySelector('.lab-topics [aria-current]')")
    equal(page.run("getComputedStyle(document.querySelector('.lab-main')).display"), "none", "the list first")
    page.run("document.querySelector('#tab-lab').focus()")
    seen = []
    for _ in range(40):
        page.key("Tab")
        seen.append(page.run("document.activeElement.id || document.activeElement.dataset.question || "
                             "document.activeElement.tagName"))
        if seen[-1] == "attention.alpha":
            break
    expect(seen[-1] == "attention.alpha" and "lab-search" in seen, seen)
    page.key("Enter")
    page.wait("document.querySelectorAll('.lab-main .document').length > 0")
    equal(page.run("[getComputedStyle(document.querySelector('.lab-side')).display,"
                   " document.activeElement.className]"), ["none", "lab-main"])
    for _ in range(20):
        page.key("Tab")
        if page.run("document.activeElement.id") == "lab-seed":
            break
    page.type("x")  # behind the 3
    page.key("Enter")
    page.wait("!document.querySelector('#lab-seed-wrong').hidden")
    equal(page.run("[document.activeElement.id, document.activeElement.getAttribute('aria-invalid')]"),
          ["lab-seed", "true"])
    expect("整数" in page.text("#lab-seed-wrong"), page.text("#lab-seed-wrong"))
    equal(nothing_runs(page), True)
    page.run("document.activeElement.select()")
    page.type("3")
    page.key("Enter")
    page.wait(DONE)
    equal([[g[1], g[3]] for g in compared(page)],
          [f[1:] for f in of_command_line(page.args, "softmax", 3, 1)])
    page.run("document.querySelector('.lab-compared').scrollIntoView()")
    equal(page.run("document.documentElement.scrollWidth"), 390, "no scrolling to the side")
    equal(page.run("document.querySelector('.lab-compared').scrollWidth <= 390"), True, "the table neither")
    page.picture_in("lab-phone")
    words = page.run("document.querySelector('.lab-main').innerText")
    for english in ("Compute", "Seed", "holds", "Verdict", "Stored", "Expected"):
        expect(english not in words, english, "stayed English")
    page.run("document.querySelector('.lab-back').click()")
    equal(page.run("document.activeElement.dataset.question"), "attention.alpha", "back where one was")
    for width in (320, 390):
        page.size(width, 800)
        equal(page.run("document.documentElement.scrollWidth"), width)


@test
def a_question_chosen_twice_is_drawn_once(page, server):
    """What came for the first choice does not take the second one's field away while one types."""
    at(page, "attention.alpha")
    page.run("""(() => { window.ownFetch = window.fetch; window.later = [];
      window.fetch = (path, o = {}) => !path.startsWith('/v1/lab/questions/') ? ownFetch(path, o) :
        new Promise((done) => later.push(() => done(ownFetch(path, o)))); })()""")
    for _ in range(2):
        page.run("document.querySelector('[data-question=\"attention.alpha\"]').click()")
    page.wait("later.length === 2")
    page.run("later[1]()")
    page.wait("!!document.querySelector('.lab-main:not([aria-busy]) .document')")
    page.run("document.querySelector('#lab-seed').focus(); window.there = document.activeElement; 0")
    page.run("later[0](), new Promise((done) => setTimeout(done, 0))")
    page.run("ownFetch('/v1/lab/questions/attention.alpha').then((r) => r.text())")
    equal(page.run("document.activeElement === there && there.isConnected"), True, "the field is still there")
    page.size(1000, 800)  # another width: everything is drawn anew
    page.wait("!there.isConnected")
    equal(page.run("document.activeElement.id"), "lab-seed", "and has the focus")
    page.run("window.fetch = ownFetch")
    page.size(1280, 800)


@test
def quick_runs_tell_how_far_they_are(page, server):
    at(page, "blocks.moe")
    page.run("""(() => { window.told = []; new MutationObserver(() => {
        const b = document.querySelector('.lab-working progress');
        if (b && b.hasAttribute('value')) told.push([b.value, document.querySelector('.left').textContent]);
      }).observe(document.querySelector('.lab-main'), {subtree: true, childList: true, characterData: true,
                                                       attributes: true}); })()""")
    compute(page, 4, "quick")
    page.wait(DONE)
    told = page.run("told")
    expect(told and all(0 <= t[0] <= 1 for t in told), told)
    expect(any("Seed 4, quick" in t[1] and "%" in t[1] for t in told), told)
    got = compared(page)
    equal([[g[0], g[1], g[3]] for g in got], of_command_line(page.args, "moe", 4, 0.1))
    expect("a tenth of them" in page.text(".lab-run"), "quick ones say what they are worth")


@test
def stop_and_one_at_a_time(page, server):
    at(page, "blocks.residual")
    compute(page, 5, "full")
    page.wait(WORKING)
    equal(page.run("document.activeElement.className"), "stop", "Stop is at hand")
    page.picture_in("lab-working")
    # Another question says what runs, and leads there.
    page.run("document.querySelector('[data-question=\"attention.alpha\"]').click()")
    page.wait("!!document.querySelector('.lab-main:not([aria-busy]) .lab-busy')")
    expect(f"“{SLOW}” with seed 5" in page.text(".lab-busy"), page.text(".lab-busy"))
    equal(page.run("document.querySelectorAll('.lab-form').length"), 0)
    page.press(".lab-busy button")
    page.wait(WORKING)
    equal(page.text(".lab-command code"), "rapt lab residual")
    page.press(".lab-working .stop")
    page.wait("document.querySelector('.lab-run').textContent.includes('Stopped before there was a result')")
    expect(nothing_runs(page), "the server still works")
    equal(page.run("document.querySelectorAll('.lab-form').length"), 1, "it can be run again")


@test
def a_reload_finds_the_run_again(page, server):
    at(page, "blocks.residual")
    compute(page, 6, "full")
    page.wait(WORKING)
    page.reload()
    page.wait(WORKING)  # the address names the question
    expect("Seed 6, full" in page.text(".lab-working .left"), page.text(".lab-working .left"))
    # Somebody else who comes: whatever runs is shown first.
    page.begin(hash="#view=lab")
    page.wait(WORKING)
    equal(page.text(".lab-command code"), "rapt lab residual")
    page.press(".lab-working .stop")
    page.wait("!!document.querySelector('.lab-form')")
    # One that ended is still there.
    at(page, "blocks.moe")
    page.wait(DONE)
    equal(len(compared(page)), len(of_command_line(page.args, "moe", 4, 0.1)))


@test
def a_training_comes_first(page, server):
    page.begin()
    id = page.run("""fetch('/v1/train/run', {method: 'POST', headers: {'Content-Type': 'application/json'},
        body: JSON.stringify({preset: 'gpt-char', settings: ['width=32', 'layers=1'], steps: 100000,
                              batch: 1, length: 16})}).then((r) => r.json())""")["id"]
    at(page, "attention.alpha")
    expect("A training runs now" in page.text(".lab-form"), page.text(".lab-form"))
    page.press(".lab-form .hint button")
    page.wait("!document.querySelector('#view-train').hidden")
    page.run(f"fetch('/v1/runs/{id}', {{method: 'DELETE'}})")
    page.run("document.querySelector('#tab-lab').click()")
    page.wait("!!document.querySelector('.lab-form') && !document.querySelector('.lab-form .hint')")


@test
def errors_in_plain_words(page, server):
    at(page, "attention.alpha")
    page.run("""(() => { window.ownFetch = window.fetch; window.busy = () => new Response(
        JSON.stringify({error: {message: 'busy', code: 'lab_busy'}}),
        {status: 429, headers: {'Content-Type': 'application/json'}});
      window.fetch = async (path, o = {}) => o.method === 'POST' ? busy() : ownFetch(path, o); })()""")
    compute(page, 3, "full")
    page.wait("!!document.querySelector('.lab-form .error[role=alert]:not([hidden])')")
    equal(page.text(".lab-form .error:not([hidden])"),
          "Something else is being computed, one thing at a time. Try again when it is done.")
    page.run("window.fetch = (path, o) => Promise.reject(new TypeError('failed'))")
    page.press(".lab-form .main")
    page.wait("document.querySelector('.lab-form .error:not([hidden])')?.textContent"
              ".includes('cannot be reached')")
    page.run("document.querySelector('[data-question=\"norms.none\"]').click()")
    page.wait("!!document.querySelector('.lab-main > .error')")
    page.run("window.fetch = ownFetch")
    page.press(".lab-main > .error button")
    page.wait("!!document.querySelector('.lab-main .document')")


@test
def the_view_comes_and_goes(page, server):
    at(page, "gates.best", lang="zh")
    equal(page.text("#tab-lab"), "实验")
    chinese = page.text(".lab-says")
    page.run("document.querySelector('#lang').click()")
    page.wait("document.querySelector('.lab-says').textContent.includes('after attention (G1)')")
    expect(chinese != page.text(".lab-says"), chinese)
    equal(page.text(".lab-main .document figcaption").isascii(), True, "figures, too")
    page.run("document.querySelector('#tab-monitor').click()")
    page.wait("document.querySelector('#view-lab').hidden")
    expect("at=" not in page.run("location.hash"), page.run("location.hash"))
    page.run("document.querySelector('#tab-lab').click()")
    page.wait("location.hash.includes('at=gates.best')")
    equal(page.run("[...document.querySelectorAll('#view-lab [id]')].map((e) => e.id).filter((id, i, all) => "
                   "all.indexOf(id) !== i)"), [], "ids twice")
    for theme in ("light", "dark"):
        page.theme(theme)
        page.picture_in(f"lab-{theme}")


@test
def hostile_sentences_and_results_stay_text(page, server):
    page.begin(hash="#view=play")
    page.wait("document.querySelector('#view-play')?.hidden === false")
    from_server(page, "/v1/(lab|runs)", "id kind mark experiment how code object")
    page.run("document.querySelector('#tab-lab').click()")
    page.wait("document.querySelectorAll('.lab-topics button').length > 90")
    for i in range(0, 97, 4):
        page.run(f"document.querySelectorAll('.lab-topics button')[{i}].click()")
        page.wait("!!document.querySelector('.lab-main:not([aria-busy]) .lab-says')")
        nothing_foreign(page, f"sentence {i}")
    # A result, with hostile words in every place.
    page.run("document.querySelector('[data-question=\"biases.key\"]').click()")
    page.wait("!!document.querySelector('#lab-seed')")
    compute(page, 13, "quick")
    page.wait(DONE)
    nothing_foreign(page, "a result")
    expect(page.run("said") >= 500, page.run("said"))
    page.run("window.fetch = ownFetch")


@test
def the_panel_by_keyboard_and_mouse(page, server):
    def begin(width, lang):
        at(page, "norms.place", lang, width)
        page.wait("document.querySelectorAll('.lab-main .document').length > 0")

    walk(page, "lab", begin, leave=".lab-form .main, .lab-back")


@test
def nothing_was_complained_about(page, server):
    page_client.nothing_was_complained_about(page)


if __name__ == "__main__":
    sys.exit(run(__doc__.split("\n")[0], ["--lab"], lambda args: ["default"]))
