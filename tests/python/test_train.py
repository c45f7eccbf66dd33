# SPDX-License-Identifier: Apache-2.0
"""A training in Python's loop: the files and bits of `rapt train`, whatever stops it."""
import json
import os
import pathlib
import pickle
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

import rapt
from training import bits, file_bits, options, recipe, text

HERE = pathlib.Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "book.txt"
    path.write_text(text())
    return path


@pytest.fixture(scope="module")
def straight(book, tmp_path_factory):
    """A run that nobody stops: its folder, reports and bits."""
    out = tmp_path_factory.mktemp("straight") / "out"
    t = rapt.Trainer(recipe(), book, out, **options(eval_every=4, save_every=5))
    return out, list(t), bits(t.model.weights)


def test_the_loop_is_the_command_line(book, straight, cli, tmp_path):
    (tmp_path / "r.json").write_text(recipe().json())
    o = options()
    cli("train", tmp_path / "r.json", "--data", book, "--out", tmp_path / "out", "--steps", o["steps"],
        "--batch", o["batch"], "--length", o["length"], "--vocab", o["vocab"], "--rate", o["rate"],
        "--warmup", o["warmup"], "--seed", o["seed"], "--eval-every", 4, "--save-every", 5,
        "--set", "train.health_every=5", "--eval-batches", o["eval_batches"], "-q")
    out, reports, _ = straight
    assert file_bits(out) == file_bits(tmp_path / "out")
    assert sorted(p.name for p in out.iterdir()) == sorted(p.name for p in (tmp_path / "out").iterdir())

    def lines(folder):
        """Of metrics.jsonl, without what differs from run to run."""
        every = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        for line in every:
            line.pop("seconds", None)
            line.pop("plan", None)
            if "event" in line:
                line["event"] = line["event"].replace(str(folder), "")
        return every
    assert lines(out) == lines(tmp_path / "out")
    plans = [json.loads((f / "metrics.jsonl").read_text().splitlines()[0])["plan"]
             for f in (out, tmp_path / "out")]
    assert plans[0]["options"] == plans[1]["options"] and plans[0]["data"] == plans[1]["data"]


def test_reports(straight):
    _, reports, _ = straight
    assert [s.step for s in reports] == list(range(1, 13)) and reports[0].batch == 0
    assert all(s.fate == "done" and not s.skipped and s.why == "" and s.tokens == 64 for s in reports)
    assert reports[-1].loss < reports[0].loss and reports[0].rate == 5e-3
    assert [bool(s.health) for s in reports] == [i % 5 == 0 for i in range(12)]
    assert {h["layer"] for h in reports[0].health} == {0, 1} and "entropy" in reports[0].health[0]
    assert pickle.loads(pickle.dumps(reports[0])) == reports[0] and json.loads(reports[0].json())["step"] == 1


def test_metrics(book, straight, tmp_path):
    out, reports, _ = straight
    same = rapt.Trainer(recipe(), book, out, **options(eval_every=4, save_every=5))
    assert same.done and list(same) == [] and same.result is not None
    memory = rapt.Trainer(recipe(), book, **options(eval_every=4, save_every=5))
    list(memory)
    for t in (same, memory):
        columns = t.metrics.columns()
        assert list(columns["step"]) == [s.step for s in reports]
        assert list(columns["loss"]) == [s.loss for s in reports]
        assert len({len(c) for c in columns.values()}) == 1
        looks = t.metrics.held_out.columns()
        assert list(looks["step"]) == [4, 8, 12] and looks["loss"][-1] == memory.judge(2).loss


def test_memory_is_the_folder(book, straight):
    t = rapt.Trainer(recipe(), book, **options(eval_every=4, save_every=5))
    assert [s.loss for s in t] == [s.loss for s in straight[1]]
    assert bits(t.model.weights) == straight[2] and t.folder is None and t.result.counted > 0


