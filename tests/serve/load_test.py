#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Many connections, most of them bad: slow readers, heads that never end, resets, and some that just ask.
/health answers all the time, memory stays, every page of the pool comes back, answers are right, and SIGTERM
lets what runs end. --long: 1,000 connections for ten minutes, and three times as many requests as the server
can answer: what it answers in time is at least 80 % of that.

  tests/serve/load_test.py [--rapt build/rapt] [--long] [--connections 256] [--seconds 60]
"""
import asyncio
import collections
import json
import random
import re
import resource
import signal
import socket
import struct
import sys
import time

from server import Fault, Server, arguments, message

ADDRESSES = [f"127.0.0.{i}" for i in range(2, 22)]
ASKED = [{"prompt": f"The model {i}", "seed": i, "max_tokens": 12} for i in range(20)]
STREAM = {"prompt": "a", "seed": 1, "max_tokens": 1500, "ignore_eos": True, "stream": True}


class Load:
    def __init__(self, server, seconds):
        self.server, self.port = server, server.port
        self.end = time.monotonic() + seconds
        self.counts, self.faults = collections.Counter(), []
        self.hashes = {}

    def over(self):
        return time.monotonic() >= self.end or len(self.faults) > 20

    def fault(self, what):
        self.faults.append(what)

    async def connect(self, number, small=False):
        s = socket.socket()
        s.setblocking(False)
        if small:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        s.bind((ADDRESSES[number % len(ADDRESSES)], 0))
        try:
            await asyncio.wait_for(asyncio.get_running_loop().sock_connect(s, ("127.0.0.1", self.port)), 20)
            return s
        except BaseException:
            s.close()
            raise

    async def read(self, s, most=65536, patience=60):
        return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(s, most), patience)

    async def reply(self, s):
        """A reply with a length: status, body."""
        data = b""
        while b"\r\n\r\n" not in data:
            piece = await self.read(s)
            if not piece:
                raise ConnectionError("closed")
            data += piece
        head, body = data.split(b"\r\n\r\n", 1)
        length = int(re.search(rb"(?i)content-length: (\d+)", head)[1])
        while len(body) < length:
            piece = await self.read(s)
            if not piece:
                raise ConnectionError("closed")
            body += piece
        return int(head.split(b" ", 2)[1]), body

    # --- kinds of clients; each comes back until the time is over
    async def asks(self, number):
        draw = random.Random(number)
        while not self.over():
            s = None
            try:
                s = await self.connect(number)
                for _ in range(20):
                    which = draw.randrange(len(ASKED))
                    await asyncio.get_running_loop().sock_sendall(
                        s, message("localhost", "/v1/completions", ASKED[which]))
                    status, body = await self.reply(s)
                    self.counts[f"asked: {status}"] += 1
                    if status == 200:
                        found = json.loads(body)["rapt"]["hash"]
                        if self.hashes.setdefault(which, found) != found:
                            self.fault(f"request {which} has two answers")
                    elif status == 429:
                        await asyncio.sleep(0.2)
                    elif status != 503:
                        self.fault(f"asked: {status} {body[:200]!r}")
                    await asyncio.sleep(draw.uniform(0, 0.2))
                    if self.over():
                        break
            except (OSError, asyncio.TimeoutError) as e:
                self.counts[f"asks: {type(e).__name__}"] += 1
                await asyncio.sleep(0.1)
            finally:
                if s:
                    s.close()

    async def reads_slowly(self, number):
        draw = random.Random(number)
        while not self.over():
            s = None
            try:
                s = await self.connect(number, small=True)
                await asyncio.get_running_loop().sock_sendall(
                    s, message("localhost", "/v1/completions", STREAM))
                until = time.monotonic() + draw.uniform(2, 40)
                while time.monotonic() < until and not self.over():
                    piece = await self.read(s, 512, 5)
                    if not piece:
                        break
                    await asyncio.sleep(draw.uniform(0.05, 0.6))
                self.counts["slow readers"] += 1
            except (OSError, asyncio.TimeoutError) as e:
                self.counts[f"slow: {type(e).__name__}"] += 1
                await asyncio.sleep(0.2)
            finally:
                if s:
                    s.close()

    async def never_finishes(self, number):
        draw = random.Random(number)
        parts = (b"", b"G", b"GET /health HTTP/1.1\r\nHost: loc",
                 b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                 b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"prompt\": \"")
        while not self.over():
            s = None
            try:
                s = await self.connect(number)
                part = draw.choice(parts)
                if part:
                    await asyncio.get_running_loop().sock_sendall(s, part)
                left = max(0.1, min(60, self.end - time.monotonic()))
                answer = await self.read(s, 4096, left)
                self.counts["half-open: " + (answer[9:12].decode() if answer else "closed")] += 1
            except asyncio.TimeoutError:
                self.counts["half-open: still open"] += 1
            except OSError as e:
                self.counts[f"half-open: {type(e).__name__}"] += 1
                await asyncio.sleep(0.2)
            finally:
                if s:
                    s.close()

    async def resets(self, number, pause):
        draw = random.Random(number)
        while not self.over():
            try:
                s = await self.connect(number)
                raw = message("localhost", "/v1/completions", STREAM)
                await asyncio.get_running_loop().sock_sendall(s,
                                                              raw[:draw.choice((1, 40, len(raw), len(raw)))])
                await asyncio.sleep(draw.choice((0, 0, 0.02)))
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                s.close()
                self.counts["resets"] += 1
            except (OSError, asyncio.TimeoutError):
                self.counts["resets: refused"] += 1
            await asyncio.sleep(pause)

    async def health(self):
        while not self.over():
            try:
                s = await self.connect(0)
                try:
                    await asyncio.get_running_loop().sock_sendall(s, message("localhost", "/health"))
                    status, _ = await self.reply(s)
                    if status == 200:
                        self.counts["health"] += 1
                    else:
                        self.fault(f"/health: {status}")
                finally:
                    s.close()
            except (OSError, asyncio.TimeoutError) as e:
                self.fault(f"/health: {type(e).__name__} {e}")
            await asyncio.sleep(0.25)


async def storm(server, connections, seconds):
    load = Load(server, seconds)
    tasks = [load.health()]
    for i in range(connections):
        kind = i % 4
        tasks.append(load.reads_slowly(i) if kind in (0, 2) else load.never_finishes(i) if kind == 1 else
                     load.asks(i))
    tasks += [load.resets(i, 0.1) for i in range(4)]
    memory = []

    async def watch():
        while not load.over():
            memory.append((time.monotonic(), server.memory()))
            await asyncio.sleep(0.5)
    await asyncio.gather(watch(), *tasks)
    return load, memory


def check_storm(args, faults):
    with Server(args, "--no-prefix-cache", "--queue-wait", "600", "--queue", "2000", "--queue-tokens",
                "100000000") as server:
        server.ask("/v1/completions", {"prompt": "a", "max_tokens": 1})
        idle = server.memory()
        load, memory = asyncio.run(storm(server, args.connections, args.seconds))
        faults += load.faults
        began = memory[0][0]
        early = max(m for t, m in memory if args.seconds / 3 <= t - began <= args.seconds * 2 / 3)
        late = max(m for t, m in memory if t - began >= args.seconds * 2 / 3)
        print(f"{args.connections} connections, {args.seconds} s: " +
              ", ".join(f"{k} {v}" for k, v in sorted(load.counts.items())))
        print(f"memory: {idle / 2 ** 20:.1f} MiB before, {early / 2 ** 20:.1f} in the second third, "
              f"{late / 2 ** 20:.1f} in the last")
        # A slow reader's answers may wait in 256 KiB, a head in 32. How fast those fill up in a short run
        # is a matter of what else the machine does; a long one has come to rest.
        most = idle + args.connections // 2 * (300 << 10) + args.connections * (32 << 10) + (8 << 20)
        if late > most:
            faults.append(f"memory: {late} bytes, {most} for so many connections")
        if args.long and late > early * 1.05:
            faults.append(f"memory grew from {early} to {late}")
        if not load.counts["health"] or not load.counts["asked: 200"]:
            faults.append("nobody was answered")
        # Nobody is left: every page is back.
        for _ in range(200):
            if server.ask("/slots").json() == []:
                break
            time.sleep(0.05)
        else:
            faults.append(f"requests of clients that left still run: {server.ask('/slots').body[:500]!r}")
        server.ask("/v1/completions", {"prompt": "a", "max_tokens": 1})
        used = server.metric("rapt_kv_cache_usage_perc")
        waiting = server.ask("/limits").json()["queue"]
        if used != 0:
            faults.append(f"{used} of the pool is still in use")
        if waiting["waiting"] != 0 or waiting["waiting_tokens"] != 0:
            faults.append(f"the queue still counts {waiting}")
        # What runs may end.
        import threading
        ends, threads = [], []

        def stream():
            try:
                ends.append(server.ask("/v1/completions", {**STREAM, "max_tokens": 3000}).body[-14:])
            except Exception as e:
                ends.append(repr(e))
        for _ in range(8):
            threads.append(threading.Thread(target=stream))
            threads[-1].start()
        for _ in range(200):
            if len(server.ask("/slots").json()) == 8:
                break
            time.sleep(0.01)
        server.signal(signal.SIGTERM)
        for t in threads:
            t.join(60)
        code = server.stop(40)
        if code != 0 or any(e != b"data: [DONE]\n\n" for e in ends):
            faults.append(f"SIGTERM: code {code}, ends of the streams {ends}: {server.errors()[-2000:]}")


async def flood(server, seconds, rate, at_once):
    """Requests by a schedule (rate, in a second) or as many at once; each tries three times, as clients do.
    Answers in this time, and what was said."""
    load = Load(server, seconds)
    body = {"prompt": [(i * 7) % 500 for i in range(300)], "max_tokens": 600, "ignore_eos": True}
    counts = collections.Counter()

    async def one(number):
        for attempt in range(3):
            s = None
            try:
                s = await load.connect(number)
                await asyncio.get_running_loop().sock_sendall(
                    s, message("localhost", "/v1/completions", {**body, "seed": number}))
                data = b""
                while b"\r\n\r\n" not in data:
                    piece = await load.read(s)
                    if not piece:
                        raise ConnectionError("closed")
                    data += piece
                head = data.split(b"\r\n\r\n", 1)[0]
                status = int(head.split(b" ", 2)[1])
                length = int(re.search(rb"(?i)content-length: (\d+)", head)[1])
                while len(data) < len(head) + 4 + length:
                    piece = await load.read(s)
                    if not piece:
                        raise ConnectionError("closed")
                    data += piece
                counts[status] += 1
                if status == 200:
                    counts["in time"] += time.monotonic() < load.end
                    return
                after = re.search(rb"(?i)retry-after-ms: (\d+)", head)
                if status == 429 and not after:
                    load.fault("429 without retry-after-ms")
                counts["told to wait (s)"] += int(after[1]) / 1000 if after else 1
                s.close()
                await asyncio.sleep(min(20, int(after[1]) / 1000 if after else 1))
            except (OSError, asyncio.TimeoutError) as e:
                counts[type(e).__name__] += 1
                await asyncio.sleep(0.5)
            finally:
                if s:
                    s.close()
            if load.over():
                return

    if rate:
        draw, tasks, next_at, number = random.Random(1), [], time.monotonic(), 0
        while not load.over():
            next_at += draw.expovariate(rate)
            await asyncio.sleep(max(0, next_at - time.monotonic()))
            tasks.append(asyncio.ensure_future(one(number)))
            number += 1
        await asyncio.gather(*tasks)
        counts["sent"] = number
    else:
        async def again(number):
            while not load.over():
                await one(number)
                number += at_once
        await asyncio.gather(*(again(i) for i in range(at_once)))
    return counts["in time"] / seconds, counts, load.faults


def check_overload(args, faults):
    """In turns and by one thread, so that whatever else the machine does counts on both sides."""
    with Server(args, "--no-prefix-cache", "--queue", "64", "--queue-wait", "10", "-t", "1") as server:
        asyncio.run(flood(server, 5, 0, 16))
        capacities, goodputs = [], []
        for _ in range(4):
            capacity, counts, _ = asyncio.run(flood(server, args.seconds / 30, 0, 32))
            capacities.append(capacity)
            print(f"capacity: {capacity:.1f} answers a second; {dict(counts)}", flush=True)
            goodput, counts, more = asyncio.run(flood(server, args.seconds / 30, 3 * capacity, 0))
            faults += more
            goodputs.append(goodput)
            print(f"3 times as many: {goodput:.1f} a second; {dict(counts)}", flush=True)
        share = sum(goodputs) / sum(capacities)
        print(f"goodput: {share:.0%} of the capacity")
        if share < 0.8:
            faults.append(f"overload: {share:.0%} of the capacity")
        if server.ask("/health").status != 200:
            faults.append("/health after the overload")


def main():
    def more(parse):
        parse.add_argument("--connections", type=int)
        parse.add_argument("--seconds", type=float)
        parse.add_argument("--part", choices=("storm", "overload", "all"), default="all")
    args = arguments(__doc__, more)
    args.connections = args.connections or (1000 if args.long else 256)
    args.seconds = args.seconds or (600 if args.long else 60)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 8192) if most > 0 else 8192, most))
    faults = []
    if args.part != "overload":
        check_storm(args, faults)
    if args.part == "overload" or (args.long and args.part == "all"):
        check_overload(args, faults)
    for f in faults[:20]:
        print(f"FAILED: {f}")
    print("1 passed, 0 failed" if not faults else f"0 passed, {len(faults)} failed")
    return 1 if faults else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Fault as f:
        print(f"FAILED: {f}")
        sys.exit(1)
