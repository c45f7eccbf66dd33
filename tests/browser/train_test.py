# SPDX-License-Identifier: Apache-2.0
# The page's view of trainings in a real browser: train_test.py --rapt PROGRAM. A toy of two layers is trained
# from the page under `rapt serve --lab`, and one by `rapt train --watch`. Exit code 77: there is no browser.
# RAPT_PICTURES=FOLDER: what it looks like, too.
import json
import pathlib
import signal
import subprocess
import sys
import tempfile

from page_client import nothing_was_complained_about as complaints_of
from hostile import from_server, nothing_foreign
from walk import walk
from page_client import Page, equal, expect, run, serving, test

SMALL = "width=32 layers=2 heads=4 kv_heads=4 head_dim=8 ffn=64"
TEXT = serving.SOURCE / "rapt" / "lab" / "text" / "own.txt"


def put(page, **values):
    """Into the fields of the form, as somebody types there."""
    for name, value in values.items():
        page.run(f"""(() => {{ const e = document.querySelector('#train-{name}');
            e.value = {json.dumps(value)};
            const kind = e.tagName === 'SELECT' ? 'change' : 'input';
            e.dispatchEvent(new Event(kind, {{bubbles: true}})); }})()""")


def opened(page, width=1280, lang="en"):
    page.begin(width, "#view=train", lang)
    page.wait("!!document.querySelector('#train-start')")
    page.wait("document.querySelector('#train-line').textContent !== ''")
    put(page, settings=SMALL, steps="60", length="32", batch="8")


def click_start(page):
    page.wait("!document.querySelector('#train-start').disabled")  # as it is until an earlier one is known
    page.run("document.querySelector('#train-start').click()")


def start(page, steps=60, **values):
    put(page, steps=str(steps), **values)
    before = page.run("document.querySelector('#train-run').value")
    click_start(page)
    page.wait(f"document.querySelector('#train-run').value !== {json.dumps(before)}")


def done(page, how="done"):
    """What is seen is the end of the chosen run."""
    page.wait(f"""(() => {{ const {{run, how}} = document.querySelector('.train-status').dataset;
        return run === document.querySelector('#train-run').value && how === {json.dumps(how)}; }})()""")


def refused(page, server, why, status=400):
    """What the form asks for now is refused, in words. The server's own reply comes without its status on the
    network: the browser would write that into the console."""
    page.run("""(() => { window.ownFetch ||= window.fetch; window.asked = [];
        window.fetch = (path, o = {}) => { if (path !== '/v1/train/run') return ownFetch(path, o);
        asked.push(o.body); return new Promise((done) => { window.answer = (status, body) =>
          done(new Response(body, {status})); }); }; })()""")
    click_start(page)
    page.wait("asked.length === 1")
    reply = server.ask("/v1/train/run", page.run("asked[0]"))
    equal(reply.status, status, reply)
    page.run(f"answer({reply.status}, {json.dumps(reply.text())}); window.fetch = ownFetch; 0")
    page.wait(f"document.querySelector('#train-new .error').textContent.includes({json.dumps(why)})")


def events(server):
    return server.ask("/v1/train/events?once=1").json()


def of(told, kind):
    return [e for e in told if e["kind"] == kind]


def column(told, name):
    return [x for e in of(told, "steps") for x in e[name]]


def rows(page, card):
    """The cells of the first table twin of a card, opened for that."""
    page.run(f"document.querySelector('{card} .twin').open = true")
    page.wait(f"document.querySelectorAll('{card} .twin tbody tr').length > 0")
    return page.run(f"[...document.querySelectorAll('{card} .twin tr')].map((r) => "
                    f"[...r.children].map((c) => c.textContent))")


LOSS, HEADS = ".card:has(#train-loss-chart)", ".card:has(#train-heads-title)"
HEALTH, COURSE = ".card:has(#train-health-title)", ".card:has(#train-rate-chart)"