@pytest.mark.parametrize("stops", [(1,), (3, 4, 11), (5, 10)])
def test_break_saves_and_the_same_call_goes_on(book, straight, tmp_path, stops):
    for stop in stops:
        t = rapt.Trainer(recipe(), book, tmp_path / "out", **options(eval_every=4, save_every=5))
        for s in t:
            if s.step == stop:
                break
        assert t.steps == stop and not t.done and (tmp_path / f"out/step-{stop}").exists()
        del t, s
    t = rapt.Trainer(recipe(), book, tmp_path / "out", **options(eval_every=4, save_every=5))
    assert t.steps == stops[-1]
    assert [s.loss for s in t] == [s.loss for s in straight[1]][stops[-1]:]
    assert bits(t.model.weights) == straight[2] and file_bits(tmp_path / "out") == file_bits(straight[0])
    assert t.folder == str(tmp_path / "out/model")
    assert list(t.metrics.columns()["step"]) == list(range(1, 13))


def test_a_loop_may_be_left_and_entered_again(book, straight):
    t = rapt.Trainer(recipe(), book, **options(eval_every=4, save_every=5))
    for s in t:
        if s.step == 2:
            break
    assert t.step().step == 3
    with pytest.raises(ZeroDivisionError):
        for s in t:
            1 / (s.step - 6)
    assert t.steps == 6 and [s.step for s in t] == list(range(7, 13))
    assert bits(t.model.weights) == straight[2]
    with pytest.raises(rapt.UsageError, match="12 steps"):
        t.step()


def test_run_and_its_callbacks(book, straight, tmp_path):
    t = rapt.Trainer(recipe(), book, tmp_path / "out", **options(eval_every=4, save_every=5))
    seen, saved, judged, told = [], [], [], []
    assert not t.run(on_step=lambda s: seen.append(s.step) or s.step < 6, on_saved=saved.append)
    assert t.run(on_step=lambda s: seen.append(s.step), on_saved=saved.append,
                 on_judged=lambda step, j: judged.append((step, j)), progress=lambda *x: told.append(x))
    assert seen == list(range(1, 13)) and bits(t.model.weights) == straight[2]
    assert [pathlib.Path(f).name for f in saved] == ["step-5", "step-6", "step-10", "step-12"]
    assert [step for step, _ in judged] == [8, 12] and judged[-1][1] == t.judge(2)
    assert told[-1] == ("train", 12, 12)
    with pytest.raises(ValueError, match="mine"):
        rapt.Trainer(recipe(), book, **options()).run(on_step=lambda s: [].index("mine"))


KILLED = """
import sys, json
sys.path.insert(0, sys.argv[1])
import rapt
from training import options, recipe
t = rapt.Trainer(recipe(), sys.argv[2], sys.argv[3], **options(**json.loads(sys.argv[4])))
print("ready", flush=True)
for s in t:
    print(s.step, flush=True)
    sys.stdin.readline()  # for whoever kills it; nothing at the end of a file
"""


def killed(script, words, seed, times=6):
    """Runs it again and again, killed at random moments in or behind a step, and then to its end: how often
    it was killed. It takes no step that it is not told to, so it cannot be done before."""
    kills, draw = 0, random.Random(seed)
    command = [sys.executable, "-c", script, str(HERE), *map(str, words)]
    for _ in range(times):
        p = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             text=True)
        for _ in range(draw.randrange(1, 5)):
            if not p.stdout.readline():
                break
            p.stdin.write("\n")
            p.stdin.flush()
        time.sleep(draw.random() * 0.03)
        p.send_signal(signal.SIGKILL)
        _, error = p.communicate()
        assert p.returncode in (0, -signal.SIGKILL), error
        kills += p.returncode != 0
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return kills


@pytest.mark.parametrize("seed", range(3))
def test_killed_and_resumed_it_has_the_same_bits(book, straight, tmp_path, seed):
    assert killed(KILLED, [book, tmp_path / "out", json.dumps(dict(eval_every=4, save_every=1 + seed))], seed)
    assert file_bits(tmp_path / "out") == file_bits(straight[0])


