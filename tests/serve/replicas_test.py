#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Three replicas of `rapt serve` (a toy with a long context) behind HAProxy, with the project's
examples/cluster/haproxy.cfg as it is but for the ports: conversations stay with their replica; one that is
killed in mid-answer loses no token, for its streams go on elsewhere with the bits of undisturbed ones
(examples/cluster/failover.py); one that is told to end finishes what runs. Which replica answered is in the
header `rapt-replica` that HAProxy adds. Code 77 without HAProxy. --kills N (--long: 100) replicas are killed.

  tests/serve/replicas_test.py [--rapt build/rapt] [--only PATTERN] [--kills 3]
"""
import collections
import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from server import SKIPPED, Fault, Server, arguments, equal, expect, run_tests, test

CLUSTER = pathlib.Path(__file__).resolve().parent.parent.parent / "examples" / "cluster"
sys.path.insert(0, str(CLUSTER))
from failover import answer  # noqa: E402

HAPROXY = shutil.which("haproxy", path=os.environ["PATH"] + ":/usr/sbin")
NAMES = ("a", "b", "c")
STREAMS, TOKENS = 12, 900
SYSTEM = "You are in a play of three acts. " * 50  # the same for all, and longer than a KiB


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Setup:
    def __init__(self, args):
        self.args, self.folder = args, tempfile.TemporaryDirectory()
        self.port, *ports = free_ports(4)
        self.ports = dict(zip(NAMES, ports))
        self.url = f"http://127.0.0.1:{self.port}/v1"
        text = (CLUSTER / "haproxy.cfg").read_text()
        text, n = re.subn(r"bind 127\.0\.0\.1:8600", f"bind 127.0.0.1:{self.port}", text)
        for old, name in zip((8642, 8643, 8644), NAMES):
            text, m = re.subn(f"server {name} 127.0.0.1:{old}", f"server {name} 127.0.0.1:{self.ports[name]}",
                              text)
            n += m
        equal(n, 4, "the addresses in examples/cluster/haproxy.cfg")
        config = pathlib.Path(self.folder.name) / "haproxy.cfg"
        config.write_text(text)
        self.servers = {name: self.start(name) for name in NAMES}
        self.log = open(pathlib.Path(self.folder.name) / "log", "w+")
        self.balancer = subprocess.Popen([HAPROXY, "-db", "-f", config], stdout=self.log, stderr=self.log)
        try:
            self.wait_for(NAMES)
        except Exception:
            self.close()
            raise

    def start(self, name):
        return Server(self.args, "--port", self.ports[name], "-t", "1",
                      models=[f"toy={self.args.models.chat}"])

    def ask(self, path, body=None, method=None):
        """Status, replica and body of a reply that came through the balancer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method or ("POST" if body is not None else "GET"), path,
                               None if body is None else json.dumps(body),
                               {"Content-Type": "application/json"})
            reply = connection.getresponse()
            return reply.status, reply.getheader("rapt-replica"), reply.read()
        finally:
            connection.close()

    def wait_for(self, names):
        """Until the balancer sends something to all of these, and to no other."""
        until = time.monotonic() + 30
        while time.monotonic() < until:
            seen = set()
            with contextlib.suppress(ConnectionError):  # it has only just begun
                for _ in range(24):
                    status, name, _ = self.ask("/v1/models")
                    seen.add(name if status == 200 else status)
            if seen == set(names):
                return
            time.sleep(0.1)
        raise Fault(f"the balancer does not use {names}, but {seen}")

    def kill(self, name):
        self.servers[name].signal(signal.SIGKILL)
        self.servers[name].process.wait()

    def again(self, name):
        self.servers[name] = self.start(name)
        self.wait_for(NAMES)

    def close(self):
        codes = [s.stop() for s in self.servers.values()]
        self.balancer.terminate()
        self.balancer.wait()
        self.folder.cleanup()
        if any(codes):
            print(f"FAILED: replicas ended with {codes}")
        return any(codes)


