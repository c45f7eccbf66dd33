#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Requests that went wrong: valid ones with values, bytes, heads and framing changed by a seeded hand. The
server answers only 2xx and 4xx (of a head that asks for another version or for CONNECT: 505, 501; to one
that gives it a millisecond: 504), or closes a connection whose request never ended; it lives on, and its
memory stays.

  tests/serve/mutate_test.py [--rapt build/rapt] [--count 10000] [--seed 1]
"""
import asyncio
import base64
import collections
import copy
import json
import random
import re
import sys
import time

from server import Fault, Server, arguments

AT_ONCE = 24
CHAT = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hello 你好"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]},
        {"role": "tool", "content": "5", "tool_call_id": "c1"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
BLOCKS = [{"role": "user", "content": "Hello 你好"},
          {"role": "assistant", "content": [
              {"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "text", "text": "a"},
              {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": [1]}}]},
          {"role": "user", "content": [
              {"type": "tool_result", "tool_use_id": "c1", "is_error": False,
               "content": [{"type": "text", "text": "5"}]}, {"type": "text", "text": "b"}]}]
ITEMS = [{"role": "user", "content": [{"type": "input_text", "text": "a"}]},
         {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "t"}]},
         {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "b"}]},
         {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{\"a\": 1}"},
         {"type": "function_call_output", "call_id": "c1", "output": "5"}]
LINES = [{"role": "system", "content": "a"}, {"role": "user", "content": "b", "images": []},
         {"role": "assistant", "content": "", "thinking": "t", "tool_calls": [
             {"function": {"name": "f", "arguments": {"a": 1}}}]},
         {"role": "tool", "content": "5", "tool_name": "f"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}, "b": {"anyOf": [
    {"type": "string", "pattern": "^[a-c]{2,3}$"}, {"type": "null"}, {"$ref": "#/$defs/c"}]}},
          "required": ["a"], "additionalProperties": False, "$defs": {"c": {"enum": ["x", 1, None]}}}
VALID = [
    ("/v1/chat/completions", {"messages": CHAT, "max_tokens": 6, "stream": True, "tools": [
        {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA,
                                          "strict": True}},
        {"type": "function", "function": {"name": "g"}}], "tool_choice": {
            "type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [
                {"type": "function", "function": {"name": "f"}}]}}, "parallel_tool_calls": False}),
    ("/v1/chat/completions", {"messages": CHAT[:2], "max_tokens": 6, "response_format": {
        "type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}}}),
    ("/v1/completions", {"prompt": "a", "max_tokens": 3,
                         "grammar": "root ::= (\"a\" | b)+\nb ::= [^x-z]{1,3} # c\n"}),
    ("/v1/chat/completions", {"model": "m", "messages": CHAT, "max_tokens": 3, "stream": True,
                              "stream_options": {"include_usage": True}, "temperature": 0.5, "top_p": 0.9,
                              "seed": 7, "stop": ["x", "y"], "n": 2, "logprobs": True, "top_logprobs": 2,
                              "logit_bias": {"5": 1.5}, "user": "u"}),
    ("/v1/chat/completions", {"messages": CHAT[:2], "max_completion_tokens": 2, "presence_penalty": 1,
                              "frequency_penalty": -1, "chat_template_kwargs": {"a": [1, {"b": None}]},
                              "response_format": {"type": "text"}, "tools": [], "tool_choice": "auto"}),
    ("/v1/chat/completions", {"messages": CHAT[1:2], "max_tokens": 2, "rapt": {
        "look": ["layers", "tokens"], "edits": ["L0H0:zero"], "cache_salt": "s"}}),
    ("/v1/chat/completions", {"messages": [CHAT[1], {"role": "assistant", "content": "The"}], "max_tokens": 2,
                              "continue_final_message": True, "add_generation_prompt": False}),
    ("/v1/completions", {"prompt": ["a b", "c"], "max_tokens": 2, "echo": True, "logprobs": 3, "n": 2,
                         "seed": 1234, "return_token_ids": True, "prompt_logprobs": 1}),
    ("/v1/completions", {"prompt": [[65, 66], [67]], "max_tokens": 2, "stream": True, "min_tokens": 1,
                         "stop_token_ids": [3], "ignore_eos": True, "return_progress": True,
                         "timings_per_token": True}),
    ("/v1/completions", {"prompt": "Once", "max_tokens": 2, "top_k": 5, "min_p": 0.1, "typical_p": 0.5,
                         "mirostat": 2, "repeat_penalty": 1.1, "repeat_last_n": 8, "min_keep": 1}),
    ("/v1/completions", {"prompt": "Once", "max_tokens": 20, "rapt": {"stream": {"keep": 2, "window": 8}}}),
    ("/v1/embeddings", {"input": ["a", "b c"], "encoding_format": "base64", "dimensions": 4}),
    ("/v1/rerank", {"query": "q", "documents": ["a", {"text": "b"}], "top_n": 1, "return_documents": True}),
    ("/rerank", {"query": "q", "texts": ["a"], "return_text": True, "raw_scores": True}),
    ("/v1/classify", {"input": ["a", "b"]}),
    ("/v1/look", {"ids": [65, 66, 67], "want": ["tokens", "heads", "token", "map", "row", "norms", "massive",
                                                "lens"], "layer": 1, "head": 1, "rows": [0, 2],
                  "keys": [1, 3], "pixels": 2, "token": -1, "top": 2, "first_keys": 1, "sample": 4,
                  "encoding": "u8", "edits": ["z.0@1:zero"]}),
    ("/v1/look", {"messages": CHAT[:2], "answer": "a", "want": ["lens"]}),
    ("/v1/chat/completions", {"messages": CHAT[:2], "max_tokens": 2, "stream": True,
                              "rapt": {"look": ["live"], "resume": True}}),
    ("/v1/completions", {"prompt": "a b", "max_tokens": 3, "rapt": {
        "edits": ["L0H1:zero"], "replay": False,
        "compare": {"model": "chat", "edits": ["z.0@1:scale=0.5"]}}}),
    ("/v1/completions", {"prompt": "a b", "max_tokens": 4, "seed": 3, "stream": True, "rapt": {
        "continue": {"ids": [65, 66], "seed": 3, "fingerprint": "FINGERPRINT", "basis": "0"}}}),
    ("/v1/chat/completions", {"messages": CHAT[:2], "max_tokens": 2, "n": 2, "temperature": 0, "rapt": {
        "continue": {"ids": [[65], []], "fingerprint": "FINGERPRINT"}}}),
    ("/v1/replay/ID", {"stream": False, "logprobs": True, "top_logprobs": 2, "return_token_ids": True,
                       "rapt": {"look": ["heads"], "edits": ["L0H0:zero"], "compare": {"edits": []}}}),
    ("/v1/replay/ID", {"stream": True, "stream_options": {"include_usage": True}, "rapt": {"resume": True}}),
    ("/tokenize", {"content": "a <|im_end|>", "with_pieces": True, "add_special": True}),
    ("/tokenize", {"messages": CHAT[:2], "return_token_strs": True}),
    ("/detokenize", {"tokens": [65, 66, 511]}),
    ("/apply-template", {"messages": CHAT}),
    ("/v1/chat/completions/input_tokens", {"messages": CHAT}),
    ("/v1/messages", {"model": "m", "messages": BLOCKS, "max_tokens": 3, "stream": True, "top_k": 4,
                      "system": [{"type": "text", "text": "x-anthropic-billing-header: a; cch=12;"}],
                      "stop_sequences": ["x"], "metadata": {"user_id": "u"}, "thinking": {"type": "disabled"},
                      "tools": [{"name": "f", "description": "d", "input_schema": SCHEMA}],
                      "tool_choice": {"type": "any", "disable_parallel_tool_use": True}}),
    ("/v1/messages/count_tokens", {"messages": BLOCKS, "system": "a"}),
    ("/v1/responses", {"input": ITEMS, "instructions": "a", "max_output_tokens": 3, "stream": True,
                       "metadata": {"a": "b"}, "reasoning": {"effort": "low", "summary": "auto"},
                       "text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}},
                       "include": ["message.output_text.logprobs"], "top_logprobs": 1, "store": False}),
    ("/v1/responses", {"input": "a", "max_output_tokens": 2, "tools": [
        {"type": "function", "name": "f", "parameters": SCHEMA}], "tool_choice": {
            "type": "function", "name": "f"}, "parallel_tool_calls": False}),
    ("/api/chat", {"model": "m", "messages": LINES, "options": {"num_predict": 2, "seed": 1, "stop": ["x"],
                   "num_ctx": 64, "repeat_penalty": 1.1}, "format": SCHEMA, "think": False, "keep_alive": 5,
                   "logprobs": True, "top_logprobs": 1, "truncate": True}),
    ("/api/generate", {"model": "m", "prompt": "a", "system": "b", "options": {"num_predict": 2},
                       "format": "json", "context": [], "images": [], "suffix": ""}),
    ("/api/generate", {"model": "m", "prompt": "a", "raw": True, "stream": False,
                       "options": {"num_predict": 2}}),
    ("/api/embed", {"model": "m", "input": ["a", "b"], "dimensions": 3, "options": {}}),
    ("/api/show", {"model": "m", "verbose": True}), ("/api/pull", {"model": "m"}),
]
PLAIN = ["/health", "/v1/models", "/v1/models/chat", "/props", "/slots", "/limits", "/metrics",
         "/openapi.json", "/tokenizer_info", "/slots?fail_on_no_slot=1", "/props?model=chat", "/",
         "/page/index.html", "/monitor?once=1", "/stream/x?from=1", "/api/tags", "/api/ps", "/api/version",
         "/api/blobs/sha256:0"]
ODD = [None, True, False, 0, -1, 1, 2, 8, 9, 0.5, -0.0, 1e308, 5e-324, 2 ** 31, 2 ** 32, 2 ** 53 + 1, 2 ** 63,
       -2 ** 63, 10 ** 30, "", " ", "a", "\0", "\x7f", "ÿ", "\ud7ff", "🙂", "\u202e", "<|im_start|>", "../x",
       "%00", "NaN", "{{ x }}", "a" * 300, "b" * 5000, [], {}, [[]], [{}], {"": ""}, [None] * 20, [0] * 100,
       [-1], [512], ["a", 1], {"a": {"b": {"c": {"d": []}}}}, {"type": "text"}, {"role": "user"}]


class Hand:
    def __init__(self, seed):
        self.draw = random.Random(seed)
        self.answer = "x"  # the id of one that can be given again
        self.fingerprint = "x"  # the server's

    # --- values
    def places(self, value, path=()):
        out = [path]
        if isinstance(value, dict):
            for k in value:
                out += self.places(value[k], path + (k,))
        elif isinstance(value, list):
            for i in range(len(value)):
                out += self.places(value[i], path + (i,))
        return out

    def change(self, body):
        d = self.draw
        for _ in range(d.choice((1, 1, 1, 2, 3, 6))):
            path = d.choice(self.places(body))
            if not path:
                body = {**body, d.choice(("prompt", "messages", "input", "n", "rapt", "stop", "x", "", "a\"b",
                                          "stream_options", "logit_bias")): copy.deepcopy(d.choice(ODD))}
                continue
            at = body
            for k in path[:-1]:
                at = at[k]
            k = path[-1]
            what = d.randrange(6)
            if what == 0:
                del at[k]
            elif what == 1:
                at[k] = [copy.deepcopy(at[k])] * d.choice((1, 2, 40))
            elif what == 2:
                at[k] = {d.choice(("text", "a", "type", "role")): copy.deepcopy(at[k])}
            elif what == 3 and isinstance(at[k], (int, float)) and not isinstance(at[k], bool):
                at[k] = at[k] * d.choice((-1, 2, 1000, 10 ** 9, 0.5)) + d.choice((0, 1, -1))
            elif what == 4 and isinstance(at[k], str):
                i = d.randrange(len(at[k]) + 1)
                at[k] = at[k][:i] + d.choice(("\0", "é", "🙂", "\n", "a" * 100, "<|im_end|>")) + at[k][i:]
            else:
                at[k] = copy.deepcopy(d.choice(ODD))
        return body

    # --- bytes
    def scratch(self, data, times=None):
        d, data = self.draw, bytearray(data)
        for _ in range(times or d.choice((1, 1, 2, 4, 12))):
            if not data:
                data = bytearray(b"x")
            i = d.randrange(len(data))
            what = d.randrange(7)
            if what == 0:
                data[i] = d.randrange(256)
            elif what == 1:
                data[i] ^= 1 << d.randrange(8)
            elif what == 2:
                del data[i:i + d.choice((1, 2, 10, 100))]
            elif what == 3:
                data[i:i] = data[max(0, i - d.choice((1, 4, 30))):i]
            elif what == 4:
                data[i:i] = d.choice(
                    (b"\r\n", b"\n", b"\0", b"\xff", b"\xef\xbb\xbf", b"[", b"{", b'"', b"\\", b",", b"1e999",
                     b"\\ud800", b"\xc0\xaf", b"null", b"-", b"99999999999"))
            elif what == 5:
                j = d.randrange(len(data))
                data[i], data[j] = data[j], data[i]
            else:
                data = data[:i]
        return bytes(data)

    def request(self):
        """(layer, bytes)"""
        d = self.draw
        layer = d.choices(("values", "body", "head", "framing", "all", "get"), (45, 15, 15, 12, 5, 8))[0]
        path, body = d.choice(VALID)
        path = path.replace("ID", self.answer)
        body = copy.deepcopy(body)
        if layer in ("values", "all"):
            body = self.change(body)
        if isinstance(body, dict):  # an answer shall not be as long as the context
            def number(of, *names):
                return any(isinstance(of.get(name), (int, float)) for name in names)
            if path.startswith("/v1/messages") and body.get("max_tokens") not in (0, 1, -1, "", False):
                body["max_tokens"] = 2  # a larger one would be a bound
            elif path.startswith("/api/"):
                options = body.get("options")
                if not isinstance(options, dict) or options.get("num_predict") not in (0, 1, "", False):
                    body["options"] = {**(options if isinstance(options, dict) else {}), "num_predict": 2}
            elif path == "/v1/responses" and not number(body, "max_output_tokens"):
                body["max_output_tokens"] = 2
            elif not number(body, "max_tokens", "max_completion_tokens", "max_output_tokens"):
                body.setdefault("n_predict", 2)
        data = json.dumps(body, ensure_ascii=d.random() < 0.5, allow_nan=True)
        data = data.replace("FINGERPRINT", self.fingerprint).encode("utf-8", "surrogatepass")
        if layer == "body":
            data = self.scratch(data)
        head = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
        if layer == "get":
            path, data = d.choice(PLAIN), b""
            head = [f"{d.choice(('GET', 'HEAD', 'OPTIONS', 'GET'))} {path} HTTP/1.1", "Host: localhost"]
            if d.random() < 0.5:
                head[0] = self.scratch(head[0].encode(), 2).decode("latin-1")
        if d.random() < 0.3:
            head.append(
                d.choice(
                    ("Accept: */*", "Authorization: Bearer x", "x-request-id: é\x7f", "Expect: x",
                     "Origin: http://localhost", "Origin: null", "X: " + "a" * 3000, "x-request-timeout: -1",
                     "x-request-timeout: 1e999", "Connection: close", "Connection: keep-alive, te",
                     "Content-Encoding: gzip", "Host: localhost", "x-request-timeout: 0.001")))
        chunked = d.random() < 0.2
        if chunked and data:
            pieces, at = b"", 0
            while at < len(data):
                n = d.randint(1, 200)
                part = data[at:at + n]
                pieces += b"%x%s\r\n%s\r\n" % (len(part), d.choice((b"", b"", b";a=b")), part)
                at += n
            data = pieces + b"0\r\n" + d.choice((b"", b"", b"X: y\r\n")) + b"\r\n"
            head.append("Transfer-Encoding: chunked")
        elif data or layer != "get":
            head.append(f"Content-Length: {len(data)}")
        if layer in ("framing", "all"):
            what = d.randrange(9)
            if what == 0:
                head.append("Content-Length: " +
                            d.choice(("0", "-1", "+5", "5, 5", "99999999999999999999", "0x5", "",
                                      str(len(data) + 1), str(max(0,
                                                                  len(data) - 3)))))
            elif what == 1:
                head[-1] = "Content-Length: " + str(max(0, len(data) + d.choice((-5, -1, 1, 7, 3000000))))
            elif what == 2:
                head.append("Transfer-Encoding: " +
                            d.choice(("chunked", "identity", "gzip, chunked", "chunked,", "Chunked",
                                      "chunked, chunked", "x")))
            elif what == 3:
                data = self.scratch(data)
            elif what == 4:
                data = data[:d.randrange(len(data) + 1)]
            elif what == 5:
                data += d.choice(
                    (b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\r\n", b"\0" * 100, b"x"))
            elif what == 6:
                head[0] = d.choice(("POST " + path, "POST  " + path + " HTTP/1.1", "GET / HTTP/2.0",
                                    "PRI * HTTP/2.0", "POST " + path + " HTTP/1.0", "CONNECT a:1 HTTP/1.1",
                                    "POST http://localhost" + path + " HTTP/1.1", "OPTIONS * HTTP/1.1",
                                    "POST " + path + "?" + "a" * 500 + " HTTP/1.1", "\x16\x03\x01"))
            elif what == 7:
                head.insert(
                    d.randrange(1,
                                len(head) + 1),
                    d.choice((" folded", "X : y", ": y", "X", "X: a\rb", "X: \0", "Host: evil", "\x80: y")))
            else:
                head += ["X: y"] * d.choice((5, 101, 300))
        raw = "\r\n".join(head).encode("latin-1", "replace") + b"\r\n\r\n"
        if layer in ("head", "all"):
            raw = self.scratch(raw)
        return layer, raw + data


async def one(port, layer, raw, results, faults):
    """One request on a connection of its own. What came back: a status, "closed" or "silence"."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError as e:
        faults.append((layer, raw, f"no connection: {e}"))
        return
    first = b""
    try:
        writer.write(raw)
        await writer.drain()
        # A request that waits for more of itself gets no answer: not long, the next one is there.
        first = await asyncio.wait_for(reader.read(4096), 0.4 if layer in ("head", "framing", "all") else 30)
        for _ in range(2000):  # the rest, so that answers end by themselves
            piece = await asyncio.wait_for(reader.read(65536), 0.05)
            if not piece:
                break
            if first.startswith(b"HTTP/1.1 100 ") and len(first) < 4096:
                first += piece
    except (asyncio.TimeoutError, TimeoutError, ConnectionError):
        pass
    finally:
        writer.close()
    if first.startswith(b"HTTP/1.1 100 "):
        first = first.split(b"\r\n\r\n", 1)[-1]
    m = re.match(rb"HTTP/1\.1 (\d\d\d) ", first)
    got = m[1].decode() if m else "closed" if not first else "garbage"
    results[got] += 1
    fine = got[0] in "24" or (got in ("501", "505") and layer in ("head", "framing", "all", "get"))
    if got == "504":  # the client's own limit
        fine = b"x-request-timeout: " in raw.lower()
    if got == "closed":
        fine = layer in ("head", "framing", "all", "get")
    if not fine:
        faults.append((layer, raw, got + " " + first[:300].decode("latin-1")))


