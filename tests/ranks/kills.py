#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A random rank of a training is killed (SIGKILL) at a random moment, again and again, and each time the same
command goes on with another number of ranks: no state that was reported may be missing or damaged, and every
run ends in the bits of one that nobody touched.

  kills.py --rapt build/rapt [--launcher openmpi|mpich|sockets] [--kills 200] [--seed 1]
"""

import argparse
import contextlib
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
import zlib

from ranks_test import RUN, Job, last_step, launchers

STEPS = 50
WORDS = RUN + ["--steps", str(STEPS), "--save-every", "1", "--eval-every", "20"]
WORDS += ["--set", "train.optimizer.ema=0.9"]


def descendants(pid):
    """Processes below this one, by /proc."""
    children = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError, IndexError, ValueError):
            with open(f"/proc/{name}/stat", encoding="latin-1") as f:
                children.setdefault(int(f.read().rsplit(")", 1)[1].split()[1]), []).append(int(name))
    out, wait = [], [pid]
    while wait:
        for child in children.get(wait.pop(), []):
            out.append(child)
            wait.append(child)
    return out


def ranks_of(job, rapt):
    """Its processes that are ranks by now: they run the program."""
    out = []
    for p in job.processes:
        for pid in [p.pid, *descendants(p.pid)]:
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{pid}/exe") == os.path.realpath(rapt):
                    out.append(pid)
    return sorted(out)


def states(folder):
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return {int(n[5:]): os.path.join(folder, n) for n in names if re.fullmatch(r"step-\d+", n)}


def whole(state):
    """By its manifest: every file with its length and sum."""
    with open(os.path.join(state, "manifest.json"), encoding="utf8") as f:
        manifest = json.load(f)
    for file in manifest["files"]:
        with open(os.path.join(state, file["name"]), "rb") as f:
            data = f.read()
        if len(data) != file["bytes"] or f"{zlib.crc32(data):08x}" != file["crc32"]:
            return False
    return len(manifest["files"]) > 2


def reported(folder):
    """The last state that rank 0 said was saved."""
    step = -1
    path = os.path.join(folder, "metrics.jsonl")
    if not os.path.exists(path):
        return step
    with open(path, encoding="utf8") as f:
        for line in f:
            with contextlib.suppress(ValueError):  # cut short by a kill
                if json.loads(line).get("event", "").startswith("saved "):
                    step = max(step, json.loads(line)["step"])
    return step


def result(folder):
    """All bytes of the last state and of the model."""
    out = {}
    for part in [f"step-{STEPS}", "model"]:
        for name in sorted(os.listdir(os.path.join(folder, part))):
            with open(os.path.join(folder, part, name), "rb") as f:
                out[f"{part}/{name}"] = f.read()
    return out


class Count:
    kills = runs = saving = starting = early = lost = damaged = other = 0
    ranks = {}


def start(launcher, rapt, ranks, folder):
    return Job(launcher, [{"ranks": ranks, "words": [rapt, *WORDS, "--out", folder]}])


def kill_one(job, rapt, ranks, folder, draw):
    """At a random moment; which rank, or None where the run had come to its end before."""
    begun, first = time.time(), last_step(folder)
    early = draw.random() < 0.25
    delay = draw.uniform(0, 1.5) if early else draw.expovariate(1 / 0.05)
    steps = first + draw.randint(0, 5)
    while all(p.poll() is None for p in job.processes):
        there = ranks_of(job, rapt)
        if there and (time.time() - begun >= delay if early else last_step(folder) > steps):
            if not early:
                time.sleep(delay)
            with contextlib.suppress(ProcessLookupError):
                os.kill(draw.choice(there), signal.SIGKILL)
                Count.starting += early
                return len(there)
        time.sleep(0.01)
    return None


def one_run(launcher, args, folder, draw):
    """To its end, killed on the way as often as is left to do."""
    while True:
        ranks = draw.randint(1, 8)
        before = reported(folder)
        job = start(launcher, args.rapt, ranks, folder)
        killed = kill_one(job, args.rapt, ranks, folder, draw) if Count.kills < args.kills else None
        code = job.wait(300)
        if code == 0 and killed is None:
            return
        if killed is None:
            raise AssertionError(f"{ranks} ranks ended with {code}, and nobody was killed:\n{job.text}")
        Count.kills += 1
        Count.ranks[ranks] = Count.ranks.get(ranks, 0) + 1
        left = os.listdir(folder) if os.path.isdir(folder) else []
        Count.saving += any(n.startswith(".tmp-step-") for n in left)
        there, said = states(folder), reported(folder)
        Count.lost += max(there, default=-1) < said
        Count.damaged += not all(whole(s) for s in there.values())
        goes_on = re.search(r"goes on from \S+ \(step (\d+)\)", job.text)
        if "WARNING" in job.text or (before >= 0 and goes_on and int(goes_on[1]) < before):
            Count.damaged += 1
        if Count.kills % 20 == 0:
            print(f"{Count.kills} kills, {Count.runs} runs, {Count.lost} lost", flush=True)
        if code == 0:  # the kill came when all was done
            Count.early += 1
            return


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rapt", required=True)
    parser.add_argument("--launcher", default="openmpi")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.rapt = os.path.abspath(args.rapt)
    which = "sockets" if args.launcher == "sockets" else "mpi"
    found = [x for x in launchers(os.path.dirname(args.rapt), which) if x.name == args.launcher]
    if not found:
        sys.exit(f"no {args.launcher} here")
    draw, begun = random.Random(args.seed), time.time()
    with tempfile.TemporaryDirectory(prefix="rapt-kills-") as root:
        untouched = os.path.join(root, "untouched")
        job = start(found[0], args.rapt, 3, untouched)
        if job.wait(300) != 0:
            sys.exit(f"the untouched run failed:\n{job.text}")
        expected = result(untouched)
        while Count.kills < args.kills or Count.runs == 0:
            folder = os.path.join(root, f"run-{Count.runs}")
            one_run(found[0], args, folder, draw)
            ended = result(folder)
            Count.runs += 1
            for name in sorted(set(expected) | set(ended)):
                if expected.get(name) != ended.get(name):
                    Count.other += 1
                    print(f"{folder}: {name} is not that of the untouched run", flush=True)
    print(
        f"{args.launcher}: {Count.kills} kills of one rank ({Count.saving} while a state was written,"
        f" {Count.starting} while the ranks started or soon after, {Count.early} after the end;"
        f" by number of ranks {dict(sorted(Count.ranks.items()))}), {Count.runs} runs to their end:"
        f" {Count.lost} states lost, {Count.damaged} damaged, {Count.other} files of other bytes"
        f" ({time.time() - begun:.0f} s)"
    )
    sys.exit(1 if Count.lost or Count.damaged or Count.other else 0)


if __name__ == "__main__":
    main()