def together(count, work):
    """work(i) for each, side by side; their results."""
    out, faults = [None] * count, []

    def run(i):
        try:
            out[i] = work(i)
        except Exception as e:
            faults.append(f"{i}: {type(e).__name__}: {e}")
    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if faults:
        raise Fault("; ".join(faults[:4]))
    return out


# ------------------------------------------------------------------------------------------- conversations
class Conversation:
    def __init__(self, number):
        """Half of them begin with one long text, some of the others are short and not in ASCII."""
        self.messages = [{"role": "system", "content": SYSTEM}] if number % 2 else []
        word = "Größe, 你好" if number % 4 == 0 else "Hark"
        self.messages.append({"role": "user", "content": f"{word} {number}"})
        self.replicas, self.cached = [], 0

    def turn(self, s):
        status, replica, body = s.ask("/v1/chat/completions", {
            "model": "m", "messages": self.messages, "max_tokens": 12, "seed": 1})
        equal(status, 200, body[:200])
        reply = json.loads(body)
        self.replicas.append(replica)
        self.cached += reply["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.messages += [{"role": "assistant", "content": reply["choices"][0]["message"]["content"]},
                          {"role": "user", "content": "And then?"}]

    def kept(self):
        return sum(r == self.replicas[0] for r in self.replicas[1:])


def share_kept(conversations):
    return sum(c.kept() for c in conversations) / sum(len(c.replicas) - 1 for c in conversations)


@test
def conversations_keep_their_replica(s):
    for at_once, what in ((2, "two at a time"), (10, "ten at a time"), (32, "thirty-two at a time")):
        conversations = [Conversation(i + 100 * at_once) for i in range(40)]
        order = iter(conversations)
        lock = threading.Lock()

        def work(_):
            while True:
                with lock:
                    c = next(order, None)
                if c is None:
                    return
                for _ in range(5):
                    c.turn(s)
        together(at_once, work)
        spread = collections.Counter(c.replicas[0] for c in conversations)
        kept, cached = share_kept(conversations), sum(c.cached for c in conversations)
        print(f"    {what}: {kept:.1%} of 160 turns with the replica of their conversation's first; "
              f"{dict(sorted(spread.items()))}; {cached} tokens found in caches")
        # Beyond 24 at once, load comes first (haproxy.cfg).
        expect(kept >= (0.95 if at_once < 24 else 0.8), f"{what}: {kept:.1%}")
        expect(len(spread) == 3 and min(spread.values()) >= 4, spread)
        expect(cached > 0, "prefixes are found again")


@test
def one_beginning_of_all_is_shared(s):
    """One key, asked for by many at once: bounded load gives it to others, too."""
    def work(_):
        return s.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": "hot"}],
                                              "max_tokens": 60, "seed": 1, "ignore_eos": True})
    replies = together(40, work)
    equal({status for status, _, _ in replies}, {200})
    equal(len({json.loads(body)["rapt"]["hash"] for _, _, body in replies}), 1, "one answer, wherever")
    spread = collections.Counter(replica for _, replica, _ in replies)
    print(f"    40 requests of one key: {dict(sorted(spread.items()))}")
    expect(len(spread) > 1, spread)


@test
def an_answer_is_given_again_where_it_was_given(s):
    for i in range(12):
        status, replica, body = s.ask("/v1/completions", {"prompt": f"Act {i}", "max_tokens": 5})
        reply = json.loads(body)
        status, where, again = s.ask(f"/v1/replay/{reply['id']}", {})
        equal((status, where), (200, replica), again[:200])
        equal(json.loads(again)["rapt"]["hash"], reply["rapt"]["hash"])