@test
def a_first_visitor_starts_one_by_keyboard(page, server):
    page.begin(1280, "#view=train")
    page.wait("!!document.querySelector('#train-start')")
    page.wait("document.querySelector('#train-line').textContent === 'No training yet.'")
    expect("Nothing is written" in page.text("#train-about"), page.text("#train-about"))
    equal(page.run("[...document.querySelectorAll('.train-right > section')].filter((e) => !e.hidden)"
                   ".length"), 1, "what will be seen is told")
    page.picture_in("train-first")
    put(page, settings=SMALL, length="32", batch="8")
    page.run("document.querySelector('#train-steps').focus()")
    page.run("document.querySelector('#train-steps').select()")
    page.type("400")
    page.key("Enter")
    page.wait("!document.querySelector('#train-stop').hidden")
    page.wait("document.querySelectorAll('#train-loss-chart .curve').length >= 2")
    first = page.run("document.querySelector('#train-progress').value")
    page.wait(f"document.querySelector('#train-progress').value > {first}")
    done(page)
    equal(page.run("document.querySelector('#train-progress').value"), 400)
    losses = column(events(server), "loss")
    expect(sum(losses[-20:]) / 20 < losses[0] - 1, "the loss fell from", losses[0], "to", losses[-1])
    expect("done" in page.run("document.querySelector('#live').textContent"), "who listens hears of the end")
    # From Start one gets to the pictures by Tab alone.
    page.run("document.querySelector('#train-start').focus()")
    seen = []
    for _ in range(60):
        page.key("Tab")
        seen.append(page.run("document.activeElement.id || document.activeElement.tagName"))
        if "train-measure" in seen:
            break
    for id in ("train-log", "train-smooth", "train-look", "train-play", "train-metric", "CANVAS", "SUMMARY",
               "train-measure"):
        expect(id in seen, id, "is not reached:", seen)


@test
def values_are_those_of_the_events(page, server):
    opened(page)
    start(page)
    done(page)
    told = events(server)
    step, loss = column(told, "step"), column(told, "loss")
    held = {e["step"]: e["loss"] for e in of(told, "judge")}
    table = rows(page, LOSS)
    equal(table[0], ["Step", "Loss", "Smoothed", "held out"])
    keep, now, wanted = 0.6, None, []
    for s, x in zip(step, loss):
        now = x if now is None else keep * now + (1 - keep) * x
        wanted.append([str(s), f"{x:.4f}", f"{now:.4f}", f"{held[s]:.4f}" if s in held else ""])
    equal(table[1:], wanted, "losses")
    table = rows(page, COURSE)
    equal([r[2] for r in table[1:]], [f"{x:.4f}" for x in column(told, "norm")], "norms")
    line = page.text("#train-line")
    begin = of(told, "begin")[0]
    for part in ("step 60 of 60", f"loss {loss[-1]:.4f}", f"held out {held[60]:.4f}", "done",
                 f"{begin['parameters']:,} parameters"):
        expect(part in line, part, "is not in", line)
    health = of(told, "health")
    for measure in ("entropy", "sink", "max_logit"):
        put(page, measure=measure)
        rows(page, HEALTH)
        page.wait(f"document.querySelectorAll('{HEALTH} .twin tbody tr').length === {len(health)}")
        page.wait("""import('/page/i18n.js').then(({tr}) => document.querySelector('%s .twin .hint')
            .textContent === tr('train_h_%s'))""" % (HEALTH, measure))
        table = rows(page, HEALTH)
        equal(table[0], ["Step", "Layer 0", "Layer 1"])
        equal(table[1:], [[str(e["step"]), *[f"{l[measure]:.4f}" for l in e["layers"]]] for e in health],
              measure)
    # The pointer on the curve reads the step below it; a click goes to the heads of then.
    at = page.run("""(() => { const e = document.querySelector('#train-loss-chart svg'); e.scrollIntoView();
        const r = e.getBoundingClientRect();
        return [r.left + 58 + (r.width - 72) * 29 / 59, r.top + 80]; })()""")
    page.click(*at)
    page.wait(f"document.querySelector('.card:has(#train-loss-chart) .read').textContent.startsWith("
              f"'step 30 · loss {loss[29]:.4f}')")
    page.wait("document.querySelector('.train-when').textContent === 'step 30'")