INTERRUPTED = """
import os, signal, sys, threading
sys.path.insert(0, sys.argv[1])
import rapt
from training import bits, options, recipe
t = rapt.Trainer(recipe(width=256, layers=4, ffn=1024, context=128), sys.argv[2], sys.argv[3],
                 **options(length=128, batch=8, steps=4))
def press(seconds):
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    return timer
timer = press(0.05)
try:
    while True:
        t.step()
        if not timer.is_alive(): timer = press(0.02)
except KeyboardInterrupt:
    timer.cancel()
    steps = t.steps
    assert steps >= 1 and os.path.isdir(f"{sys.argv[3]}/step-{steps}"), (steps, os.listdir(sys.argv[3]))
    print("interrupted", steps, flush=True)
for s in t: pass
assert t.done and t.steps == 4
print(bits(t.model.weights))
"""


def test_ctrl_c_ends_the_step_saves_and_leaves_a_trainer_that_goes_on(book, tmp_path):
    p = subprocess.run([sys.executable, "-c", INTERRUPTED, str(HERE), book, tmp_path / "out"],
                       capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert p.returncode == 0, p.stderr
    first, last = p.stdout.split("\n")[:2]
    assert first.startswith("interrupted")
    t = rapt.Trainer(recipe(width=256, layers=4, ffn=1024, context=128), book,
                     **options(length=128, batch=8, steps=4))
    list(t)
    assert bits(t.model.weights) == last


def test_one_thread_at_a_time(book):
    t = rapt.Trainer(recipe(width=128, layers=4, ffn=512), book, **options(steps=400, length=32, batch=32))
    errors, go = [], threading.Event()

    def other():
        go.wait()
        while not errors and not t.done:
            try:
                t.judge(1)
            except rapt.UsageError as e:
                errors.append(e)
    thread = threading.Thread(target=other)
    thread.start()
    try:
        for s in t:
            go.set()
            if errors:
                break
    except rapt.UsageError as e:
        errors.append(e)
    thread.join()
    assert errors and "one thread at a time" in str(errors[0])
    steps = t.steps
    t.step()  # it is usable
    assert t.steps == steps + 1


def test_the_model_is_that_of_now(book):
    t = rapt.Trainer(recipe(), book, **options(steps=40))
    m = t.model
    before = m.generate("the cat", max_tokens=20, temperature=0, seed=1)
    for s in t:
        if s.step == 30:
            break
    after = m.generate("the cat", max_tokens=20, temperature=0, seed=1)
    assert str(after) != str(before)
    # … and not what was kept of earlier weights
    fresh = rapt.Trainer(recipe(), book, **options(steps=40))
    for s in fresh:
        if s.step == 30:
            break
    assert fresh.model.generate("the cat", max_tokens=20, temperature=0, seed=1).ids == after.ids
    assert t.sample("the cat").startswith("the cat")


def test_going_on_from_a_model(book, straight, tmp_path):
    out = straight[0]
    a = rapt.Trainer(out / "model", book, **options(steps=3))
    first = rapt.load(str(out / "model"), exact=True)
    b = rapt.Trainer(first, book, **options(steps=3))
    before = bits(first.weights)
    assert [s.loss for s in a] == [s.loss for s in b]
    assert bits(a.model.weights) == bits(b.model.weights) != before == bits(first.weights)
    c = rapt.Trainer(b.model, book, **options(steps=2))  # one that has no file
    assert bits(c.model.weights) == bits(b.model.weights)
    list(c)
    c.model.save(str(tmp_path / "saved"))
    again = rapt.load(str(tmp_path / "saved"), exact=True)
    assert bits(again.weights) == bits(c.model.weights)
    assert again.generate("the", max_tokens=5, temperature=0).ids == \
        c.model.generate("the", max_tokens=5, temperature=0).ids


def test_averages_take_the_place_of_the_weights(book, tmp_path):
    for o in (dict(optimizer=dict(ema=0.9)), dict(average=2, save_every=4)):
        t = rapt.Trainer(recipe(), book, tmp_path / str(len(o)), **options(**o, eval_batches=0))
        for s in t:
            if s.step == 11:
                break
        last = t.step()
        raw = bits(t.model.weights)
        result = t.finish()
        assert bits(t.model.weights) != raw and t.judge() == result
        saved = rapt.load(t.folder, exact=True)
        assert bits(saved.weights) == bits(t.model.weights) and last.step == 12


def test_options(book):
    t = rapt.Trainer(recipe(), book, **options(optimizer="muon", schedule=dict(kind="wsd", floor=0.5),
                                               guard=dict(z=0)))
    assert t.options["optimizer.kind"] == "muon" and t.options["schedule.floor"] == 0.5
    assert t.options["optimizer.rate"] == 1e-2 and t.options["guard.z"] == 0
    assert t.optimizer.options["kind"] == "muon"
    assert "12" in repr(t) and "memory" in repr(t) and "tokens" in t.data
    with pytest.raises(rapt.UnknownName, match="did you mean 'steps'"):
        rapt.Trainer(recipe(), book, step=3)
    with pytest.raises(rapt.UnknownName, match="optimizer.rate"):
        rapt.Trainer(recipe(), book, optimizer=dict(rat=3))
    with pytest.raises(rapt.UsageError, match="twice"):
        rapt.Trainer(recipe(), book, rate=1, optimizer=dict(rate=2))
    with pytest.raises(rapt.UsageError, match="optimizer.beta1"):
        rapt.Trainer(recipe(), book, optimizer=dict(beta1=2))
    with pytest.raises(rapt.UsageError, match="characters, bytes, bpe"):
        rapt.Trainer(recipe(), book, vocab="words")
    with pytest.raises(rapt.UsageError):
        rapt.Trainer(recipe(), book, batch="4")
    with pytest.raises(FileNotFoundError):
        rapt.Trainer(recipe(), "no-such-book.txt")
    with pytest.raises(TypeError):
        rapt.Trainer(recipe(), 3)
    with pytest.raises(TypeError):
        rapt.Trainer(recipe(), book, optimizer=3)
    with pytest.raises(TypeError, match="out="):
        pickle.dumps(t)
    with pytest.raises(rapt.UsageError, match="0 of 12"):
        t.finish()


def test_another_run_is_refused(book, straight):
    with pytest.raises(rapt.Error, match="optimizer.rate"):
        rapt.Trainer(recipe(), book, straight[0], **options(rate=2e-2, eval_every=4, save_every=5))
    with pytest.raises(rapt.Error, match="another recipe"):
        rapt.Trainer(recipe(ffn=64), book, straight[0], **options())


def test_anew(book, tmp_path):
    for _ in range(2):
        t = rapt.Trainer(recipe(), book, tmp_path / "out", anew=True, **options(steps=3))
        assert t.steps == 0 and len(list(t)) == 3


def test_the_same_call_again_takes_the_folder_over(book, tmp_path):
    """In a notebook a cell runs twice: the first trainer has saved and is closed."""
    first = rapt.Trainer(recipe(), book, tmp_path / "out", **options())
    first.step()
    second = rapt.Trainer(recipe(), book, tmp_path / "out", **options())
    assert second.steps == 1 and first.model.weights["embed.tokens"] is not None
    for call in (first.step, first.save, lambda: list(first)):
        with pytest.raises(rapt.UsageError, match="closed"):
            call()
    with second:
        second.step()
    done = subprocess.run([sys.executable, "-c", KILLED, str(HERE), book, tmp_path / "out", "{}"],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True)  # it let go of the folder
    assert done.returncode == 0 and done.stdout.split()[:2] == ["ready", "3"], done.stderr
    with pytest.raises(rapt.UsageError, match="closed"):
        second.step()


def test_what_it_says_is_logged(book, tmp_path, caplog):
    caplog.set_level("INFO", logger="rapt")
    for steps in (2, 3):
        list(rapt.Trainer(recipe(), book, tmp_path / "out", **options(steps=steps, schedule="constant")))
    assert any("goes on from" in r.message for r in caplog.records)


def test_tasks_and_pairs():
    t = rapt.Trainer(rapt.Recipe("transformer-2017", width=32, layers=1, heads=2, ffn=64), "copy", steps=3,
                     length=12, batch=8)
    assert [s.step for s in t] == [1, 2, 3] and t.judge(1).counted > 0
    b = t.batch(0)
    assert set(b) == {"tokens", "lengths", "targets", "source", "source_lengths"}
    assert sum(b["lengths"]) == len(b["tokens"])