# -------------------------------------------------------------------------------------------------- failover
def body_of(draw, number):
    body = {"seed": number, "max_tokens": TOKENS, "ignore_eos": True, "logprobs": 1}
    if number % 3 == 0:
        body["messages"] = [{"role": "user", "content": f"{draw.random()}"}]
        body |= {"logprobs": True, "top_logprobs": 1}
    else:
        body["prompt"] = f"{draw.random()} ROMEO:"
    kinds = ({}, {"temperature": 0}, {"mirostat": 2}, {"frequency_penalty": 1, "top_k": 9},
             {"stop": ["zzzz", "the the"]}, {"min_p": 0.1, "repeat_penalty": 1.2}, {"n": 2},
             {"grammar": 'root ::= [a-zA-Z ,.!?\\n]{300}'})
    return body | kinds[number % len(kinds)]


def read_whole(chunks):
    """By choice: text, ids, log-probabilities; and all hashes."""
    out = collections.defaultdict(lambda: ["", [], []])
    hashes = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            one = out[choice["index"]]
            one[0] += choice["delta"].get("content", "") if "delta" in choice else choice["text"]
            one[1] += choice.get("token_ids", [])
            if lists := choice["logprobs"]:
                one[2] += lists.get("token_logprobs") or [c["logprob"] for c in lists.get("content", ())]
            if choice["finish_reason"]:
                hashes[choice["index"]] = chunk["rapt"]["hash"]
    return {i: tuple(map(str, v)) for i, v in out.items()}, hashes


@test
def a_killed_replica_loses_no_token(s):
    draw = random.Random(4)
    counts = collections.Counter()
    conversations = [Conversation(1000 + i) for i in range(40)]
    for c in conversations:
        c.turn(s)
    kill = -1
    while counts["kills in mid-answer"] < s.args.kills:
        kill += 1
        expect(kill < 4 * s.args.kills + 4, f"most kills came when the answers were over: {counts}")
        bodies = [body_of(draw, STREAMS * kill + i) for i in range(STREAMS)]
        got, breaks, whole = [0] * STREAMS, [], {}
        done = threading.Event()

        def work(i):
            if i == STREAMS:  # a client that knows nothing of it, at the same time
                while not done.is_set():
                    status, _, reply = s.ask("/v1/completions", {"prompt": f"{random.random()}",
                                                                 "max_tokens": 30})
                    equal(status, 200, reply[:200])
                    counts["whole replies"] += 1
                return None
            chunks = []
            try:
                for chunk in answer(s.url, bodies[i], notice=breaks.append):
                    chunks.append(chunk)
                    got[i] += 1
            finally:
                whole[i] = chunks
                if len(whole) == STREAMS:
                    done.set()
            return None

        def killer():  # when all have begun; servers are ahead of what clients have read
            until = time.monotonic() + 20
            while min(got) < 1 and time.monotonic() < until:
                time.sleep(0.001)
            time.sleep(draw.random() * 0.02)
            s.kill(NAMES[kill % 3])
        thread = threading.Thread(target=killer)
        thread.start()
        together(STREAMS + 1, work)
        thread.join()
        counts["kills"] += 1
        counts["kills in mid-answer"] += bool(breaks)
        counts["streams broken"] += len(breaks)
        living = s.servers[NAMES[(kill + 1) % 3]]

        # The same, undisturbed, of one replica.
        def alone(i):
            reply = living.ask("/v1/chat/completions" if "messages" in bodies[i] else "/v1/completions",
                               {**bodies[i], "stream": True, "rapt": {"continue": {}}})
            equal(reply.status, 200, reply.body[:200])
            return read_whole(reply.chunks())
        for i, wanted in enumerate(together(STREAMS, alone)):
            equal(read_whole(whole[i]), wanted, f"kill {kill}, stream {i}: {bodies[i]}")
            counts["streams equal"] += 1
        if kill == 0:  # who was elsewhere stays there, while it is away and when it is back
            victim = NAMES[kill % 3]
            s.wait_for([n for n in NAMES if n != victim])
            for c in conversations:
                c.turn(s)
            others = [c for c in conversations if c.replicas[0] != victim]
            away = [c for c in conversations if c.replicas[0] == victim]
            expect(away and others, "conversations of both kinds")
            expect(share_kept(others) >= 0.95, f"{share_kept(others):.1%} while one is away")
            expect(victim not in {c.replicas[1] for c in conversations}, "nobody is sent to the dead one")
            s.again(victim)
            for _ in range(2):
                for c in conversations:
                    c.turn(s)
            # Who had to move stays where it moved, where its text has been read since.
            for c in away:
                c.replicas = c.replicas[1:]
            print(f"    {victim} killed: {len(others)} conversations of the others: {share_kept(others):.1%} "
                  f"of turns stay; {len(away)} of its own, once moved: {share_kept(away):.1%}, also when it "
                  f"is back")
            expect(share_kept(others) >= 0.95 and share_kept(away) >= 0.95, "kept")
            fresh = [Conversation(2000 + i) for i in range(20)]
            for c in fresh:
                c.turn(s)
            expect(victim in {c.replicas[0] for c in fresh}, "new ones begin there again")
        else:
            s.again(NAMES[kill % 3])
    print(f"    {dict(counts)}: 0 differences in text, ids, log-probabilities and hashes")


