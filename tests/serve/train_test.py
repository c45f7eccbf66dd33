#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trainings under `rapt serve --lab` and `rapt train --watch`: what they tell is what `rapt train` and
`rapt inspect heads` say, nothing is written without --lab-dir, Stop, refusals, keys, equal bits beside them.

  tests/serve/train_test.py [--rapt build/rapt] [--only PATTERN]
"""
import base64
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

from server import (SOURCE, Fault, Server, arguments, equal, events_of, expect, message, near, rapt_json,
                    run_tests, test)

TEXT = (SOURCE / "rapt" / "lab" / "text" / "own.txt").read_text()
SMALL = ["width=32", "layers=2", "heads=4"]
RUN = {"preset": "gpt-char", "settings": SMALL, "steps": 60, "length": 32, "batch": 8, "seed": 3,
       "rate": 0.003}
LONG = {**RUN, "steps": 100_000}
KEY, OTHER = "canary-key-of-the-first", "canary-key-of-another"


def good(reply):
    if reply.status not in (200, 204):
        raise Fault(f"status {reply.status}: {reply.body[:500]!r}")
    return reply


def files_below(folder):
    return {str(p.relative_to(folder)): (p.stat().st_size, p.stat().st_mtime_ns)
            for p in pathlib.Path(folder).rglob("*")}


class Servers:
    """lab: states in memory; dir: with a folder; keyed: with keys; plain: no lab."""

    def __init__(self, args):
        self.args = args
        self.folder = tempfile.TemporaryDirectory()
        self.work = pathlib.Path(self.folder.name)
        keys = self.work / "keys"
        keys.write_text(f"{KEY}\n{OTHER}\n")
        keys.chmod(0o600)
        self.kept = self.work / "kept"
        self.lab = Server(args, "--lab")
        self.dir = Server(args, "--lab-dir", self.kept)
        self.keyed = Server(args, "--lab", "--key-file", keys)
        self.done = {}

    def trained(self, **more):
        """The events of a run that came to its end; the same one for the same settings."""
        name = json.dumps(more, sort_keys=True)
        if name not in self.done:
            self.done[name] = whole(self.lab, begin(self.lab, {**RUN, **more}))
        return self.done[name]

    def close(self):
        bad = [s for s in (self.lab, self.dir, self.keyed) if s.stop() != 0]
        self.folder.cleanup()
        return bad


def begin(server, body, key=None):
    headers = {"Authorization": f"Bearer {key}"} if key else None
    return good(server.ask("/v1/train/run", body, headers=headers)).json()["id"]


def whole(server, id, key=None):
    """All events of a run, until its end, as a reader of its stream gets them."""
    headers = {"Authorization": f"Bearer {key}"} if key else None
    return [json.loads(e) for e in good(server.ask(f"/v1/runs/{id}", headers=headers)).events()]


def of(events, kind):
    return [e for e in events if e["kind"] == kind]


def column(events, name):
    return [x for e in of(events, "steps") for x in e[name]]


def wait_for(what, seconds=20):
    began = time.monotonic()
    while not (got := what()):
        expect(time.monotonic() - began < seconds, "waited in vain")
        time.sleep(0.02)
    return got


def rapt_train(args, out, *flags, text=TEXT):
    """The lines of metrics.jsonl that `rapt train` leaves, and its model folder."""
    data = pathlib.Path(out).with_suffix(".txt")
    data.write_text(text)
    words = ["train", "gpt-char", "--data", data, "--vocab", "characters", "--length", 32, "--batch", 8,
             "--steps", 60, "--seed", 3, "--rate", 0.003, "--eval-every", 3, "--eval-batches", 4,
             *[w for s in SMALL for w in ("--set", s)], "--set", "train.health_every=1", "--out", out, *flags]
    done = subprocess.run([args.rapt, *map(str, words), "-q", "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        raise Fault(done.stderr[-500:])
    return [json.loads(line) for line in (pathlib.Path(out) / "metrics.jsonl").read_text().splitlines()]


# ------------------------------------------------------------------------------------------------- by value
@test
def every_step_is_that_of_rapt_train(s):
    lines = rapt_train(s.args, s.work / "alone")
    events = s.trained()
    steps = [l for l in lines if "loss" in l]
    equal(column(events, "step"), list(range(1, 61)), "steps")
    equal(column(events, "loss"), [l["loss"] for l in steps], "losses, bit for bit")
    equal(column(events, "norm"), [l["norm"] for l in steps], "norms of the gradient")
    equal(column(events, "rate"), [l["rate"] for l in steps], "rates")
    held = {l["step"]: l["held_out_loss"] for l in lines if "held_out_loss" in l}
    equal({e["step"]: e["loss"] for e in of(events, "judge")}, held, "the part that is held out")
    health = {l["step"]: l["attention"] for l in lines if "attention" in l}
    equal({e["step"]: e["layers"] for e in of(events, "health")}, health, "health of attention")
    start, end = of(events, "begin")[0], events[-1]
    equal((end["kind"], end["how"]), ("end", "done"))
    equal((start["steps"], start["layers"], start["heads"], len(start["rows"])), (60, 2, 4, 2))
    plan = lines[0]["plan"]
    for part in ("settings", "recipe"):
        equal(start["plan"][part], plan[part])
    equal(start["recipe"], lines[0]["recipe"])
    losses = column(events, "loss")
    expect(sum(losses[-10:]) < sum(losses[:10]), "it learned nothing:", losses[0], losses[-1])


@test
def heads_are_those_of_inspect(s):
    """At the end of the training: the model that `rapt train` leaves has the same weights."""
    if not (s.work / "alone" / "model").exists():
        rapt_train(s.args, s.work / "alone")
    events = s.trained()
    start, last = of(events, "begin")[0], of(events, "heads")[-1]
    equal(last["step"], 60)
    told = rapt_json(s.args, "inspect", "heads", s.work / "alone" / "model", "--ids",
                     " ".join(map(str, start["text"]["ids"])))["data"]
    metrics = [m["key"] for m in start["metrics"]]
    for m in told["heads"]:
        for key in metrics:
            if key in m and m[key] is not None:
                near([last["values"][key][m["layer"]][m["head"]]], [m[key]], 2e-6, key)
        equal(last["labels"][m["layer"]][m["head"]], m["label"])
    # A map's pixel is the weight: rows see nothing to their right and sum to one.
    side, maps = start["side"], base64.b64decode(last["maps"])
    equal(len(maps), 2 * 4 * side * side)
    for head in range(8):
        for row in range(side):
            line = maps[(head * side + row) * side:][:side]
            equal(bytes(line[row + 1:]), bytes(side - row - 1), "a key to the right")
            expect(abs(sum(line) - 255) <= side / 2, "a row sums to", sum(line))


@test
def looks_and_samples_come_on_the_way(s):
    events = s.trained()
    steps = [e["step"] for e in of(events, "heads")]
    equal((steps[0], steps[-1]), (0, 60))
    expect(20 <= len(steps) <= 42 and steps == sorted(set(steps)), steps)
    equal([e["step"] for e in of(events, "sample")], steps, "a sample with each look")
    expect(all(e["text"].startswith("\n") and len(e["text"]) > 20 for e in of(events, "sample")),
           "samples go on from the prompt")
    equal(of(events, "heads")[0]["labels"], [["uniform 1.00"] * 4] * 2, "before it learned")
    again = whole(s.lab, begin(s.lab, RUN))
    for kind in ("heads", "sample", "judge", "health"):
        equal(of(again, kind), of(events, kind), f"{kind} of the same run again")


@test
def a_recipe_of_ones_own_learns_the_same(s):
    recipe = of(s.trained(), "begin")[0]["recipe"]
    recipe.pop("note", None)
    own = whole(s.lab, begin(s.lab, {k: v for k, v in {**RUN, "recipe": recipe}.items()
                                     if k not in ("preset", "settings")}))
    equal(column(own, "loss"), column(s.trained(), "loss"))
    other = whole(s.lab, begin(s.lab, {**RUN, "seed": 4}))
    expect(column(other, "loss") != column(own, "loss"), "another seed, the same losses")


@test
def bytes_gaps_and_other_recipes_learn(s):
    text = "Größe 你好 tokens. " * 60
    events = whole(s.lab, begin(s.lab, {**RUN, "steps": 4, "text": text, "vocab": "bytes"}))
    equal(events[-1]["how"], "done")
    equal(of(events, "begin")[0]["vocabulary"], 257)
    for preset in ("bert", "llama3", "qwen3-gate-g1", "delta-char"):
        body = {"preset": preset, "steps": 3, "length": 24, "batch": 4,
                "settings": ["width=32", "layers=4", "ffn=64"]}
        if preset != "delta-char":
            body["settings"] += ["heads=4"]
        if preset in ("llama3", "qwen3-gate-g1"):
            body["settings"] += ["kv_heads=2", "head_dim=8"]
        events = whole(s.lab, begin(s.lab, body))
        equal(events[-1], {"kind": "end", "how": "done"}, preset)
        expect(of(events, "health"), preset, "has no health")


# ------------------------------------------------------------------------------------------ begun and stopped
@test
def stop_ends_after_the_step(s):
    id = begin(s.lab, LONG)
    read = lambda: good(s.lab.ask(f"/v1/runs/{id}?once=1")).json()
    wait_for(lambda: of(read(), "steps"))
    refused = s.lab.ask("/v1/train/run", RUN)
    equal((refused.status, refused.error()["code"]), (429, "lab_busy"), "two at once")
    began = time.monotonic()
    equal(s.lab.ask(f"/v1/runs/{id}", method="DELETE").status, 204)
    events = whole(s.lab, id)
    expect(time.monotonic() - began < 5, "Stop took", time.monotonic() - began, "s")
    equal(events[-1], {"kind": "end", "how": "stopped"})
    steps = column(events, "step")
    equal(steps, list(range(1, len(steps) + 1)), "no step is left out")
    equal(of(events, "heads")[-1]["step"], steps[-1], "the last look is at the last step")
    begin_again = whole(s.lab, begin(s.lab, RUN))
    equal(begin_again[-1]["how"], "done", "another one after Stop")


@test
def readers_come_late_and_go_on(s):
    id = begin(s.lab, RUN)
    events = whole(s.lab, id)
    equal([json.loads(e) for e in good(s.lab.ask(f"/v1/runs/{id}?from=5")).events()], events[5:])
    equal(good(s.lab.ask("/v1/train/events?once=1")).json(), events, "the newest training")
    entry = good(s.lab.ask("/v1/runs")).json()["data"][0]
    equal((entry["id"], entry["kind"], entry["running"], entry["how"]), (id, "train", False, "done"))
    equal((entry["recipe"], entry["steps"], entry["settings"]), ("gpt-char", 60, SMALL))
    equal(entry["saved"], False)


@test
def what_cannot_be_is_refused_with_the_reason(s):
    runs = len(good(s.lab.ask("/v1/runs")).json()["data"])
    cases = [({"steps": 0}, "steps"), ({"steps": 100_001}, "100000"), ({"text": "short"}, "at least 200"),
             ({"preset": "gpt-chr"}, "gpt-char"), ({"preset": "../../etc/passwd"}, "no preset"),
             ({"recipe": {"preset": "gpt-char"}}, "not both"), ({"settings": ["heads=5"]}, "divisible"),
             ({"settings": ["width=4096", "layers=8"]}, "up to 50"),
             ({"settings": ["layers=1000"]}, "layers"), ({"batch": 512, "length": 4096}, "65,536"),
             *[({"name": n}, "name") for n in ("../up", "a/b", "a\nb", ".hidden", "..", " a", "a\\b", "")],
             ({"rate": "fast"}, "rate"), ({"vocab": "words"}, "vocab"), ({"stesp": 5}, "steps"),
             ({"preset": "t5"}, "translates"), ({"preset": "vit-nano"}, "pictures"),
             ({"optimizer": "adamx"}, "optimizer"), ({"settings": [f"a{i}=1" for i in range(65)]}, "64")]
    for body, why in cases:
        reply = s.lab.ask("/v1/train/run", {**RUN, **body})
        equal(reply.status, 400, f"{body}: {reply}")
        expect(why in reply.error()["message"], body, "is refused with:", reply.error()["message"])
    own = {"recipe": {"preset": "gpt-char", "widht": 3}}
    reply = s.lab.ask("/v1/train/run", own)
    expect(reply.status == 400 and "width" in reply.error()["message"], reply)
    equal(len(good(s.lab.ask("/v1/runs")).json()["data"]), runs, "a refused run is none")


@test
def a_loss_that_is_not_finite_is_told_in_words(s):
    events = whole(s.lab, begin(s.lab, {**RUN, "rate": 100, "optimizer": "sgd", "steps": 400}))
    notes = " ".join(e["text"] for e in of(events, "note"))
    expect("not finite" in notes or "deviations" in notes, events[-1], notes[-300:])
    expect(all(e["loss"] is not None for e in of(events, "judge")), "null among what is held out")


@test
def keys_keep_runs_apart(s):
    equal(s.keyed.ask("/v1/train/run", RUN).status, 401)
    equal(s.keyed.ask("/v1/train/events").status, 401)
    id = begin(s.keyed, RUN, KEY)
    equal(whole(s.keyed, id, KEY)[-1]["how"], "done")
    other = {"Authorization": f"Bearer {OTHER}"}
    equal(s.keyed.ask(f"/v1/runs/{id}", headers=other).status, 404)
    equal(s.keyed.ask("/v1/train/events", headers=other).status, 404)
    equal(good(s.keyed.ask("/v1/runs", headers=other)).json()["data"], [])


@test
def without_the_flag_there_is_nothing(s):
    with Server(s.args) as plain:
        equal(plain.ask("/v1/train/run", RUN).status, 404)
        equal(plain.ask("/v1/train/events").status, 404)


# ------------------------------------------------------------------------------------------------- what stays
@test
def nothing_is_written_without_a_folder(s):
    """A tree that the server has as its folder, its home and its place for temporary files stays as it is,
    and the process has no file open for writing while it trains."""
    home = s.work / "home"
    home.mkdir()
    (home / "there").write_text("as before")
    home.chmod(0o755)
    before = files_below(home)
    here = os.getcwd()
    os.chdir(home)
    try:
        with Server(s.args, "--lab", "--no-sandbox", env={"HOME": str(home), "TMPDIR": str(home)}) as server:
            id = begin(server, {**RUN, "steps": 2000})
            wait_for(lambda: of(good(server.ask(f"/v1/runs/{id}?once=1")).json(), "steps"))
            for fd in pathlib.Path(f"/proc/{server.pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    where = os.readlink(fd)
                    flags = (fd.parent.parent / "fdinfo" / fd.name).read_text()
                    mode = int(next(l.split()[1] for l in flags.splitlines() if l.startswith("flags")), 8) & 3
                    expect(mode == 0 or not where.startswith("/") or where.startswith("/dev/")
                           or int(fd.name) <= 2, where, "is open for writing")
            io = pathlib.Path(f"/proc/{server.pid}/io")
            written = lambda: next(l for l in io.read_text().splitlines() if l.startswith("write_bytes"))
            first = written()
            equal(whole(server, id)[-1]["how"], "done")
            equal(written(), first, "bytes that went to a disk")
            named = whole(server, begin(server, {**RUN, "name": "mine"}))
            equal(named[-1]["how"], "done")
        equal(files_below(home), before, "files")
    finally:
        os.chdir(here)


@test
def a_run_is_kept_in_its_folder(s):
    """Under the sandbox, which lets just that folder be written."""
    equal(good(s.dir.ask("/props")).json()["lab"], {"saves": True})
    events = whole(s.dir, begin(s.dir, {**RUN, "name": "first run"}))
    equal(events[-1], {"kind": "end", "how": "done"})
    equal(column(events, "loss"), column(s.trained(), "loss"), "kept or not")
    folder = s.kept / "first run"
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    equal([l["loss"] for l in lines if "loss" in l], column(events, "loss"), "its log")
    told = rapt_json(s.args, "inspect", "heads", folder / "model", "--ids",
                     " ".join(map(str, of(events, "begin")[0]["text"]["ids"])))["data"]
    near([of(events, "heads")[-1]["values"]["entropy"][1][2]],
         [m["entropy"] for m in told["heads"] if (m["layer"], m["head"]) == (1, 2)], 2e-6, "the kept model")
    before = files_below(s.kept)
    reply = s.dir.ask("/v1/train/run", {**RUN, "name": "first run"})
    expect(reply.status == 400 and "already" in reply.error()["message"], reply)
    equal(files_below(s.kept), before, "nothing is written over")
    reply = s.dir.ask("/v1/train/run", {**RUN, "name": "bad one", "settings": ["heads=7"]})
    equal((reply.status, files_below(s.kept)), (400, before), "a refused run leaves nothing")
    whole(s.dir, begin(s.dir, {**RUN, "steps": 2}))
    whole(s.dir, begin(s.dir, {**RUN, "steps": 2}))
    equal(sorted(p.name for p in s.kept.iterdir()), ["first run", "training-1", "training-2"])


@test
def answers_keep_their_bits_beside_a_training(s):
    body = {"model": "chat", "messages": [{"role": "user", "content": "Rows and columns"}], "seed": 5,
            "max_tokens": 400, "ignore_eos": True}
    ask = lambda: good(s.lab.ask("/v1/chat/completions", body)).json()["rapt"]["hash"]
    alone = ask()
    id = begin(s.lab, LONG)
    read = lambda: column(good(s.lab.ask(f"/v1/runs/{id}?once=1")).json(), "step")
    wait_for(read)
    first = len(read())
    beside = {ask() for _ in range(4)}
    wait_for(lambda: beside.add(ask()) or len(read()) > first)  # it goes on meanwhile
    s.lab.ask(f"/v1/runs/{id}", method="DELETE")
    whole(s.lab, id)
    equal(beside, {alone}, "hashes of answers")


# -------------------------------------------------------------------------------------------------- --watch
class Watched:
    """`rapt train --watch` as a process; ask() as a server's."""

    def __init__(self, args, out, *flags, port=0):
        data = pathlib.Path(out).with_suffix(".txt")
        data.write_text(TEXT)
        words = ["train", "gpt-char", "--data", data, "--vocab", "characters", "--length", 32, "--batch", 8,
                 "--seed", 3, "--rate", 0.003, "--out", out, *[w for x in SMALL for w in ("--set", x)],
                 "--watch", "--watch-port", port, *flags]
        self.process = subprocess.Popen([args.rapt, *map(str, words)], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        self.said = ""
        for line in self.process.stderr:
            self.said += line
            if "watch it at http://" in line:
                self.port = int(line.rstrip("/\n").rsplit(":", 1)[1])
                break
        else:
            raise Fault(f"no address: {self.said}")
        threading.Thread(target=lambda: self.process.stderr.read(), daemon=True).start()

    path = None
    ask, connect, host = Server.ask, Server.connect, Server.host

    def end(self):
        self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise Fault("it does not end") from None


@test
def watching_changes_nothing_and_shows_everything(s):
    alone = rapt_train(s.args, s.work / "unseen")
    w = Watched(s.args, s.work / "seen", "--steps", 60, "--eval-every", 3, "--eval-batches", 4, "--set",
                "train.health_every=1", "--watch-stay")
    try:
        events = lambda: good(w.ask("/v1/train/events?once=1")).json()
        wait_for(lambda: w.ask("/v1/train/events?once=1").status == 200 and events()[-1]["kind"] == "end")
        told = events()
        seen = [json.loads(line) for line in (s.work / "seen" / "metrics.jsonl").read_text().splitlines()]
        value = lambda lines, key: [l[key] for l in lines if key in l]
        for key in ("loss", "norm", "rate", "held_out_loss", "attention"):
            equal(value(seen, key), value(alone, key), f"{key}, watched and not")
        equal(column(told, "loss"), value(seen, "loss"))
        equal(of(told, "heads")[-1]["values"], of(s.trained(), "heads")[-1]["values"])
        equal((s.work / "seen" / "model" / "model.safetensors").read_bytes(),
              (s.work / "unseen" / "model" / "model.safetensors").read_bytes(), "the model")
        # A page with no model: it looks and does nothing.
        equal(good(w.ask("/v1/models")).json()["data"], [])
        equal((good(w.ask("/props")).json()["watch"], good(w.ask("/props")).json()["lab"]), (True, None))
        expect("text/html" in good(w.ask("/")).headers["content-type"], "no page")
        equal(w.ask("/v1/train/run", RUN).status, 403)
        id = good(w.ask("/v1/runs")).json()["data"][0]["id"]
        equal(w.ask(f"/v1/runs/{id}", method="DELETE").status, 403)
        equal(w.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}).status, 404)
        equal(w.ask("/v1/look", {"text": "a", "want": ["tokens"]}).status, 404)
        for path in ("/slots", "/limits", "/metrics", "/monitor?once=1", "/slots?fail_on_no_slot=1"):
            good(w.ask(path))
        equal(w.ask("/tokenizer_info").status, 404)
        equal(w.ask("/v1/models", headers={"Host": "evil.example"}).status, 403)
        expect(w.process.poll() is None, "it did not stay")
    finally:
        code = w.end()
    equal(code, 0)


@test
def a_run_that_goes_on_shows_what_was_before(s):
    out = s.work / "later"
    rapt_train(s.args, out)
    w = Watched(s.args, out, "--steps", 90, "--eval-every", 3, "--eval-batches", 4, "--schedule", "cosine",
                "--set", "train.health_every=1", "--watch-stay")
    try:
        events = lambda: good(w.ask("/v1/train/events?once=1")).json()
        wait_for(lambda: w.ask("/v1/train/events?once=1").status == 200 and events()[-1]["kind"] == "end")
        equal(column(events(), "step"), list(range(1, 91)))
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        equal(column(events(), "loss"), [l["loss"] for l in lines if "loss" in l])
    finally:
        w.end()


def main():
    args = arguments(__doc__)
    servers = Servers(args)
    try:
        code = run_tests(args, servers)
    finally:
        bad = servers.close()
    for server in bad:
        print(f"a server ended badly: {server.errors()[-500:]}")
    sys.exit(code or bool(bad))


if __name__ == "__main__":
    main()
