#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every answer has the bits it would have alone: 2,000 requests in random overlap on a pool that is too small
for them (pauses), with beginnings in common (prefix hits), guessed tokens, answers of schemas and grammars,
clients that leave, and neighbours that edit and look. Each reply's hashes and texts equal those of the same
request on a server that has nothing else to do and guesses nothing; each request has a word of its own (a
canary) that shows up in no other reply.

  tests/serve/bits_test.py [--rapt build/rapt] [--count 2000] [--seed 1]
"""
import contextlib
import json
import random
import re
import socket
import sys
import tempfile
import threading

from server import Fault, Server, TOOLS_TEMPLATE, arguments, expect, message, read_reply

CLIENTS = 32
WORDS = ("the model attention layer head token of is and | ` yes no a size width float bits cache page "
         "prompt answer 你好 Größe café").split()
EDITS = [["L0H1:zero"], ["L1H0:zero", "L0H2:zero"], ["L1H3:zero"]]
CANARY = re.compile(r"qz(\d{5})k")


def text(draw, words):
    return " ".join(draw.choice(WORDS) for _ in range(words))


def make_request(draw, number, beginnings, words=False):
    """A path and a body. What it asks is drawn; its canary stands in the prompt and in other fields. words:
    the template has some for functions, so the model may decide whether to call."""
    canary = f"qz{number:05}k"
    begin = draw.choice(beginnings) if draw.random() < 0.6 else text(draw, draw.randint(0, 12))
    body = {"max_tokens": draw.choice((1, 8, 16, 48, 120, 240)), "user": canary}
    if draw.random() < 0.3:
        body["temperature"] = 0
    else:
        body["seed"] = draw.randrange(2 ** 40)
        if draw.random() < 0.3:
            body["top_k"] = draw.randint(1, 40)
        if draw.random() < 0.3:
            body["top_p"] = draw.uniform(0.5, 1)
    if draw.random() < 0.15:
        body |= {"n": draw.randint(2, 4), "max_tokens": min(48, body["max_tokens"])}  # alone, it must fit
    if draw.random() < 0.2:
        body["stop"] = [draw.choice((" the", "\n", "|", "e", "`"))]
    if draw.random() < 0.2:
        body["ignore_eos"] = True
    if draw.random() < 0.1:
        body["frequency_penalty"] = draw.uniform(0, 2)
    if draw.random() < 0.08:
        body["rapt"] = {"edits": draw.choice(EDITS)}
    elif draw.random() < 0.08:
        body["rapt"] = {"look": [draw.choice(("layers", "heads", "tokens"))]}
    elif draw.random() < 0.05:
        body["rapt"] = {"stream": {"keep": 4, "window": draw.choice((32, 64))}}
    if draw.random() < 0.1:
        body["cache_salt"] = draw.choice(("a", "b", canary))
    prompt = f"{begin} {canary} {text(draw, draw.randint(1, 10))}"
    if draw.random() < 0.4:
        body["messages"] = [{"role": "system", "content": begin},
                            {"role": "user", "content": f"{canary} {text(draw, draw.randint(1, 20))}"}]
        if draw.random() < 0.3:
            body |= {"logprobs": True, "top_logprobs": draw.randint(0, 5)}
        path = "/v1/chat/completions"
    else:
        body["prompt"] = prompt
        if draw.random() < 0.15:
            body["prompt"] = [prompt, f"{begin} {canary} b"]
        if draw.random() < 0.3:
            body["logprobs"] = draw.randint(0, 5)
        if draw.random() < 0.25 and "stream" not in body.get("rapt", {}):
            body["echo"] = True
        path = "/v1/completions"
    if draw.random() < 0.15:
        body |= make_form(draw, canary, path, words)
    elif draw.random() < 0.15:  # what repeats itself is guessed
        lines = " | ".join(f'"{w} {w}. "' for w in WORDS[:4])
        body |= draw.choice(({"grammar": f'root ::= "{canary}: " ({lines})+'},
                             {"logit_bias": {str(draw.randrange(40, 500)): 12}}))
    return path, body


def make_form(draw, canary, path, words):
    """What the answer must be. Its canary is in the schema: a grammar of another request would show."""
    schema = {"type": "object", "additionalProperties": False, "required": ["word", "n"],
              "properties": {"word": {"enum": [canary, canary + "!"]}, "n": {"type": "integer"},
                             "more": {"type": "array", "items": {"type": "string"}}}}
    kind = draw.randrange(4)
    if kind == 0:
        return {"grammar": f'root ::= ("{canary}" | [a-z ]{{1,9}} "." ){{2,}}'}
    if kind == 1 and path.startswith("/v1/chat"):
        ways = ("required", {"type": "function", "function": {"name": "f"}}, "auto")
        return {"tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}],
                "tool_choice": draw.choice(ways if words else ways[:2])}
    return {"json_schema": schema} if kind < 3 else {"response_format": {"type": "json_object"}}


def calls_of(message):
    return [(c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls", ())]


def core(reply, chat):
    """What must be the same whatever else runs: texts, hashes, ends, log-probabilities, token counts."""
    rapt = reply["rapt"]
    endings = rapt.get("choices") or [{"hash": rapt["hash"], "finish": rapt["finish"]}]

    def logprobs(c):  # an answer without tokens has none in a stream
        return c["logprobs"] if c["logprobs"] and any(c["logprobs"].values()) else None
    return ([((c["message"]["content"] or "", calls_of(c["message"])) if chat else c["text"],
              c["finish_reason"], logprobs(c))
             for c in reply["choices"]], [(e["hash"], e["finish"]) for e in endings],
            reply["usage"]["prompt_tokens"], reply["usage"]["completion_tokens"])


def core_of_stream(chunks, chat):
    choices, endings, usage = {}, {}, None
    for c in chunks:
        usage = c.get("usage") or usage
        for choice in c["choices"]:
            at = choices.setdefault(choice["index"], [["", []] if chat else "", None, None])
            if chat:
                at[0][0] += choice["delta"].get("content") or ""
                for call in choice["delta"].get("tool_calls", ()):
                    if "id" in call:
                        at[0][1].append((call["function"]["name"], ""))
                    name, given = at[0][1][-1]
                    at[0][1][-1] = (name, given + call["function"]["arguments"])
            else:
                at[0] += choice["text"]
            if choice["logprobs"]:
                lists = choice["logprobs"]
                if at[2] is None:
                    at[2] = {k: [] if v is not None else None for k, v in lists.items()}
                for k, v in lists.items():
                    if v is not None:
                        at[2][k] += v
            if choice["finish_reason"]:
                at[1] = choice["finish_reason"]
                endings[choice["index"]] = (c["rapt"]["hash"], c["rapt"]["finish"])
    for at in choices.values():
        at[0] = tuple(at[0]) if chat else at[0]
    return ([tuple(choices[i]) for i in sorted(choices)], [endings[i] for i in sorted(endings)],
            usage["prompt_tokens"], usage["completion_tokens"])


class Client:
    """Requests on one connection after the other, as browsers and SDKs do."""

    def __init__(self, server):
        self.server, self.connection = server, None

    def close(self):
        if self.connection:
            self.connection.close()
        self.connection = None

    def send(self, path, body, headers=None):
        self.connection = self.connection or self.server.connect(timeout=120)
        self.connection.sendall(message("localhost", path, body, headers=headers))

    def ask(self, path, body, headers=None):
        self.send(path, body, headers)
        reply = read_reply(self.connection)
        if reply.headers.get("connection") == "close":
            self.close()
        return reply


def share(count, jobs, work):
    """work(client number, request number) for every request, by so many clients at once."""
    faults, lock, order = [], threading.Lock(), iter(range(count))

    def run(me):
        client = None
        while not faults:
            with lock:
                n = next(order, None)
            if n is None:
                break
            try:
                client = work(me, n, client)
            except Exception as e:
                faults.append(f"request {n}: {type(e).__name__}: {e}")
        if client:
            client.close()
    threads = [threading.Thread(target=run, args=(i,)) for i in range(jobs)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if faults:
        raise Fault("\n".join(faults[:5]))


def main():
    def more(parse):
        parse.add_argument("--count", type=int, default=2000)
        parse.add_argument("--seed", type=int, default=1)
        parse.add_argument("--pool", default="160K")
        parse.add_argument("--draft", action="store_true", help="the model itself guesses, no look-up")
    args = arguments(__doc__, more)
    draw = random.Random(args.seed)
    beginnings = [text(draw, n) for n in (10, 30, 60, 120, 120)]
    requests = [make_request(draw, i, beginnings, True) for i in range(args.count)]
    template = tempfile.NamedTemporaryFile("w", suffix=".jinja")
    template.write(TOOLS_TEMPLATE)
    template.flush()
    common = ("--chat-template", template.name)
    styles = [(draw.random(), draw.random()) for _ in requests]
    solo, together = [None] * args.count, [None] * args.count
    bodies = [b""] * args.count
    counts = {"streams": 0, "left": 0, "resent": 0, "neighbours": 0}

    # Alone: one after the other, nothing kept, room enough. (Two such servers share the work.)
    with contextlib.ExitStack() as stack:
        plain = ("--no-prefix-cache", "--speculate", "off", "-t", "1")
        alone = [stack.enter_context(Server(args, *common, *plain)) for _ in range(2)]

        def ask_alone(me, n, client):
            client = client or Client(alone[me])
            path, body = requests[n]
            reply = client.ask(path, body)
            expect(reply.status == 200, f"alone: {reply} to {json.dumps(body)[:300]}")
            solo[n] = core(reply.json(), "messages" in body)
            return client
        share(args.count, 2, ask_alone)

    if args.draft:
        common += ("--draft", args.models.chat)
    server = Server(args, *common, "--pool", args.pool, "--queue", "1000", "--queue-wait", "600")
    over = threading.Event()

    def neighbour(me):  # somebody who always wants room, and changes what the model computes
        client = Client(server)
        with contextlib.suppress(OSError):
            while not over.is_set():
                reply = client.ask("/v1/completions", {"prompt": beginnings[me], "max_tokens": 300,
                                                       "ignore_eos": True, "rapt": {"edits": EDITS[me],
                                                                                    "look": ["tokens"]}})
                counts["neighbours"] += reply.status == 200
        client.close()
    neighbours = [threading.Thread(target=neighbour, args=(i,)) for i in range(len(EDITS))]
    try:
        for t in neighbours:
            t.start()

        def ask_together(me, n, client):
            client = client or Client(server)
            path, body = requests[n]
            stream, leave = styles[n][0] < 0.5, styles[n][1] < 0.1
            chat = "messages" in body
            if leave:  # the same request first by somebody who does not stay
                gone = server.connect(timeout=60)
                gone.sendall(message("localhost", path, {**body, "stream": True, "max_tokens": 200}))
                if styles[n][1] < 0.07:
                    gone.recv(200)
                if styles[n][1] < 0.03:
                    gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                gone.close()
                counts["left"] += 1
            if stream:
                body = {**body, "stream": True, "stream_options": {"include_usage": True}}
                counts["streams"] += 1
            for _ in range(50):
                reply = client.ask(path, body, {"x-request-id": f"id-{body['user']}"})
                if reply.status != 429:
                    break
                counts["resent"] += 1
            expect(reply.status == 200, f"together: {reply} to {json.dumps(body)[:300]}")
            expect(reply.headers["x-request-id"] == f"id-{body['user']}", "another's x-request-id",
                   reply.headers)
            together[n] = (core_of_stream(reply.chunks(), chat) if stream else core(reply.json(), chat))
            bodies[n] = reply.body
            return client
        share(args.count, CLIENTS, ask_together)
        over.set()
        for t in neighbours:
            t.join()
        metrics = server.metrics()
    finally:
        over.set()
        code = server.stop()

    failed = 0
    def fail(what):
        nonlocal failed
        failed += 1
        if failed <= 10:
            print(f"FAILED: {what}")
    for n, (path, body) in enumerate(requests):
        if together[n] != solo[n]:
            a, b = json.dumps(together[n], ensure_ascii=False), json.dumps(solo[n], ensure_ascii=False)
            at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
            fail(f"request {n} differs: {json.dumps(body, ensure_ascii=False)[:400]}\n  stream: "
                 f"{styles[n][0] < 0.5}\n  together …{a[max(0, at - 60):at + 100]}\n"
                 f"  alone    …{b[max(0, at - 60):at + 100]}")
        for found in CANARY.finditer(bodies[n].decode()):
            if int(found[1]) != n:
                fail(f"request {n} was told the canary of {found[1]}")
    def total(name):
        return int(sum(v for k, v in metrics.items() if k.split("{")[0] == name))
    paused, cached = total("rapt_num_preemptions_total"), total("rapt_prompt_tokens_cached_total")
    cancelled, guessed = total("rapt_cancelled_total"), total("rapt_spec_decode_draft_tokens_total")
    right = total("rapt_spec_decode_accepted_tokens_total")
    print(f"{args.count} requests, {counts['streams']} as streams; {paused} pauses, {cached} tokens found in "
          f"the cache, {guessed} tokens guessed, {right} of them right, {cancelled} left (of "
          f"{counts['left']}), {counts['neighbours']} neighbours with edits, {counts['resent']} sent again")
    # The test tests what it says.
    if args.count >= 1000:
        for what, n in (("pauses", paused), ("prefix hits", cached), ("cancels", cancelled),
                        ("right guesses", right), ("wrong guesses", guessed - right),
                        ("neighbours", counts["neighbours"])):
            if n == 0:
                fail(f"there were no {what}")
    if code != 0:
        fail(f"the server ended with {code}: {server.errors()[-2000:]}")
    print(f"{args.count - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Fault as f:
        print(f"FAILED: {f}")
        sys.exit(1)