@test
def the_client_is_a_program(s):
    done = subprocess.run([sys.executable, "-B", CLUSTER / "failover.py", "--url", s.url, "--seed", "7",
                           "--tokens", "30", "Hello"], capture_output=True, text=True, timeout=60)
    equal(done.returncode, 0, done.stderr)
    _, _, body = s.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}],
                                                "seed": 7, "max_tokens": 30})
    whole = json.loads(body)
    equal(done.stdout, whole["choices"][0]["message"]["content"])
    expect(f"hash {whole['rapt']['hash']}, seed 7" in done.stderr, done.stderr)


@test
def one_that_is_told_to_end_finishes(s):
    bodies = [{"prompt": f"Exit {i}", "seed": i, "max_tokens": 300, "ignore_eos": True} for i in range(9)]
    started, breaks = [0] * len(bodies), []

    def work(i):
        chunks = []
        for chunk in answer(s.url, bodies[i], notice=breaks.append):
            chunks.append(chunk)
            started[i] += 1
        return read_whole(chunks)

    def ender():
        while min(started) < 3:
            time.sleep(0.002)
        s.servers["b"].signal(signal.SIGTERM)
        for i in range(20):
            status, replica, body = s.ask("/v1/completions", {"prompt": f"Next {i}", "max_tokens": 2})
            equal(status, 200, f"{replica}: {body[:200]}")
    results = together(len(bodies) + 1, lambda i: work(i) if i < len(bodies) else ender())
    equal(breaks, [], "what runs is finished")
    equal(s.servers["b"].process.wait(20), 0)
    for i, got in enumerate(results[:-1]):
        reply = s.servers["a"].ask("/v1/completions", {**bodies[i], "stream": True, "rapt": {"continue": {}}})
        equal(got, read_whole(reply.chunks()), i)
    s.again("b")


@test
def odd_bodies_do_not_stop_the_balancer(s):
    for body in ('"messages":[ ' * 4500, '{"messages":[' + '"role":"user","content":[' * 2400,
                 '{"messages":[' + '"role":"user","content":"' * 2400, "{" * 60000,
                 '{"messages":[' + '"role":"user","content":"a\\"b",' * 2000,
                 '{"prompt": "' + "a" * 70000):
        connection = http.client.HTTPConnection("127.0.0.1", s.port, timeout=30)
        connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        equal(connection.getresponse().status, 400, body[:60])
        connection.close()


def main():
    args = arguments(__doc__, lambda parse: parse.add_argument("--kills", type=int))
    if not HAPROXY:
        print("haproxy is not installed (apt-get install haproxy): skipped")
        return SKIPPED
    args.kills = args.kills or (100 if args.long else 3)
    setup = Setup(args)
    code = run_tests(args, setup)
    return 1 if setup.close() else code


if __name__ == "__main__":
    sys.exit(main())