@test
def heads_of_each_look(page, server):
    opened(page)
    start(page)
    done(page)
    told = events(server)
    # Of two looks at one step the later counts.
    looks, begin = list({e["step"]: e for e in of(told, "heads")}.values()), of(told, "begin")[0]
    page.wait(f"document.querySelector('#train-look').max === '{len(looks) - 1}'")
    page.run("document.querySelector('#train-look').focus()")
    page.key("Home")
    page.wait("document.querySelector('.train-when').textContent === 'step 0'")

    def shown(x):
        size = abs(x)
        return f"{x:.{0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3}f}"

    for metric in ("first", "entropy", "previous"):
        put(page, metric=metric)
        for at, key in ((0, "Home"), (len(looks) - 1, "End")):
            page.run("document.querySelector('#train-look').focus()")
            page.key(key)
            page.wait(f"document.querySelector('.train-when').textContent === 'step {looks[at]['step']}'")
            table = rows(page, HEADS)
            wanted = looks[at]["values"][metric]
            equal([r[1:] for r in table[1:]], [[shown(x) if x == 0 or abs(x) >= 5e-4 else f"{x:.1e}".replace(
                "e-0", "e-").replace("e+0", "e+") for x in row] for row in wanted], metric)
    page.run(f"document.querySelector('{HEADS} canvas[role]').focus()")
    page.key("ArrowRight")
    page.key("ArrowDown")
    page.wait("document.querySelector('#train-heads-read').textContent.startsWith('Layer 1, head 1')")
    page.wait("document.querySelector('.train-map figcaption').textContent === 'Layer 1, head 1'")
    # The map's twin: three strongest keys of each row, by the pixels that came.
    import base64
    maps, side = base64.b64decode(looks[-1]["maps"]), begin["side"]
    page.run("document.querySelector('.train-map .twin').open = true")
    page.wait("document.querySelectorAll('.train-map .twin tbody tr').length > 0")
    cells = page.run("[...document.querySelectorAll('.train-map .twin tbody tr')].map((r) => "
                     "r.children[1].textContent)")
    equal(len(cells), side)
    row = maps[(5 * side + side - 1) * side:][:side]
    best = max(range(side), key=lambda k: (row[k], -k))
    expect(cells[-1].startswith(f"{best} “"), cells[-1], best)
    expect(shown(row[best] / 255) in cells[-1], cells[-1], row[best] / 255)
    # A sample leads to the heads of its moment; playing goes to the end.
    sample = of(told, "sample")[3]
    page.run(f"document.querySelector('#train-samples [data-step=\"{sample['step']}\"]').click()")
    page.wait(f"document.querySelector('.train-when').textContent === 'step {sample['step']}'")
    equal(page.run("document.querySelectorAll('#train-samples [aria-pressed=true]').length"), 1)
    equal(page.text("#train-samples [aria-pressed=true] .what"), sample["text"].strip())
    page.run(f"(() => {{ const s = document.querySelector('#train-look'); s.value = {len(looks) - 3}; "
             "s.dispatchEvent(new Event('input')); })()")
    page.run("document.querySelector('#train-play').click()")
    page.wait("document.querySelector('.train-when').textContent === 'step 60' && "
              "document.querySelector('#train-play').textContent.includes('Play')")
    page.picture_in("train-heads")


@test
def stop_reload_and_runs_beside_each_other(page, server):
    opened(page)
    start(page, 100000, rate="0.002")
    page.wait("document.querySelector('#train-progress').value > 20")
    refused(page, server, "runs already", 429)
    page.reload()
    page.wait("document.querySelector('#train-progress')?.value > 20")
    at = page.run("document.querySelector('#train-progress').value")
    page.wait(f"document.querySelector('#train-progress').value > {at}")
    equal(page.run("document.querySelector('#train-rate').value"), "0.002", "the form is kept")
    page.press("#train-stop")
    done(page, "stopped")
    told = events(server)
    equal(told[-1]["how"], "stopped")
    equal(page.run("document.querySelector('#train-progress').value"), column(told, "step")[-1])
    expect(page.run("document.querySelector('#train-stop').hidden"), "Stop is gone")
    # The run before it is drawn, too.
    page.run("document.querySelector('#train-others').open = true")
    page.press(".train-beside input")
    page.wait("document.querySelectorAll('#train-loss-chart .c1').length > 0")
    colours = page.run("[...document.querySelectorAll('#train-loss-chart .curve:not(.raw)')].map((e) => "
                       "e.getAttribute('class'))")
    equal([c for c in colours if "c1" in c], ["curve c1 ", "curve c1 held"], "a run, a colour")
    expect("curve c0 " in colours, colours)
    page.run("document.querySelector('#train-log').click()")
    page.wait("import('/page/state.js').then(({kept}) => kept.get('train-log'))")
    page.picture_in("train-two")
    # Another one is looked at.
    other = page.run("document.querySelector('#train-run').options[1].value")
    put(page, run=other)
    done(page)


