#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Answers of models that were held to a schema, judged by python's jsonschema: every one that ends must be
valid. Schemas are those of the benchmark, of the JSON Schema Test Suite and of pydantic models drawn by
chance, as response_format, as parameters of functions and through other vendors' APIs; seeds, temperatures,
cuts, streams and numbers of choices are drawn, and the requests overlap. On a toy, and on SmolLM2 where
RAPT_MODELS has it. Code 77 where PyPI cannot be reached.

  tests/schema/answers_test.py [--rapt build/rapt] [--count 900] [--seed 1]
"""
import argparse
import collections
import decimal
import json
import os
import pathlib
import random
import subprocess
import sys
import tarfile
import tempfile
import threading

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "serve")]
import suite_test
from server import TOOLS_TEMPLATE, Server, arguments

CLIENTS = 12
USER = [{"role": "user", "content": "Fill in the form, in a few words."}]


def schemas_of(rapt, source, draw):
    """(where, schema): all that compile and of which something can be said."""
    out = [(one["name"], one["schema"]) for one in json.load(open(HERE.parent.parent / "bench/schemas.json"))]
    with tarfile.open(source) as tar:
        for m in sorted(tar, key=lambda m: m.name):
            name = m.name.partition("/tests/draft2020-12/")[2]
            if name.removesuffix(".json") in suite_test.FILES:
                for group in json.load(tar.extractfile(m)):
                    out.append((f"{name}: {group['description']}", group["schema"]))
    models = suite_test.Models(draw.randrange(1000))
    for i in range(100):
        schema = (models.recursive() if i % 20 == 19 else models.model(1 + i % 3)).model_json_schema()
        out.append((f"pydantic model {i}", suite_test.strict(schema) if i % 2 else schema))
    return [(w, s) for w, s in out if isinstance(s, dict) and "error" not in rapt.ask(schema=s, samples=1)]


class Asker:
    def __init__(self, server, schemas, draw, model):
        self.server, self.schemas, self.draw, self.model = server, schemas, draw, model
        # What may be arguments: an object, whether the schema says so or says nothing of types.
        self.objects = [(w, x) for w, x in schemas if x.get("type", "object") == "object" and
                        set(x) & {"properties", "additionalProperties", "required", "patternProperties"}]
        def token(text):
            return str(server.ask("/tokenize", {"content": text, "add_special": False}).json()["tokens"][-1])
        self.closing = {token('"'): 5, token("}"): 5, token("]"): 3}  # who only babbles ends sooner

    def request(self):
        """A path, a body, and what the answer is judged by: a schema, or one for each function."""
        d = self.draw
        where, schema = d.choice(self.schemas)
        body = {"messages": USER, "seed": d.randrange(2 ** 31), "max_tokens": d.choice((40, 200, 400)),
                "temperature": d.choice((0, 0.7, 1, 1, 1.5)), "logit_bias": self.closing}
        if d.random() < 0.3:
            body |= d.choice(({"top_p": 0.8}, {"top_k": 3}, {"min_p": 0.05}, {"frequency_penalty": 1},
                              {"mirostat": 2}, {"min_tokens": 5}))
        stream = d.random() < 0.4
        kind = d.random()
        if kind < 0.2:
            three = [(f"f{i}", *d.choice(self.objects)) for i in range(d.randint(1, 3))]
            body |= {"tools": [{"type": "function", "function": {"name": n, "parameters": s}}
                               for n, _, s in three], "tool_choice": "required"}
            judge = {n: (w, s) for n, w, s in three}
        else:
            judge = (where, schema)
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        if not stream and kind < 0.8 and d.random() < 0.2:
            body["n"] = 2
        if kind < 0.8:
            return "/v1/chat/completions", {**body, "stream": stream}, judge
        limit, seed = body["max_tokens"], body["seed"]
        if kind < 0.87:
            return "/v1/responses", {"input": USER, "max_output_tokens": limit, "seed": seed, "text": {
                "format": {"type": "json_schema", "name": "x", "schema": schema}}}, judge
        if kind < 0.94:
            return "/v1/messages", {"messages": USER, "max_tokens": limit, "seed": seed, "output_config": {
                "format": {"type": "json_schema", "schema": schema}}}, judge
        return "/api/chat", {"model": self.model, "messages": USER, "format": schema, "stream": False,
                             "options": {"seed": seed, "num_predict": limit}}, judge


def answers_of(path, body, reply):
    """(ended, text or calls) of each choice."""
    if path == "/api/chat":
        told = reply.json()
        return [(told["done_reason"] == "stop", told["message"]["content"])]
    if path == "/v1/messages":
        told = reply.json()
        return [(told["stop_reason"] == "end_turn", "".join(b.get("text", "") for b in told["content"]))]
    if path == "/v1/responses":
        told = reply.json()
        text = "".join(c["text"] for item in told["output"] for c in item.get("content", ()))
        return [(told["status"] == "completed", text)]
    if not body["stream"]:
        out = []
        for c in reply.json()["choices"]:
            calls = [(x["function"]["name"], x["function"]["arguments"])
                     for x in c["message"].get("tool_calls", ())]
            out.append((c["finish_reason"] in ("stop", "tool_calls"), calls or c["message"]["content"] or ""))
        return out
    text, calls, end = "", [], None
    for chunk in reply.chunks():
        for c in chunk["choices"]:
            text += c["delta"].get("content") or ""
            for call in c["delta"].get("tool_calls", ()):
                if "id" in call:
                    calls.append([call["function"]["name"], ""])
                calls[-1][1] += call["function"]["arguments"]
            end = c["finish_reason"] or end
    return [(end in ("stop", "tool_calls"), calls or text)]


class Judge:
    def __init__(self):
        self.counts, self.faults, self.lock = collections.Counter(), [], threading.Lock()

    def valid(self, schema, text, where):
        import jsonschema
        kind = jsonschema.Draft202012Validator
        exact = json.loads(json.dumps(schema), parse_float=decimal.Decimal)
        with self.lock:
            self.counts["judged"] += 1
            try:
                value = json.loads(text, parse_float=decimal.Decimal)
                error = next(kind(exact, format_checker=kind.FORMAT_CHECKER).iter_errors(value), None)
            except decimal.DecimalException:  # numbers of a thousand digits, divided
                self.counts["numbers that the judge cannot divide"] += 1
                return
            except ValueError as e:
                error = e
            if error:
                self.faults.append(f"{where}: {str(error)[:200]}: {text[:300]}")

    def answer(self, ended, said, judge):
        if not ended:
            self.counts["cut by max_tokens"] += 1
        elif isinstance(judge, tuple):
            self.valid(judge[1], said, judge[0])
        elif not said or isinstance(said, str):
            self.faults.append(f"{list(judge)}: no call, but {said!r}")
        else:
            for name, given in said:
                self.valid(judge[name][1], given, f"{name}, {judge[name][0]}")
                if not given.startswith("{"):
                    self.faults.append(f"{name}: arguments that are no object: {given[:100]}")


def run(server, asker, count, judge):
    requests = iter([asker.request() for _ in range(count)])
    lock = threading.Lock()

    def work():
        while True:
            with lock:
                one = next(requests, None)
            if one is None or len(judge.faults) > 20:
                return
            path, body, by = one
            try:
                reply = server.ask(path, body, timeout=300)
                if reply.status != 200:
                    judge.faults.append(f"{path} {json.dumps(body)[:600]}: {reply}")
                    continue
                for ended, said in answers_of(path, body, reply):
                    judge.answer(ended, said, by)
            except Exception as e:
                judge.faults.append(f"{path} {json.dumps(body)[:600]}: {type(e).__name__}: {e}")
    threads = [threading.Thread(target=work) for _ in range(CLIENTS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def inside(args):
    decimal.getcontext().prec = 1000
    rapt, draw = suite_test.Rapt(args.rapt), random.Random(args.seed)
    schemas = schemas_of(rapt, args.inside, draw)
    print(f"{len(schemas)} schemas")
    models = [("toy", args.models.chat, args.count, [])]
    real = pathlib.Path(os.environ.get("RAPT_MODELS", "/none"), "SmolLM2-135M-Instruct.Q4_1.gguf")
    if real.exists():
        models.append(("SmolLM2", real, args.count // 6, ["--ctx-size", "4096"]))
    failed = 0
    for name, model, count, flags in models:
        judge = Judge()
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as template:
            template.write(TOOLS_TEMPLATE)
            template.flush()
            flags += ["--queue-wait", "600", "--chat-template", template.name]
            with Server(args, *flags, models=[f"m={model}"]) as server:
                run(server, Asker(server, schemas, draw, "m"), count, judge)
                if server.stop() != 0:
                    judge.faults.append(f"the server ended badly: {server.errors()[-1000:]}")
        judged, cut = judge.counts["judged"], judge.counts["cut by max_tokens"]
        print(f"{name}: {count} requests, {judged} finished JSON texts judged by jsonschema, "
              f"{len(judge.faults)} faults; {dict(judge.counts)}")
        if judged < count // 2:
            judge.faults.append(f"only {judged} of {count} came to an end")
        for fault in judge.faults[:20]:
            print("FAULT", fault)
        failed += len(judge.faults)
    return 1 if failed else 0


def main():
    def more(parse):
        parse.add_argument("--count", type=int, default=900)
        parse.add_argument("--seed", type=int, default=1)
        parse.add_argument("--cache", type=pathlib.Path, default=pathlib.Path(
            os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "rapt" / "schema")
        parse.add_argument("--inside", help=argparse.SUPPRESS)
    args = arguments(__doc__, more)
    if args.inside:
        return inside(args)
    try:
        args.cache.mkdir(parents=True, exist_ok=True)
        venv, source = suite_test.environment(args.cache)
    except (suite_test.Skip, OSError) as e:
        print(f"skipped: {e}")
        return 77
    return subprocess.run([venv / "bin" / "python", "-B", __file__, *sys.argv[1:], "--inside",
                           source]).returncode


if __name__ == "__main__":
    sys.exit(main())
