#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks as processes: under Open MPI's mpirun, MPICH's mpiexec and torchrun's variables (sockets). The bits
of a training are those of one rank; one that is killed, stopped, mixed up or told to end does what
docs/training.md says, with a message that names it. A launcher that is not here is left out, aloud.

  ranks_test.py mpi|sockets --rapt build/rapt --tool build/rapt_ranks_tool [--only NAME]
"""

import argparse
import concurrent.futures
import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

SMALL = [
    "train",
    "llama3",
    "--data",
    "copy",
    "--set",
    "width=32",
    "--set",
    "layers=2",
    "--set",
    "heads=4",
    "--set",
    "kv_heads=2",
    "--set",
    "ffn=64",
    "--set",
    "dropout=0.1",
    "--batch",
    "2",
    "--length",
    "32",
]
STEPS = 12
RUN = SMALL + ["--accumulate", "5", "--optimizer", "muon", "--set", "train.save_minutes=0"]
LONG = RUN + ["--steps", "100000", "--schedule", "constant", "--save-every", "5"]


def environment(**more):
    env = {
        k: v
        for k, v in os.environ.items()
        if not re.match(r"(OMPI|PMI|PMIX|SLURM|MPI|RANK|WORLD|LOCAL|MASTER)", k)
    }
    env.update(RAPT_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    env.update(more)
    return env


JOBS = []  # to be ended where a test fails


class Job:
    """Several ranks, started by a launcher; what they print is read as it comes."""

    def __init__(self, launcher, commands, env=None):
        self.text, self.name = "", launcher.name
        self.processes = launcher.start(commands, environment(**(env or {})))
        JOBS.append(self)
        self.readers = [threading.Thread(target=self.read, args=(p.stdout,)) for p in self.processes]
        for reader in self.readers:
            reader.start()

    def read(self, pipe):
        for line in pipe:
            self.text += line

    def wait(self, seconds=60):
        """The first exit code that is not 0."""
        end = time.time() + seconds
        try:
            codes = [p.wait(max(0.1, end - time.time())) for p in self.processes]
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name}: no end after {seconds} s:\n{self.text}") from None
        for reader in self.readers:
            reader.join(5)
        return next((c for c in codes if c), 0)

    def kill(self):
        for p in self.processes:
            with contextlib.suppress(ProcessLookupError):
                if p.poll() is None:
                    os.killpg(p.pid, signal.SIGKILL)

    def expect(self, pattern, seconds=30):
        end = time.time() + seconds
        while time.time() < end:
            if re.search(pattern, self.text):
                return
            time.sleep(0.05)
        self.kill()
        raise AssertionError(f"{self.name}: no /{pattern}/ in\n{self.text}")


class Mpi:
    def __init__(self, name, program, flags):
        self.name, self.program, self.flags = name, program, flags

    def start(self, commands, env):
        words = [self.program, *self.flags]
        for i, command in enumerate(commands):
            more = [f"{k}={v}" for k, v in command.get("env", {}).items()]
            words += [":"] if i else []
            words += ["-n", str(command["ranks"]), *(["env", *more] if more else []), *command["words"]]
        return [
            subprocess.Popen(
                words,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=env,
                errors="replace",
                start_new_session=True,
            )
        ]

    def ask_to_stop(self, job, _pids):
        job.processes[0].send_signal(signal.SIGUSR1 if self.name == "openmpi" else signal.SIGINT)


class Sockets:
    name = "sockets"

    def start(self, commands, env):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        ranks = [c for c in commands for _ in range(c["ranks"])]
        return [
            subprocess.Popen(
                c["words"],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
                env={
                    **env,
                    **c.get("env", {}),
                    "RANK": str(r),
                    "WORLD_SIZE": str(len(ranks)),
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port),
                    "RAPT_RANK_CONNECT": "30",
                },
            )
            for r, c in enumerate(ranks)
        ]

    def ask_to_stop(self, _job, pids):
        os.kill(pids[1], signal.SIGTERM)


def launchers(build, which):
    if which == "sockets":
        return [Sockets()]
    out = []
    for name, programs, flags in [
        ("openmpi", ["mpirun.openmpi", "mpirun"], ["--oversubscribe", "--bind-to", "none"]),
        ("mpich", ["mpiexec.mpich", "mpiexec.hydra"], []),
    ]:
        found = next((p for p in map(shutil.which, programs) if p), None)
        if not found or not os.path.exists(os.path.join(build, f"rapt_mpi_{name}.so")):
            print(f"SKIPPED: {name}: no {programs[0]}, or rapt_mpi_{name}.so is not built (scripts/setup)")
        else:
            out.append(Mpi(name, found, flags))
    return out


def check(what, condition, text=""):
    if not condition:
        raise AssertionError(f"{what}\n{text}")


def weights(folder):
    with open(os.path.join(folder, "model", "model.safetensors"), "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def losses(folder):
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf8") as f:
        lines = [json.loads(line) for line in f]
    return [(line["step"], line["loss"], line["norm"]) for line in lines if "loss" in line and "norm" in line]


def last_step(folder):
    with contextlib.suppress(OSError, IndexError):
        return losses(folder)[-1][0]
    return 0


def pids_of(folder, ranks):
    """From the files in which ranks say what they are at (rapt/comm/heartbeat.cc)."""
    out = []
    for r in range(ranks):
        with open(os.path.join(folder, ".ranks", f"rank-{r}"), "rb") as f:
            out.append(struct.unpack("<3Q", f.read(24))[2])
    return out


def wait_for_step(job, folder, step, seconds=40):
    end = time.time() + seconds
    while last_step(folder) < step:
        if time.time() > end:
            job.kill()
            raise AssertionError(f"{job.name}: no step {step} in {folder}:\n{job.text}")
        time.sleep(0.05)


def connected(port, seconds=20):
    end = time.time() + seconds
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), 5)
        except ConnectionRefusedError:
            if time.time() > end:
                raise
            time.sleep(0.02)


class Tests:
    def __init__(self, args, folder):
        self.rapt, self.tool, self.folder = args.rapt, args.tool, folder
        self.launchers = launchers(os.path.dirname(os.path.abspath(args.rapt)), args.which)

    def out(self, name):
        return os.path.join(self.folder, name)

    def job(self, launcher, ranks, words, **env):
        return Job(launcher, [{"ranks": ranks, "words": words}], env)

    def train(self, launcher, ranks, words, out, **env):
        return self.job(launcher, ranks, [self.rapt, *words, "--out", out], **env)

    def alone(self, words, out):
        done = subprocess.run(
            [self.rapt, *words, "--out", out], capture_output=True, text=True, env=environment(), check=False
        )
        check("one rank, no launcher", done.returncode == 0, done.stderr)
        return weights(out)

    def test_bytes_and_disagreement(self):
        for launcher in self.launchers:
            job = self.job(launcher, 3, [self.tool, "move"])
            check(f"{launcher.name}: move", job.wait() == 0 and "move: 3 ranks, done" in job.text, job.text)
            for what, said in [
                ("disagree", "comm: rank 0 calls barrier, rank 1 broadcast"),
                ("lengths", "rank 0 sends 3 bytes to rank 1, which expects 1"),
                ("early", "comm: rank 1 of 3 has ended while others wait for it"),
                ("fail", "error: rank 1 of 3: the disk is full"),
            ]:
                job = self.job(launcher, 3, [self.tool, what])
                check(f"{launcher.name}: {what} ends the job", job.wait() != 0, job.text)
                check(f"{launcher.name}: {what}", said in job.text, job.text)
                if launcher.name != "sockets":
                    check(
                        f"{launcher.name}: {what} is said once", job.text.count("error: rank") == 1, job.text
                    )

    def test_bits_of_one_rank(self):
        words = RUN + ["--steps", str(STEPS)]
        expected, folder = self.alone(words, self.out("alone")), self.out("alone")
        counts = {"openmpi": [1, 2, 3, 8], "mpich": [2, 3], "sockets": [2, 3]}
        for launcher in self.launchers:
            for ranks in counts[launcher.name]:
                out = self.out(f"{launcher.name}-{ranks}")
                job = self.train(launcher, ranks, words, out)
                check(f"{launcher.name} {ranks}", job.wait() == 0, job.text)
                check(f"{launcher.name} {ranks}: same weights", weights(out) == expected, job.text)
                check(f"{launcher.name} {ranks}: same metrics", losses(out) == losses(folder), job.text)
                check(f"{launcher.name} {ranks}: one voice", job.text.count("held out: loss") == 1, job.text)
                check("nothing is left behind", not os.path.exists(os.path.join(out, ".ranks")))
                if ranks > 1:
                    check(
                        "who computes what is said",
                        f"{ranks} ranks by " in job.text and "a step" in job.text,
                        job.text,
                    )
                if ranks == 8:
                    check(
                        "so is that there are more ranks than batches",
                        "3 of 8 ranks have no batch" in job.text,
                        job.text,
                    )

    def test_killed_rank(self):
        for launcher in self.launchers:
            out = self.out(f"killed-{launcher.name}")
            job = self.train(launcher, 3, LONG, out)
            wait_for_step(job, out, 8)
            os.kill(pids_of(out, 3)[1], signal.SIGKILL)
            check(f"{launcher.name}: the job ends", job.wait() != 0, job.text)
            named = {"openmpi": "rank 1 ", "mpich": "Killed (signal 9)", "sockets": "rank 1 of 3 has ended"}
            check(f"{launcher.name}: who died is said", named[launcher.name] in job.text, job.text)
            step = last_step(out) + 4
            job = self.train(launcher, 2, LONG[:-6] + ["--steps", str(step), "--schedule", "constant"], out)
            check(f"{launcher.name}: goes on with two", job.wait() == 0, job.text)
            # mpiexec of MPICH kills the others at once: who was first may not be seen.
            said = re.search(r"without a word of rank (\d) of 3.*", job.text)
            check(
                f"{launcher.name}: the next run says who",
                said and (said[1] == "1" or launcher.name == "mpich" and re.search(r"same time.*1", said[0])),
                job.text,
            )
            expected = self.alone(
                LONG[:-6] + ["--steps", str(step), "--schedule", "constant"],
                self.out(f"never-{launcher.name}"),
            )
            check(f"{launcher.name}: same weights", weights(out) == expected, job.text)

    def test_packed_data_goes_on_in_any_number(self):
        text, packed = self.out("text.txt"), self.out("text.bin")
        with open(text, "w", encoding="utf8") as f:
            f.writelines(f"{n} and {n} are {n + n}, {n * n % 97} is left\n" for n in range(800))
        subprocess.run([self.rapt, "data", text, "--out", packed, "--vocab", "bytes", "-q"], check=True)
        words = ["train", "gpt-char", "--data", packed, "--batch", "3", "--length", "32", "--accumulate", "7"]
        words += [w for key in ("width=32", "layers=2", "heads=4", "ffn=64") for w in ("--set", key)]
        words += ["--set", "dropout=0.1", "--windows", "shuffled", "--save-every", "3"]
        words += ["--eval-batches", "5", "--schedule", "constant"]
        expected = self.alone(words + ["--steps", "8"], self.out("packed"))
        for launcher in self.launchers:
            out = self.out(f"packed-{launcher.name}")
            for ranks, steps in [(4, 3), (2, 5), (3, 8)]:
                job = self.train(launcher, ranks, words + ["--steps", str(steps)], out)
                check(f"{launcher.name} {ranks}", job.wait() == 0, job.text)
            check(f"{launcher.name}: went on", "goes on from" in job.text, job.text)
            check(f"{launcher.name}: same weights", weights(out) == expected, job.text)
            for name in os.listdir(os.path.join(out, "step-8")):
                one, many = (os.path.join(f, "step-8", name) for f in (self.out("packed"), out))
                with open(one, "rb") as a, open(many, "rb") as b:
                    check(f"{launcher.name}: step-8/{name}", a.read() == b.read())

    def test_full_disk_of_one_rank(self):
        words = RUN + ["--schedule", "constant", "--save-every", "2"]
        expected = self.alone(words + ["--steps", "6"], self.out("roomy"))
        for launcher in self.launchers:
            if launcher.name == "mpich":  # the memory that its ranks share is files, too
                continue
            out = self.out(f"full-{launcher.name}")
            job = self.train(launcher, 3, words + ["--steps", "2"], out)
            check(f"{launcher.name}: room for all", job.wait() == 0, job.text)
            more = [self.rapt, *words, "--steps", "6", "--out", out]
            # No file of this rank grows beyond 40 KiB, as on a full disk.
            small = ["bash", "-c", "trap '' XFSZ; ulimit -f 40; exec \"$@\"", "-", *more]
            job = Job(launcher, [{"ranks": 1, "words": more}, {"ranks": 1, "words": small}])
            check(f"{launcher.name}: ends", job.wait() != 0, job.text)
            said = r"saving step 4 failed: rank 1 of 2: .*optimizer.safetensors: cannot reserve room"
            check(f"{launcher.name}: says why", re.search(said, job.text), job.text)
            stands = "nothing that was saved before is lost: step-0, step-2"
            check("and what stands", stands in job.text, job.text)
            left = {n for n in os.listdir(out) if re.match(r"step|\.tmp", n)}
            check(f"{launcher.name}: nothing by halves", left == {"step-0", "step-2"}, str(left))
            job = self.train(launcher, 4, words + ["--steps", "6"], out)
            check(f"{launcher.name}: goes on", job.wait() == 0, job.text)
            check(f"{launcher.name}: same weights", weights(out) == expected, job.text)

    def test_stopped_rank_is_named(self):
        for launcher in self.launchers:
            out = self.out(f"stopped-{launcher.name}")
            job = self.train(launcher, 3, LONG, out, RAPT_RANK_PATIENCE="3")
            wait_for_step(job, out, 3)
            pids = pids_of(out, 3)
            os.kill(pids[2], signal.SIGSTOP)
            job.expect(
                rf"others wait for \d+ s for rank 2 of 3 \(.*its process {pids[2]} on .* shows no life"
            )
            os.kill(pids[2], signal.SIGCONT)
            job.expect(r"rank 2 of 3 goes on after \d+ s")
            check("said once", job.text.count("others wait for") == 1, job.text)
            launcher.ask_to_stop(job, pids)
            check(f"{launcher.name}: asked to stop", job.wait() == 0, job.text)
            stopped = re.search(r"stopped after step (\d+) of", job.text)
            check(f"{launcher.name}: stopped and saved", stopped, job.text)
            check("saved there", os.path.exists(os.path.join(out, f"step-{stopped[1]}")), job.text)

    def test_mixtures_are_refused(self):
        isas = re.search(
            r"available: (.*)",
            subprocess.run([self.rapt, "--version"], capture_output=True, text=True, check=True).stdout,
        )[1].split(", ")
        for launcher in self.launchers:
            words = [self.rapt, *RUN, "--steps", "2", "--out", self.out(f"mixed-{launcher.name}")]
            if len(isas) > 1:
                job = Job(
                    launcher,
                    [
                        {"ranks": 1, "words": words, "env": {"RAPT_ISA": isas[-1]}},
                        {"ranks": 2, "words": words, "env": {"RAPT_ISA": isas[0]}},
                    ],
                )
                check(f"{launcher.name}: a mix is refused", job.wait() != 0, job.text)
                check(
                    f"{launcher.name}: what is mixed",
                    f"rank 0: {isas[-1]}; ranks 1 and 2: {isas[0]}" in job.text
                    and f"RAPT_ISA={isas[-1]} for all of them is what all have" in job.text,
                    job.text,
                )
            job = Job(
                launcher, [{"ranks": 1, "words": words}, {"ranks": 1, "words": words + ["--rate", "0.5"]}]
            )
            check(
                f"{launcher.name}: other options",
                job.wait() != 0 and "rank 1 trains otherwise than rank 0" in job.text,
                job.text,
            )

    def test_wrong_variables_are_refused(self):
        if self.launchers[0].name != "sockets":
            return
        for variables, said in [
            ({"RANK": "0"}, "RANK is set in the environment and WORLD_SIZE is not"),
            ({"WORLD_SIZE": "2"}, "WORLD_SIZE is set in the environment and RANK is not"),
            ({"RANK": "2", "WORLD_SIZE": "2"}, "the last one is 1"),
            ({"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_ADDR is not set"),
        ]:
            done = subprocess.run(
                [self.rapt, *RUN, "--out", self.out("wrong")],
                capture_output=True,
                text=True,
                env=environment(**variables),
                check=False,
            )
            check(f"{variables}", done.returncode == 2 and said in done.stderr, done.stderr)
        check("nothing is made", not os.path.exists(self.out("wrong")))
        done = subprocess.run(
            [self.rapt, *RUN, "--out", self.out("late")],
            capture_output=True,
            text=True,
            check=False,
            env=environment(
                RANK="0",
                WORLD_SIZE="3",
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT="1",
                RAPT_RANK_CONNECT="1",
                RAPT_MPI="lam",
            ),
        )
        check("RAPT_MPI", "openmpi, mpich, or off" in done.stderr, done.stderr)
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            done = subprocess.run(
                [self.rapt, *RUN, "--out", self.out("late")],
                capture_output=True,
                text=True,
                check=False,
                env=environment(
                    RANK="0",
                    WORLD_SIZE="3",
                    MASTER_ADDR="127.0.0.1",
                    RAPT_RANK_CONNECT="1",
                    MASTER_PORT=str(taken.getsockname()[1]),
                ),
            )
            check(
                "a port that is taken",
                "rank 0 cannot listen at MASTER_ADDR=127.0.0.1" in done.stderr,
                done.stderr,
            )

    def test_missing_ranks_are_named(self):
        if self.launchers[0].name != "sockets":
            return
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        env = environment(WORLD_SIZE="4", MASTER_ADDR="127.0.0.1", MASTER_PORT=port, RAPT_RANK_CONNECT="2")
        jobs = [
            subprocess.Popen(
                [self.tool, "move"],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env={**env, "RANK": r},
            )
            for r in ("0", "2")
        ]
        for said in (b"GET / HTTP/1.1\r\n\r\n" + bytes(64), b""):  # strangers are sent away
            with contextlib.closing(connected(int(port))) as stranger:
                stranger.sendall(said)
        texts = [j.communicate(timeout=30)[0] for j in jobs]
        check(
            "rank 0 names them",
            "rank 0 of 4 has waited 2 s for ranks 1, 3 at 127.0.0.1" in texts[0],
            texts[0],
        )
        check("rank 2 ends, too", jobs[1].returncode == 1, texts[1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("which", choices=["mpi", "sockets"])
    parser.add_argument("--rapt", required=True)
    parser.add_argument("--tool", required=True)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    args.rapt, args.tool = os.path.abspath(args.rapt), os.path.abspath(args.tool)
    failed = []
    with tempfile.TemporaryDirectory(prefix="rapt-ranks-", ignore_cleanup_errors=True) as folder:
        tests = Tests(args, folder)
        if not tests.launchers:
            sys.exit(77)

        def one(name):
            start = time.time()
            try:
                getattr(tests, name)()
                print(f"ok      {name} ({time.time() - start:.1f} s)", flush=True)
            except (AssertionError, OSError) as e:
                failed.append(name)
                print(f"FAILED  {name}: {e}", flush=True)

        # Launchers and ranks mostly wait.
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            list(pool.map(one, [n for n in dir(Tests) if n.startswith("test_") and args.only in n]))
        for job in JOBS if failed else []:
            job.kill()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