@test
def the_log_is_saved(page, server):
    opened(page)
    page.run("""(() => { window.blobs = []; const own = URL.createObjectURL;
        URL.createObjectURL = (b) => { blobs.push(b); return own(b); };
        HTMLAnchorElement.prototype.click = function () { window.saved = this.download; }; })()""")
    page.wait("!document.querySelector('#train-export').hidden")
    start(page, 20)
    done(page)
    page.press("#train-export")
    page.wait("blobs.length === 1")
    saved = json.loads(page.run("blobs[0].text()"))
    equal(saved["events"], events(server))
    expect(page.run("saved").endswith(".json"), page.run("saved"))


@test
def what_is_wrong_is_said(page, server):
    opened(page)
    put(page, steps="0")
    page.press("#train-start")
    page.wait("document.querySelector('#train-new .error').textContent.startsWith('Steps')")
    equal(page.run("[document.activeElement.id, document.activeElement.getAttribute('aria-invalid')]"),
          ["train-steps", "true"])
    for fields, why in (({"settings": "width=32 heads=5"}, "heads"), ({"text": "short"}, "at least 200")):
        put(page, **{"steps": "10", "settings": SMALL, "text": "", **fields})
        refused(page, server, why)
    put(page, text="")
    # A loss that runs away is told in words.
    start(page, 100, rate="90")
    page.wait("""(() => { const {run, how} = document.querySelector('.train-status').dataset;
        return run === document.querySelector('#train-run').value && how !== 'running'; })()""")
    notes = of(events(server), "note")
    expect(any("not finite" in n["text"] or "deviations" in n["text"] for n in notes), notes)
    equal(page.texts(".train-notes li"), [f"step {n['step']}: {n['text']}" for n in notes])
    # The recipe of the editor, as its text.
    page.run("""import('/page/state.js').then(({set}) => set({recipe: JSON.stringify({preset: 'gpt-char',
        name: 'of the editor', width: 32})}))""")
    page.wait("!!document.querySelector('#train-model option[value=own]')")
    put(page, model="own", rate="0.003", steps="5")
    expect(page.run("document.querySelector('#train-settings').disabled"), "sizes are the recipe's")
    start(page, 5)
    done(page)
    equal(of(events(server), "begin")[0]["recipe"]["name"], "of the editor")


@test
def a_hundred_thousand_steps_stay_smooth(page, server):
    opened(page)
    took = page.run("""import('/page/views/train/curves.js').then(({draw, thin, smooth}) => {
        const n = 100000, x = Array.from({length: n}, (_, i) => i + 1),
              y = x.map((i) => 4 / Math.sqrt(i) + Math.sin(i * 12.9898) * 0.1);
        y[500] = 99; y[70000] = null; y[90000] = -7;
        const host = document.createElement('div'); document.body.append(host);
        draw(host, {title: 't', x_label: 'x', y_label: 'y', log: false, height: 300,
                    curves: [{name: 'a', x, y: smooth(y, 0.6), colour: 0}, {name: 'b', x, y, colour: 1}]});
        const points = host.querySelectorAll('.curve')[1]
            .getAttribute('d').split(/(?=[ML])/).length;
        const kept = thin(x, y, 800);
        host.remove();
        return {points, all: kept.x.length, high: Math.max(...kept.y), low: Math.min(...kept.y),
                gap: kept.y.includes(null), order: kept.x.every((v, i) => !i || v > kept.x[i - 1])}; })""")
    expect(took["points"] < 5000 and took["all"] <= 1610, took)
    equal((took["high"], took["low"], took["gap"], took["order"]), (99, -7, True, True), "no extreme is lost")


