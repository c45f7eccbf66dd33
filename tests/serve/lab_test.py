#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The laboratory over HTTP (`rapt serve --lab`): the guide, experiments that run inside the sandbox with the
values of `rapt lab`, their events, stopping, and an end of the server that does not wait for them.

  tests/serve/lab_test.py [--rapt build/rapt] [--only PATTERN]
"""
import concurrent.futures
import contextlib
import json
import os
import pathlib
import resource
import sys
import tempfile
import time

from server import (Fault, Server, arguments, equal, expect, message, rapt_json, rapt_text, run_tests, test)

KEY, OTHER = "canary-key-of-the-first", "canary-key-of-another"
SLOW = {"experiment": "residual", "seed": 1}  # a quarter of a minute, most of it training


class Servers:
    def __init__(self, args):
        self.args = args
        self.folder = tempfile.TemporaryDirectory()
        keys = pathlib.Path(self.folder.name, "keys")
        keys.write_text(f"{KEY}\n{OTHER}\n")
        keys.chmod(0o600)
        self.lab = Server(args, "--lab")
        self.keyed = Server(args, "--lab", "--key-file", keys)
        self.without = Server(args)

    def close(self):
        bad = [s for s in (self.lab, self.keyed, self.without) if s.stop() != 0]
        self.folder.cleanup()
        return bad


def good(reply, status=200):
    if reply.status != status:
        raise Fault(f"status {reply.status}: {reply.body[:500]!r}")
    return reply


def refused(reply, status, code=None, param=None):
    equal(reply.status, status, reply.body[:300])
    e = reply.error()
    if code:
        equal(e["code"], code, e["message"])
    if param:
        equal(e["param"], param, e["message"])
    return e["message"]


def begin(server, headers=None, **what):
    return good(server.ask("/v1/lab/run", what, headers=headers)).json()["id"]


def events(server, id, query="", headers=None):
    """All events of a run, as they come, to its end."""
    reply = good(server.ask(f"/v1/runs/{id}{query}", headers=headers, timeout=120))
    expect(reply.headers["content-type"].startswith("text/event-stream"), reply.headers)
    return [json.loads(line[6:]) for line in reply.text().splitlines() if line.startswith("data: ")]


def runs(server, headers=None):
    return good(server.ask("/v1/runs", headers=headers)).json()["data"]


def ended(server, id, within=15):
    began = time.monotonic()
    while (one := next(r for r in runs(server) if r["id"] == id))["running"]:
        expect(time.monotonic() - began < within, f"still running after {within} s")
        time.sleep(0.02)
    return one["how"], time.monotonic() - began


def finding(f):
    """What a finding of a run and one of `rapt lab --json` have in common."""
    return [f["measured"], f["holds"], f["every_seed"]]


def guide(s, *topic):
    return json.loads(rapt_text(s.args, "guide", *topic, "--json"))


def english(text):
    return text if isinstance(text, str) else text["en"]


# ------------------------------------------------------------------------------------------------ the guide
@test
def the_guide_is_the_guide(s):
    lab = good(s.lab.ask("/v1/lab")).json()
    equal([t["name"] for t in lab["topics"]], [t["name"] for t in guide(s)])
    listed = {e["name"]: e for e in rapt_json(s.args, "lab")}
    equal([e["name"] for e in lab["experiments"]], list(listed))
    for e in lab["experiments"]:
        one = listed[e["name"]]
        equal([english(e["question"]), english(e["claim"]), e["minutes"]],
              [one["question"], one["claim"], one["minutes"]])
        expect(any("\u4e00" <= c <= "\u9fff" for c in e["question"]["zh"]), e["name"], "has no Chinese")
    shown = 0
    for topic in lab["topics"]:
        document = guide(s, topic["name"])
        equal(english(topic["title"]), document["title"])
        words = [p["text"] for p in document["parts"] if p["kind"] == "words"]
        equal(english(topic["about"]), words[0])
        for i, q in enumerate(topic["questions"]):
            mark = english(lab["marks"][q["mark"]])
            equal([f"“{english(q['says'])}” — {mark}", english(q["why"]), f"Command: `{q['command']}`"],
                  words[1 + 3 * i:4 + 3 * i], q["id"])
        for part in document["parts"]:
            if part["kind"] in ("table", "chart", "map"):
                shown += 1
    expect(shown > 50, "pictures and tables of the guide")
    # A question's picture and numbers are those of the guide.
    norms = guide(s, "norms")["parts"]
    own = good(s.lab.ask("/v1/lab/questions/norms.none")).json()
    equal([p["kind"] for p in own["documents"]["en"]["parts"]], ["chart", "table"])
    equal(own["documents"]["en"]["parts"][0], next(p for p in norms if p["kind"] == "chart"))
    cells = [[str(c) for c in row] for row in next(p for p in norms if p["kind"] == "table")["rows"]]
    equal(own["documents"]["en"]["parts"][1]["rows"], cells)
    expect(own["documents"]["zh"] != own["documents"]["en"], "one language twice")
    # A question that shares its experiment has the numbers, too: it is shown alone.
    alone = good(s.lab.ask("/v1/lab/questions/norms.end")).json()
    equal([p["kind"] for p in alone["documents"]["en"]["parts"]][-1], "table")
    stored = good(s.lab.ask("/v1/lab/experiments/gate")).json()
    equal([r["seed"] for r in stored["results"]], [0, 1, 2])
    expect("did you mean 'norms.none'" in refused(s.lab.ask("/v1/lab/questions/norms.non"), 404))
    expect("did you mean 'gate'" in refused(s.lab.ask("/v1/lab/experiments/gates"), 404))


@test
def without_lab_nothing_is_there(s):
    for path in ("/v1/lab", "/lab", "/v1/lab/questions/norms.none", "/v1/lab/experiments/gate", "/v1/runs",
                 "/v1/runs/x"):
        refused(s.without.ask(path), 404, "route_not_found")
    refused(s.without.ask("/v1/lab/run", {"experiment": "softmax"}), 404, "route_not_found")
    equal(s.without.ask("/props").json()["lab"], None)
    equal(s.lab.ask("/props").json()["lab"], {"saves": False})
    openapi = s.lab.ask("/openapi.json").json()
    for path in ("/v1/lab", "/v1/lab/run", "/v1/lab/questions/{id}", "/v1/lab/experiments/{name}",
                 "/v1/runs", "/v1/runs/{id}"):
        expect(path in openapi["paths"], path)
    there = s.without.ask("/openapi.json").json()["paths"]
    equal([path for path in there if "lab" in path or "run" in path or "train" in path], [])
    equal(sorted(openapi["components"]["schemas"]["lab_run"]["properties"]),
          ["effort", "experiment", "seed", "text"])


@test
def what_is_wrong_is_named(s):
    run = lambda **body: s.lab.ask("/v1/lab/run", body)
    expect("did you mean 'gate'" in refused(run(experiment="gat"), 400, "invalid_value", "experiment"))
    refused(run(), 400, param="experiment")
    refused(run(experiment=7), 400, param="experiment")
    for seed in (-1, 1.5, "1", 2**40 + 1, 1e300):
        refused(run(experiment="softmax", seed=seed), 400, param="seed")
    for effort in (0, -1, 1.01, "full"):
        refused(run(experiment="softmax", effort=effort), 400, param="effort")
    expect("did you mean 'seed'" in refused(run(experiment="softmax", sed=1), 400, param="sed"))
    refused(run(experiment="softmax", text="x" * (1 << 20) + "y"), 400, param="text")
    for name in ("real-massive", "massive MODEL", "../gate", "sink@SmolLM2-135M"):
        refused(run(experiment=name), 400, param="experiment")
    refused(s.lab.ask("/v1/lab/run", method="GET"), 405)
    equal(runs(s.lab), [], "nothing of this ran")


# ------------------------------------------------------------------------------------------------ runs
@test
def a_run_has_the_values_of_the_command_line(s):
    for name, seed, effort in (("key-bias", 3, 1), ("padding", 7, 1), ("moe", 5, 0.1),
                               ("norm-place", 9, 0.05)):
        got = events(s.lab, begin(s.lab, experiment=name, seed=seed, effort=effort))
        equal(got[-1], {"kind": "end", "how": "done"})
        equal([e["kind"] for e in got].count("result"), 1)
        result = got[-2]
        equal([result["kind"], result["experiment"], result["seed"], result["effort"]],
              ["result", name, seed, effort])
        wanted = rapt_json(s.args, "lab", name, "--seed", seed, "--effort", effort)
        found = wanted["facts"]["findings"]
        equal([finding(f) for f in result["findings"]], [finding(f) for f in found], name)
        equal([english(f["what"]) for f in result["findings"]], [f["what"] for f in found])
        equal(english(result["verdict"]), wanted["facts"]["verdict"])
        figures = [p for p in wanted["parts"] if p["kind"] in ("chart", "map")]
        expect(figures, "a figure")
        equal([p for p in result["documents"]["en"]["parts"] if p["kind"] in ("chart", "map")], figures)
        said = result["documents"]["en"]["parts"][-1]["text"]
        expect(said.startswith(f"Seed {seed}, ") and "thread" in said, said)
        expect(result["documents"]["zh"]["parts"][-1]["text"].startswith(f"种子 {seed}"), "no Chinese")
        for e in got:
            if e["kind"] == "progress":
                expect(0 <= e["done"] <= e["of"] and e["seconds"] >= 0 and e["what"], e)
    expect(any(e["kind"] == "progress" for e in got), "the trained one told how far it was")


@test
def events_are_there_for_who_comes_later(s):
    id = begin(s.lab, experiment="depth", seed=2, effort=0.1)
    all_of_them = events(s.lab, id)  # as they come
    expect(len(all_of_them) > 3, all_of_them)
    equal(events(s.lab, id), all_of_them, "once more")
    equal(events(s.lab, id, "?from=2"), all_of_them[2:])
    equal(good(s.lab.ask(f"/v1/runs/{id}?from=1&once=1")).json(), all_of_them[1:])
    equal(good(s.lab.ask(f"/v1/runs/{id}?once=1&from=999")).json(), [])
    refused(s.lab.ask(f"/v1/runs/{id}?from=-1"), 400, param="from")
    one = runs(s.lab)[0]
    equal([one["id"], one["kind"], one["running"], one["how"], one["experiment"], one["seed"], one["effort"]],
          [id, "lab", False, "done", "depth", 2, 0.1])
    expect(0 < one["seconds"] < 60, one)
    refused(s.lab.ask("/v1/runs/nonsense"), 404, "run_not_found")
    refused(s.lab.ask("/v1/runs/nonsense", method="DELETE"), 404, "run_not_found")


@test
def one_at_a_time_and_stopped(s):
    id = begin(s.lab, **SLOW)
    busy = s.lab.ask("/v1/lab/run", {"experiment": "softmax"})
    refused(busy, 429, "lab_busy")
    expect("retry-after" in busy.headers, busy.headers)
    answer = good(s.lab.ask("/v1/completions", {"prompt": "While it runs", "max_tokens": 4, "seed": 1}))
    expect(answer.json()["choices"][0]["text"], "answers are written meanwhile")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        reading = pool.submit(events, s.lab, id)  # a reader who is there when it is stopped
        while not any(e["kind"] == "progress" for e in s.lab.ask(f"/v1/runs/{id}?once=1").json()):
            time.sleep(0.02)
        good(s.lab.ask(f"/v1/runs/{id}", method="DELETE"), 204)
        how, took = ended(s.lab, id)
        equal(how, "stopped")
        expect(took < 5, f"it took {took:.1f} s to stop")
        equal(reading.result(30)[-1], {"kind": "end", "how": "stopped"})
    good(s.lab.ask(f"/v1/runs/{id}", method="DELETE"), 204)  # once more: nothing
    equal(events(s.lab, begin(s.lab, experiment="softmax"))[-1]["how"], "done", "the next one may run")


@test
def keys_have_runs_of_their_own(s):
    mine, theirs = ({"Authorization": f"Bearer {k}"} for k in (KEY, OTHER))
    for path in ("/v1/lab", "/v1/lab/questions/norms.none", "/v1/lab/experiments/gate", "/v1/runs",
                 "/v1/runs/x"):
        refused(s.keyed.ask(path), 401)
        refused(s.keyed.ask(path, headers={"Authorization": "Bearer wrong"}), 401)
    refused(s.keyed.ask("/v1/lab/run", {"experiment": "softmax"}), 401)
    id = begin(s.keyed, mine, experiment="key-bias")
    equal(events(s.keyed, id, headers=mine)[-1]["how"], "done")
    equal([r["id"] for r in runs(s.keyed, mine)], [id])
    equal(runs(s.keyed, theirs), [])
    for method in ("GET", "DELETE"):
        refused(s.keyed.ask(f"/v1/runs/{id}", method=method, headers=theirs), 404, "run_not_found")


# ------------------------------------------------------------------------------------------------ bad ends
@test
def a_text_that_is_too_short_ends_in_words(s):
    end = events(s.lab, begin(s.lab, experiment="ffn", effort=0.01, text="too short"))[-1]
    equal([end["how"], end["code"]], ["failed", "failed"])
    expect("9 bytes" in end["error"] and "want at least" in end["error"], end)
    text = "A text of one's own, said again and again. " * 40
    got = events(s.lab, begin(s.lab, experiment="ffn", effort=0.01, text=text))[-2]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(text)
        file.flush()
        wanted = rapt_json(s.args, "lab", "ffn", "--effort", 0.01, "--text", file.name)["facts"]["findings"]
    equal([f["measured"] for f in got["findings"]], [f["measured"] for f in wanted])


@test
def no_memory_ends_the_run_and_not_the_server(s):
    with Server(s.args, "--lab", "--threads", "1") as server:
        good(server.ask("/v1/completions", {"prompt": "Before", "max_tokens": 2}))
        status = pathlib.Path(f"/proc/{server.pid}/status").read_text()
        size = int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmSize:"))) * 1024
        before = resource.prlimit(server.pid, resource.RLIMIT_AS, (size + (24 << 20), resource.RLIM_INFINITY))
        id = begin(server, experiment="residual", effort=0.1)  # wants some 130 MB
        end = events(server, id)[-1]
        resource.prlimit(server.pid, resource.RLIMIT_AS, before)
        equal(end["how"], "failed")
        expect("memory" in end["error"], end)
        expect(server.alive(), server.errors())
        good(server.ask("/v1/completions", {"prompt": "After", "max_tokens": 2}))
        equal(events(server, begin(server, experiment="key-bias"))[-1]["how"], "done", "the next one runs")
        equal(server.stop(), 0)


@test
def the_end_of_the_server_does_not_wait_for_a_run(s):
    with Server(s.args, "--lab") as server:
        id = begin(server, **SLOW)
        with contextlib.closing(server.connect()) as c:
            c.sendall(message(server.host(), f"/v1/runs/{id}"))
            c.recv(12)
            while not any(e["kind"] == "progress" for e in server.ask(f"/v1/runs/{id}?once=1").json()):
                time.sleep(0.02)
            began = time.monotonic()
            equal(server.stop(), 0, "the exit code")
            took = time.monotonic() - began
            expect(took < 5, f"it took {took:.1f} s")


def main():
    args = arguments(__doc__)
    os.environ.pop("RAPT_LANG", None)
    servers = Servers(args)
    try:
        code = run_tests(args, servers)
    finally:
        bad = servers.close()
    if bad:
        print("a server did not end as it should:", *[b.errors()[-600:] for b in bad], sep="\n")
    return 1 if bad else code


sys.exit(main())