async def attack(server, args, results, faults):
    hand, running, warm = Hand(args.seed), set(), 0
    began = time.monotonic()
    for n in range(args.count):
        if n % 100 == 0:  # the one before is not kept for ever
            reply = server.ask("/v1/completions", {"prompt": "a", "max_tokens": 2}).json()
            hand.answer, hand.fingerprint = reply.get("id", "x"), reply.get("system_fingerprint", "x")
        layer, raw = hand.request()
        task = asyncio.ensure_future(one(server.port, layer, raw, results, faults))
        running.add(task)
        task.add_done_callback(running.discard)
        while len(running) >= AT_ONCE:
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        if n == args.count // 5:
            warm = server.memory()
        if not server.alive() or len(faults) > 20 or time.monotonic() - began > args.seconds:
            break
    if running:
        await asyncio.wait(running)
    return n + 1, warm


def main():
    def more(parse):
        parse.add_argument("--count", type=int, default=10000)
        parse.add_argument("--seed", type=int, default=1)
        parse.add_argument("--seconds", type=float, default=1500, help="at most")
        parse.add_argument("--sanitized", action="store_true", help="memory is not judged")
    args = arguments(__doc__, more)
    results, faults = collections.Counter(), []
    m = args.models
    server = Server(args, "--log", "json", quiet=False, models=[f"chat={m.chat}"], wait=120)
    code = None
    try:
        done, warm = asyncio.run(attack(server, args, results, faults))
        if server.alive():
            reply = server.ask("/v1/completions", {"prompt": "a", "max_tokens": 2})
            if reply.status != 200:
                faults.append(("end", b"", f"afterwards: {reply}"))
            queue = server.ask("/limits").json()["queue"]
            if queue["waiting"] != 0 or queue["waiting_tokens"] != 0:
                faults.append(("end", b"", f"the queue still counts {queue}"))
            growth = server.memory() - warm
            if not args.sanitized and args.count >= 5000 and growth > (64 << 20):
                faults.append(("end", b"", f"{growth >> 20} MiB more than after a fifth"))
            print(
                f"memory: {server.memory() >> 20} MiB, {growth / 2 ** 20:+.1f} since a fifth of the requests")
        code = server.stop(60)
    finally:
        if server.alive():
            server.process.kill()
    if code != 0:
        faults.append(("end", b"", f"the server ended with {code}: {server.errors()[-3000:]}"))
    if done < args.count and not faults:
        faults.append(("end", b"", f"only {done} requests in {args.seconds} seconds"))
    print(f"{done} requests: " + ", ".join(f"{k} {v}" for k, v in sorted(results.items())))
    if not results["200"] or not results["400"]:
        faults.append(("end", b"", "the mutations are not what they should be"))
    for layer, raw, what in faults[:8]:
        print(f"FAILED ({layer}): {what}")
        if raw:
            print(f"  {raw[:1500]!r}\n  base64: {base64.b64encode(raw).decode()[:3000]}")
    print(f"{done - len(faults)} passed, {len(faults)} failed")
    return 1 if faults else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Fault as f:
        print(f"FAILED: {f}")
        sys.exit(1)