@test
def both_languages_at_every_width(page, server):
    for lang, word in (("zh", "开始"), ("en", "Start")):
        opened(page, 390, lang)
        equal(page.text("#train-start"), word)
        start(page, 60)
        done(page)
        line = page.text("#train-line")
        expect(("已完成" if lang == "zh" else "done") in line, line)
        page.wait("!!document.querySelector('.train-heads canvas')")
        for width in (320, 390, 1280):
            page.size(width, 800)
            equal(page.run("document.documentElement.scrollWidth"), width, f"{lang}: width")
            wide = page.run("""[...document.querySelectorAll('.train *')].filter((e) =>
                !e.closest('svg, .scroll') && e.getBoundingClientRect().right > innerWidth + 1)
                .map((e) => e.className || e.tagName)""")
            equal(wide, [], f"{lang}, {width}: what stands out")
        page.size(390, 800)
        page.picture_in(f"train-390-{lang}")
        page.run(f"document.querySelector('{HEADS}').scrollIntoView()")
        page.picture_in(f"train-390-{lang}-heads")
        unnamed = page.run("""[...document.querySelectorAll(`.train button, .train input, .train select,
            .train textarea, .train canvas[role]`)].filter((e) => e.offsetParent && !(e.textContent ||
            e.getAttribute('aria-label') || e.closest('label') || e.title)).map((e) => e.id)""")
        equal(unnamed, [], "controls without a name")
        said = page.run("""[...document.querySelectorAll('.train *')].filter((e) => !e.childElementCount &&
            /train_|undefined|NaN/.test(e.textContent)).map((e) => e.textContent)""")
        equal(said, [], "words that are missing")
    page.run("document.querySelector('#lang').click()")
    page.wait("document.querySelector('#train-start').textContent === '开始'")
    page.wait("document.querySelector('#train-line').textContent.includes('第 60 步')")
    page.size(1280, 800)
    page.theme("dark")
    page.picture_in("train-dark-zh")
    page.theme("light")


@test
def watching_a_terminal(page, server):
    """`rapt train --watch`: the page opens in this view, with nothing to start."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["train", "gpt-char", "--data", TEXT, "--vocab", "characters", "--length", 32, "--batch", 8,
                 "--steps", 60, "--eval-every", 20, "--eval-batches", 2, "--set", "width=32", "--set",
                 "layers=2", "--set", "heads=4", "--watch-port", 0, "--watch-stay", "--out",
                 pathlib.Path(folder, "mine")]
        p = subprocess.Popen([page.args.rapt, *map(str, words)], stderr=subprocess.PIPE,
                             stdout=subprocess.DEVNULL, text=True)
        try:
            address = next(line.split()[-1] for line in p.stderr if "watch it at" in line)
            page = Page(page.browser, address)
            page.begin(1280, "")
            page.wait("document.querySelector('#tab-train')?.getAttribute('aria-selected') === 'true'")
            page.wait("document.querySelector('.train-status')?.dataset.how === 'done'")
            equal(page.run("[...document.querySelectorAll('#tabs button')].filter((e) => !e.hidden)"
                           ".map((e) => e.id)"), ["tab-play", "tab-train"], "views that need no model")
            expect(page.run("document.querySelector('#train-new').hidden && "
                            "document.querySelector('#train-stop').hidden && "
                            "document.querySelector('#model-box').hidden"), "nothing to start or stop")
            expect("terminal" in page.text("#train-about"), page.text("#train-about"))
            lines = [json.loads(line) for line in pathlib.Path(folder, "mine", "metrics.jsonl").read_text()
                     .splitlines()]
            table = rows(page, LOSS)
            equal([r[1] for r in table[1:]], [f"{l['loss']:.4f}" for l in lines if "loss" in l])
            expect(page.run("document.querySelectorAll('#train-samples li').length") >= 3, "samples")
            page.picture_in("train-watch")
            complaints_of(page)
        finally:
            p.send_signal(signal.SIGINT)
            p.wait(20)


@test
def hostile_samples_and_names_stay_text(page, server):
    opened(page)
    start(page, 40)
    done(page)
    page.begin(hash="#view=play")
    page.wait("document.querySelector('#view-play')?.hidden === false")
    from_server(page, "/v1/runs", "id kind how key maps stack labels")
    page.run("document.querySelector('#tab-train').click()")
    page.wait("document.querySelectorAll('.train-samples li').length > 2")
    page.wait("document.querySelectorAll('.train-heads canvas').length > 1")
    page.run("for (const e of document.querySelectorAll('#view-train details')) e.open = true")
    page.wait("document.querySelectorAll('.train-map .twin tbody tr').length > 0")
    nothing_foreign(page, "a training")
    expect(page.run("said") > 50, page.run("said"))
    page.run("window.fetch = ownFetch")


@test
def the_panel_by_keyboard_and_mouse(page, server):
    opened(page)
    start(page, 20)
    done(page)

    def begin(width, lang):
        opened(page, width, lang)
        done(page)
        page.wait("document.querySelectorAll('.train-heads canvas').length > 1")

    walk(page, "train", begin, leave="#train-start, #train-export")


@test
def nothing_was_complained_about(page, server):
    complaints_of(page)


if __name__ == "__main__":
    sys.exit(run("Trainings on the page of `rapt serve`.", ["--lab"]))
