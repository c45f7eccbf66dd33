#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads a streamed answer and, where the server that writes it goes away, the rest of it from another one,
bit for bit as the first would have gone on. Python's standard library only.

  failover.py [--url http://127.0.0.1:8600/v1] [--key KEY] [--tokens 100] [--seed 7] "a question"
"""
import argparse
import http.client
import json
import sys
import time
import urllib.parse


class Answer:
    """What there is of an answer, and what is asked for to get the rest."""

    def __init__(self, body):
        prompts = body.get("prompt")
        several = isinstance(prompts, list) and prompts and not isinstance(prompts[0], int)
        self.body, self.state, self.waiting, self.ended = body, {}, {}, set()
        self.ids = [[] for _ in range(body.get("n", 1) * (len(prompts) if several else 1))]

    def request(self):
        """The body for the next server: the first time nothing is known, then what was told and came."""
        self.waiting = {}
        begun = {**self.state, "ids": self.ids} if any(self.ids) else {}
        return {**self.body, "stream": True, "rapt": {**self.body.get("rapt", {}), "continue": begun}}

    def take(self, chunk):
        """The chunks that are certain now. The ids of a token stand in the last of its chunks: those before
        it wait, and come again from the next server where that one does not come."""
        self.state = chunk.get("rapt", {}).get("continue", self.state)
        if not chunk["choices"]:
            return [chunk]
        choice = chunk["choices"][0]
        if choice["index"] in self.ended:  # its end is told once more
            return []
        held = self.waiting.setdefault(choice["index"], [])
        held.append(chunk)
        if not choice.get("token_ids") and not choice["finish_reason"]:
            return []
        self.ids[choice["index"]] += choice.get("token_ids", [])
        if choice["finish_reason"]:
            self.ended.add(choice["index"])
        return self.waiting.pop(choice["index"])


def events(reply):
    """The data of each event of a stream; ends where it breaks off."""
    while (line := reply.readline()).endswith(b"\n"):
        if line.startswith(b"data: "):
            yield line[6:-1]


def answer(url, body, key=None, tries=8, wait=0.25, timeout=60, notice=None):
    """The chunks of /v1/chat/completions (of a body with a prompt: /v1/completions) as one undisturbed stream
    has them, whoever writes them. `notice` is called with the reason where another server is asked; after so
    many tries without a new token it is an error."""
    at = urllib.parse.urlsplit(url)
    path = at.path.rstrip("/") + ("/chat/completions" if "messages" in body else "/completions")
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    scheme = http.client.HTTPSConnection if at.scheme == "https" else http.client.HTTPConnection
    so_far, left = Answer(body), tries
    while left > 0:
        connection, pause = scheme(at.hostname, at.port, timeout=timeout), wait
        try:
            connection.request("POST", path, json.dumps(so_far.request()), headers)
            reply = connection.getresponse()
            why = f"status {reply.status}"
            if reply.status in (429, 502, 503, 504):
                pause = max(wait, min(5, float(reply.getheader("Retry-After") or 0)))
            elif reply.status != 200:
                raise RuntimeError(f"{why}: {reply.read(2000).decode(errors='replace')}")
            else:
                why = "the stream broke off"
                for data in events(reply):
                    if data == b"[DONE]":
                        return
                    chunk = json.loads(data)
                    if "error" in chunk:
                        if chunk["error"].get("code") != "draining":
                            raise RuntimeError(f"the server says: {chunk['error']}")
                        why = "the server shuts down"
                        break
                    for certain in so_far.take(chunk):
                        left = tries
                        yield certain
        except (OSError, http.client.HTTPException) as e:
            why = f"{type(e).__name__}: {e}"
        finally:
            connection.close()
        left -= 1
        if notice:
            notice(why)
        time.sleep(pause)
    raise RuntimeError(f"no server went on with the answer: {why}")


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("question")
    parse.add_argument("--url", default="http://127.0.0.1:8600/v1")
    parse.add_argument("--key")
    parse.add_argument("--tokens", type=int, default=100)
    parse.add_argument("--seed", type=int)
    args = parse.parse_args()
    body = {"messages": [{"role": "user", "content": args.question}], "max_tokens": args.tokens}
    if args.seed is not None:
        body["seed"] = args.seed
    for chunk in answer(args.url, body, args.key,
                        notice=lambda why: print(f"\n[{why}; another server is asked]", file=sys.stderr)):
        for choice in chunk["choices"]:
            print(choice["delta"].get("content") or "", end="", flush=True)
            if choice["finish_reason"]:
                print(f"\nhash {chunk['rapt']['hash']}, seed {chunk['rapt']['seed']}", file=sys.stderr)


if __name__ == "__main__":
    main()
