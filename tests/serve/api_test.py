#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every route and field of `rapt serve` by value: answers equal those of the command line, streams equal
answers in one piece, and what real clients choke on is not in the bytes.

  tests/serve/api_test.py [--rapt build/rapt] [--only PATTERN]
"""
import base64
import contextlib
import json
import math
import os
import pathlib
import random
import re
import signal
import struct
import sys
import tempfile
import threading
import time

from server import (Fault, Server, TEMPLATE, arguments, equal, expect, good, message, near, rapt_json,
                    rapt_lines, rapt_text, read_npy, read_reply, run_tests, test)

PROMPTS = ["The model", "Attention is", "| `a` | yes", "Größe: 你好", "x"]
PLAIN = {"temperature": 1, "top_p": 1, "top_k": 0, "min_p": 0}
# rapt run with what the API does where a request says nothing.
AS_API = ["--temp", "1", "--top-k", "0", "--top-p", "1", "--min-p", "0"]


class Both:
    """The server of one decoder (f32 cache, as the command line has it), and one of four models."""

    def __init__(self, args):
        self.args, m = args, args.models
        self.one = Server(args, "--cache-type", "f32")
        self.four = Server(args, "--cache-type", "f32",
                           models=[f"chat={m.chat}", f"embed={m.embed}", f"classify={m.classify}",
                                   f"de-en={m.translate}"])

    def complete(self, prompt, **more):
        return good(self.one.ask("/v1/completions", {"prompt": prompt, **more})).json()

    def chat(self, content, **more):
        messages = content if isinstance(content, list) else [{"role": "user", "content": content}]
        return good(self.one.ask("/v1/chat/completions", {"messages": messages, **more})).json()

    def run(self, prompt, *flags):
        return rapt_json(self.args, "run", self.args.models.chat, prompt, *flags)

    def logits(self, ids, model=None):
        with tempfile.TemporaryDirectory() as there:
            rapt_text(self.args, "logits", model or self.args.models.chat, "--ids",
                      " ".join(map(str, ids)), "--out", f"{there}/l.npy", "-q")
            return read_npy(f"{there}/l.npy")


def refused(reply, status, code=None, param=None):
    equal(reply.status, status, reply.body[:300])
    e = reply.error()
    equal(sorted(e), ["code", "message", "param", "type"], "fields of an error")
    expect(isinstance(e["message"], str) and e["message"], "no message")
    expect(e["code"] is None or isinstance(e["code"], str), "a code that is no string")
    if code:
        equal(e["code"], code, e["message"])
    if param:
        equal(e["param"], param, e["message"])
    return e


def log_softmax(row):
    top = max(row)
    total = math.log(math.fsum(math.exp(x - top) for x in row))
    return [x - top - total for x in row]


# ------------------------------------------------------------------------------------ values, by the program
@test
def greedy_completion_is_that_of_rapt_run(s):
    for prompt in PROMPTS:
        ours = s.complete(prompt, temperature=0, max_tokens=24, return_token_ids=True)
        wanted = s.run(prompt, "--raw", "--temp", "0", "-n", "24")
        equal(ours["choices"][0]["text"], wanted["samples"][0]["text"], prompt)
        equal(ours["choices"][0]["token_ids"], wanted["samples"][0]["ids"], prompt)
        equal(ours["usage"]["prompt_tokens"], wanted["prompt_tokens"], prompt)
        equal(ours["usage"]["completion_tokens"], len(wanted["samples"][0]["ids"]))
        equal(ours["usage"]["total_tokens"],
              ours["usage"]["prompt_tokens"] + ours["usage"]["completion_tokens"])
        equal(ours["object"], "text_completion")
        expect(ours["id"].startswith("cmpl-") and ours["model"] == "chat", ours["id"])


@test
def greedy_chat_is_that_of_rapt_run(s):
    for content in PROMPTS:
        ours = s.chat(content, temperature=0, max_tokens=16, return_token_ids=True)
        wanted = s.run(content, "--temp", "0", "-n", "16")
        choice = ours["choices"][0]
        equal(choice["message"], {"role": "assistant", "content": wanted["samples"][0]["text"],
                                  "refusal": None}, content)
        equal(choice["token_ids"], wanted["samples"][0]["ids"], content)
        equal(ours["usage"]["prompt_tokens"], wanted["prompt_tokens"], content)
        equal(ours["object"], "chat.completion")
        expect(ours["id"].startswith("chatcmpl-") and choice["logprobs"] is None, choice)
    with_system = s.chat([{"role": "developer", "content": "Be short."}, {"role": "user", "content": "Hi"}],
                         temperature=0, max_tokens=8, return_token_ids=True)
    wanted = s.run("Hi", "--temp", "0", "-n", "8", "--system", "Be short.")
    equal(with_system["choices"][0]["token_ids"], wanted["samples"][0]["ids"], "developer is system")


@test
def drawn_tokens_are_those_of_rapt_run(s):
    for seed in (0, 7, 123456789):
        ours = s.complete("The model", seed=seed, max_tokens=20, n=3, return_token_ids=True)
        wanted = s.run("The model", "--raw", "--seed", seed, "-n", "20", "--samples", "3", *AS_API)
        equal([c["token_ids"] for c in ours["choices"]], [w["ids"] for w in wanted["samples"]], seed)
        equal([c["index"] for c in ours["choices"]], [0, 1, 2])
        equal(ours["rapt"]["seed"], seed)
    for fields, flags in (({"top_k": 5}, ["--temp", "1", "--top-k", "5", "--top-p", "1", "--min-p", "0"]),
                          ({"top_p": 0.5, "temperature": 0.7},
                           ["--temp", "0.7", "--top-k", "0", "--top-p", "0.5", "--min-p", "0"]),
                          ({"min_p": 0.2, "temperature": 1.5},
                           ["--temp", "1.5", "--top-k", "0", "--top-p", "1", "--min-p", "0.2"]),
                          ({"typical_p": 0.4}, [*AS_API, "--typical", "0.4"]),
                          ({"mirostat": 2, "mirostat_tau": 3, "mirostat_eta": 0.2},
                           [*AS_API, "--mirostat", "2", "--mirostat-tau", "3", "--mirostat-eta", "0.2"]),
                          ({"repeat_penalty": 1.4}, [*AS_API, "--repeat-penalty", "1.4"])):
        ours = s.complete("Attention is", seed=5, max_tokens=24, return_token_ids=True, **fields)
        wanted = s.run("Attention is", "--raw", "--seed", "5", "-n", "24", *flags)
        equal(ours["choices"][0]["token_ids"], wanted["samples"][0]["ids"], fields)


@test
def a_reported_seed_gives_the_answer_again(s):
    first = s.complete("The model", max_tokens=30)
    seed = first["rapt"]["seed"]
    expect(0 <= seed < 2 ** 53, seed)
    again = s.complete("The model", max_tokens=30, seed=seed)
    equal(again["choices"][0]["text"], first["choices"][0]["text"], "with the reported seed")
    equal(again["rapt"]["hash"], first["rapt"]["hash"])
    expect(s.complete("The model", max_tokens=30)["rapt"]["seed"] != seed, "two drawn seeds are equal")
    minus = s.complete("The model", max_tokens=2, seed=-1)["rapt"]["seed"]
    expect(minus >= 0, minus)
    equal(first["rapt"]["sampling"]["temperature"], 1, "OpenAI's temperature")
    equal(first["rapt"]["sampling"]["top_p"], 1, "OpenAI's top_p")


@test
def logprobs_are_those_of_rapt_run(s):
    prompt = "Attention is"
    wanted = s.run(prompt, "--raw", "--temp", "0", "-n", "12", "--logprobs", "5")["samples"][0]["logprobs"]
    ours = s.complete(prompt, temperature=0, max_tokens=12, logprobs=5)["choices"][0]["logprobs"]
    near(ours["token_logprobs"], [w["logprob"] for w in wanted], 1e-6, "completions")
    equal(ours["tokens"], [w["token"] for w in wanted])
    for mine, w in zip(ours["top_logprobs"], wanted):
        expect(set(mine) <= {t["token"] for t in w["top"]} | {w["token"]}, mine, w["top"])
        near([mine[t["token"]] for t in w["top"]], [t["logprob"] for t in w["top"]], 1e-6, "top")
    wanted = s.run(prompt, "--temp", "0", "-n", "12", "--logprobs", "4")["samples"][0]["logprobs"]
    choice = s.chat(prompt, temperature=0, max_tokens=12, logprobs=True, top_logprobs=4)["choices"][0]
    entries = choice["logprobs"]["content"]
    near([e["logprob"] for e in entries], [w["logprob"] for w in wanted], 1e-6, "chat")
    equal("".join(bytes(b for e in entries for b in e["bytes"]).decode()), choice["message"]["content"])
    for e, w in zip(entries, wanted):
        equal([t["token"] for t in e["top_logprobs"]], [t["token"] for t in w["top"]])
        near([t["logprob"] for t in e["top_logprobs"]], [t["logprob"] for t in w["top"]], 1e-6)
        equal(e["top_logprobs"][0]["logprob"], e["logprob"], "the greedy token has the same digits twice")


@test
def echoed_logprobs_are_log_softmax_of_rapt_logits(s):
    for prompt in ("The model of attention", "Größe 你好, naïve café"):
        reply = s.complete(prompt, temperature=0, max_tokens=0, logprobs=3, echo=True, return_token_ids=True)
        choice = reply["choices"][0]
        equal(choice["text"], prompt, "echo")
        ids, lists = choice["prompt_token_ids"], choice["logprobs"]
        rows = s.logits(ids)
        wanted = [log_softmax(row)[id] for row, id in zip(rows, ids[1:])]
        expect(lists["token_logprobs"][0] is None and lists["top_logprobs"][0] is None, "the first has none")
        near(lists["token_logprobs"][1:], wanted, 1e-5, prompt)
        for own, top, token, row in zip(lists["token_logprobs"][1:], lists["top_logprobs"][1:],
                                        lists["tokens"][1:], rows):
            near([max(top.values())], [max(log_softmax(row))], 1e-5, "the best token is in the map")
            if abs(own - max(top.values())) < 1e-7:
                equal(own, max(top.values()), "the same digits")
        equal(reply["usage"]["completion_tokens"], 0)
        # Offsets count characters of the text, and never go back.
        offsets = lists["text_offset"]
        expect(all(a <= b for a, b in zip(offsets, offsets[1:])) and offsets[-1] <= len(prompt), offsets)


@test
def lm_eval_requests_score(s):
    """What lm-eval sends, and the sums it makes of the reply."""
    ids = [tokens(s, t) for t in ("The model | yes", "Attention is all")]
    reply = s.complete(ids, model="chat", temperature=0, max_tokens=1, logprobs=1, seed=1234, echo=True)
    for choice, own in zip(reply["choices"], ids):
        lists = choice["logprobs"]
        equal(len(lists["token_logprobs"]), len(own) + 1)
        rows = s.logits(own)
        wanted = [log_softmax(row)[id] for row, id in zip(rows, own[1:])]
        near([math.fsum(lists["token_logprobs"][2:-1])], [math.fsum(wanted[1:])], 1e-5, "sum")
        greedy = [own[i + 1] == max(range(len(row)), key=row.__getitem__) for i, row in enumerate(rows[:-1])]
        told = [lists["token_logprobs"][i] == max(lists["top_logprobs"][i].values())
                for i in range(1, len(own))]
        equal(told, greedy, "greedy, as lm-eval looks for it")
        equal(lists["token_logprobs"][-1], max(lists["top_logprobs"][-1].values()), "the written token")
    # It drops the last entry, which is the written token: there is one even where that token ends the answer.
    ended = s.complete(ids, max_tokens=1, logprobs=1, echo=True, logit_bias={"511": 100})
    equal([len(c["logprobs"]["token_logprobs"]) for c in ended["choices"]], [len(x) + 1 for x in ids],
          "entries where the next token is the end")


def tokens(s, text, **more):
    return good(s.one.ask("/tokenize", {"content": text, **more})).json()["tokens"]


@test
def prompts_of_every_form(s):
    ids = [tokens(s, p) for p in PROMPTS]
    alone = [s.complete(x, temperature=0, max_tokens=8, return_token_ids=True)["choices"][0] for x in ids]
    for a, x in zip(alone, ids):
        equal(a["prompt_token_ids"], x, "ids are used as they are")
    several = s.complete(ids, temperature=0, max_tokens=8, return_token_ids=True)
    equal([c["token_ids"] for c in several["choices"]], [a["token_ids"] for a in alone], "lists of ids")
    equal(several["usage"]["prompt_tokens"], sum(map(len, ids)))
    texts = s.complete(PROMPTS, seed=3, max_tokens=8, n=2, return_token_ids=True)["choices"]
    equal([c["index"] for c in texts], list(range(2 * len(PROMPTS))))
    for i, p in enumerate(PROMPTS):
        one = s.complete(p, seed=3, max_tokens=8, n=2, return_token_ids=True)["choices"]
        equal([c["token_ids"] for c in texts[2 * i:2 * i + 2]], [c["token_ids"] for c in one], p)
    bare = s.complete("The model", max_tokens=1, add_special_tokens=False, return_token_ids=True)
    equal(bare["choices"][0]["prompt_token_ids"], tokens(s, "The model"), "add_special_tokens: false")


@test
def stops_cut_before_the_text(s):
    text = s.complete("The model", seed=7, max_tokens=40)["choices"][0]["text"]
    expect(len(text) > 20, text)
    for begin, length in ((3, 1), (6, 3), (10, 5), (12, 8)):
        stop = text[begin:begin + length]
        wanted = text[:text.index(stop)]
        for stops in (stop, [stop], ["\x01never", stop]):
            reply = s.complete("The model", seed=7, max_tokens=40, stop=stops)
            equal(reply["choices"][0]["text"], wanted, stop)
            equal(reply["choices"][0]["finish_reason"], "stop")
            equal(reply["rapt"]["finish"], "stop_string")
        same = s.run("The model", "--raw", "--seed", "7", "-n", "40", *AS_API, "--stop", stop)
        equal(same["samples"][0]["text"], wanted, "rapt run")
        body = {"prompt": "The model", "seed": 7, "max_tokens": 40, "stop": stop, "stream": True}
        pieces = [c["choices"][0]["text"] for c in good(s.one.ask("/v1/completions", body)).chunks()]
        seen = ""
        for p in pieces:
            seen += p
            expect(wanted.startswith(seen), f"{seen!r} was shown, {wanted!r} is the answer")
        equal(seen, wanted)


@test
def penalties_count_the_answer_alone(s):
    """Greedy with penalties: at every place the chosen token is the best after the penalty, by the model's
    own log-probabilities; what only the prompt holds is not punished."""
    for fields in ({"presence_penalty": 1.5}, {"frequency_penalty": 0.8},
                   {"presence_penalty": -0.5, "frequency_penalty": 1.0}):
        ids = tokens(s, "the the the the model model model | | | |")
        reply = s.complete(ids, temperature=0, max_tokens=30, logprobs=20, return_token_ids=True, **fields)
        lists, answer = reply["choices"][0]["logprobs"], reply["choices"][0]["token_ids"]
        # The texts of tokens are names here; of equal names only one can be told apart.
        counts = {}
        for token, top in zip(lists["tokens"], lists["top_logprobs"]):
            def score(t):
                n = counts.get(t, 0)
                return top[t] - fields.get("presence_penalty", 0) * (n > 0) - \
                    fields.get("frequency_penalty", 0) * n
            best = max(score(t) for t in top)
            expect(score(token) >= best - 1e-4, fields, token, score(token), best)
            counts[token] = counts.get(token, 0) + 1
        plain = s.complete(ids, temperature=0, max_tokens=30, return_token_ids=True)
        equal(plain["choices"][0]["token_ids"][0], answer[0],
              "the first token is not punished for the prompt")
        expect(plain["choices"][0]["token_ids"] != answer, "penalties did nothing")


@test
def bias_forces_and_forbids(s):
    free = s.complete("The model", temperature=0, max_tokens=12, return_token_ids=True)
    first = free["choices"][0]["token_ids"][0]
    without = s.complete("The model", temperature=0, max_tokens=12, return_token_ids=True,
                         logit_bias={str(first): -100})
    expect(first not in without["choices"][0]["token_ids"], "a forbidden token was written")
    only = s.complete("The model", temperature=1, seed=1, max_tokens=12, return_token_ids=True,
                      logit_bias={"70": 100})
    equal(only["choices"][0]["token_ids"], [70] * 12, "a bias of 100")
    refused(s.one.ask("/v1/completions", {"prompt": "a", "logit_bias": {"512": 1}}), 400)
    refused(s.one.ask("/v1/completions", {"prompt": "a", "logit_bias": {"x": 1}}), 400)
    refused(s.one.ask("/v1/completions", {"prompt": "a", "logit_bias": {"1": 101}}), 400)


@test
def ends_of_answers(s):
    eos = {"511": 100}
    done = s.complete("The model", max_tokens=5, logit_bias=eos)
    equal((done["choices"][0]["text"], done["choices"][0]["finish_reason"], done["rapt"]["finish"]),
          ("", "stop", "eos"))
    equal(done["usage"]["completion_tokens"], 0)
    cut = s.complete("The model", max_tokens=5, temperature=0)
    equal((cut["choices"][0]["finish_reason"], cut["rapt"]["finish"]), ("length", "length"))
    on = s.complete("The model", max_tokens=5, logit_bias=eos, ignore_eos=True, return_token_ids=True)
    equal(len(on["choices"][0]["token_ids"]), 5, "ignore_eos")
    late = s.complete("The model", max_tokens=9, logit_bias=eos, min_tokens=4, return_token_ids=True)
    equal(len(late["choices"][0]["token_ids"]), 4, "min_tokens")
    expect(511 not in late["choices"][0]["token_ids"], "min_tokens wrote the end")
    free = s.complete("The model", seed=7, max_tokens=30, return_token_ids=True)["choices"][0]["token_ids"]
    ended = s.complete("The model", seed=7, max_tokens=30, return_token_ids=True, stop_token_ids=[free[9]])
    equal(ended["choices"][0]["token_ids"], free[:free.index(free[9])], "stop_token_ids")
    equal(ended["choices"][0]["finish_reason"], "stop")
    for fields, tokens_ in (({"max_tokens": 6, "max_completion_tokens": 4}, 4),
                            ({"max_tokens": 3, "n_predict": 9}, 3)):
        equal(s.chat("Hi", ignore_eos=True, **fields)["usage"]["completion_tokens"], tokens_, fields)
    equal(s.complete("The model", ignore_eos=True)["usage"]["completion_tokens"], 16, "OpenAI's default")


@test
def the_context_is_full(s):
    e = refused(s.one.ask("/v1/completions", {"prompt": [65] * 8000, "max_tokens": 193}), 400,
                "context_length_exceeded")
    expect("8,192" in e["message"] or "8192" in e["message"], e["message"])
    refused(s.one.ask("/v1/completions", {"prompt": [65] * 8192}), 400, "context_length_exceeded")
    refused(s.one.ask("/v1/completions", {"prompt": [65] * 9000, "max_tokens": 0}), 400,
            "context_length_exceeded")
    full = s.complete([65] * 8182, max_tokens=10, ignore_eos=True, temperature=0)
    equal(full["usage"]["total_tokens"], 8192, "exactly full")
    rest = s.chat("a " * 4070, ignore_eos=True, temperature=0)
    equal((rest["usage"]["total_tokens"], rest["choices"][0]["finish_reason"], rest["rapt"]["finish"]),
          (8192, "length", "context"), "no max_tokens: the rest of the context")


# --------------------------------------------------------------------------------------------------- streams
def gather(chunks, chat):
    """What a client makes of a stream: the fields of choices, and what the last chunks say."""
    choices, usage, rapt = {}, None, {}
    for c in chunks:
        if c.get("usage"):
            usage = c["usage"]
        for choice in c["choices"]:
            at = choices.setdefault(choice["index"], {"text": "", "tokens": [], "finish": None, "ids": []})
            at["text"] += (choice["delta"].get("content") or "") if chat else choice["text"]
            if choice["finish_reason"]:
                expect(at["finish"] is None, "a choice ends twice")
                at["finish"] = choice["finish_reason"]
                rapt[choice["index"]] = c["rapt"]
            if choice["logprobs"]:
                l = choice["logprobs"]
                at["tokens"] += l["content"] if chat else list(zip(l["tokens"], l["token_logprobs"],
                                                                   l["top_logprobs"], l["text_offset"]))
            at["ids"] += choice.get("token_ids") or []
    return choices, usage, rapt


STREAMS = [
    {"seed": 1}, {"seed": 2, "n": 3}, {"seed": 3, "logprobs": True, "top_logprobs": 3},
    {"seed": 4, "stop": ["e", "\n"]}, {"seed": 5, "n": 2, "logprobs": True, "return_token_ids": True},
    {"temperature": 0, "stream_options": {"include_usage": True}, "return_token_ids": True},
    {"seed": 6, "logit_bias": {"511": 4}, "n": 8, "stream_options": {"include_usage": True}},
    {"seed": 7, "max_tokens": 0}, {"seed": 8, "max_tokens": 1, "logprobs": True},
    {"seed": 9, "logit_bias": {str(i): 3 for i in range(95, 220)}, "logprobs": True,
     "return_token_ids": True},  # bytes that are no whole characters
    {"seed": 10, "temperature": 2, "max_tokens": 60, "stream_options": {"continuous_usage_stats": True}},
    {"seed": 11, "timings_per_token": True, "return_progress": True,
     "stream_options": {"include_usage": True}},
]


@test
def streams_are_answers_in_pieces(s):
    for fields in STREAMS:
        for chat in (True, False):
            body = {"max_tokens": 24, **fields}
            if chat:
                body["messages"] = [{"role": "user", "content": "Tell me, 你好"}]
                path = "/v1/chat/completions"
            else:
                body["prompt"] = ["The model", "Größe"] if "n" in fields else "The model"
                path = "/v1/completions"
                if body.pop("logprobs", None):
                    body["logprobs"] = body.pop("top_logprobs", 0)
            whole = good(s.one.ask(path, body)).json()
            reply = good(s.one.ask(path, {**body, "stream": True}))
            chunks = reply.chunks()
            check_bytes(reply, chunks, chat, body)
            choices, usage, rapt = gather(chunks, chat)
            equal(sorted(choices), list(range(len(whole["choices"]))), fields)
            for w in whole["choices"]:
                mine = choices[w["index"]]
                equal(mine["text"], w["message"]["content"] if chat else w["text"], fields)
                equal(mine["finish"], w["finish_reason"], fields)
                if "return_token_ids" in fields:
                    equal(mine["ids"], w["token_ids"], fields)
                if w["logprobs"]:
                    l = w["logprobs"]
                    equal(mine["tokens"], l["content"] if chat else
                          list(zip(l["tokens"], l["token_logprobs"], l["top_logprobs"], l["text_offset"])),
                          fields)
                ending = whole["rapt"] if len(whole["choices"]) == 1 else whole["rapt"]["choices"][w["index"]]
                equal((rapt[w["index"]]["hash"], rapt[w["index"]]["finish"]),
                      (ending["hash"], ending["finish"]), fields)
            if fields.get("stream_options", {}).get("include_usage"):
                for key in ("prompt_tokens", "completion_tokens", "total_tokens"):
                    equal(usage[key], whole["usage"][key], fields)
            elif "stream_options" not in fields:
                equal(usage, None, "usage was not asked for")


def check_bytes(reply, chunks, chat, body):
    """§1.4: what clients choke on, as properties of the bytes."""
    equal(reply.headers["content-type"], "text/event-stream; charset=utf-8")
    equal(reply.headers["cache-control"], "no-cache")
    equal(reply.headers["x-accel-buffering"], "no")
    expect("content-encoding" not in reply.headers, "a stream is compressed")
    expect(b"\r" not in reply.body, "a carriage return in a stream")
    for line in reply.body.split(b"\n"):
        expect(not line or line == b":" or line.startswith(b"data: "), f"M1, M2: the line {line[:80]!r}")
    expect(reply.body.endswith(b"data: [DONE]\n\n") and reply.body.count(b"data: [DONE]") == 1, "the end")
    for key in ("id", "object", "created", "model", "system_fingerprint"):
        equal(len({json.dumps(c[key]) for c in chunks}), 1, f"{key} changes")
    equal(chunks[0]["object"], "chat.completion.chunk" if chat else "text_completion", "M5")
    roles, seen = [], []
    for c in chunks:
        expect(isinstance(c["choices"], list) and len(c["choices"]) <= 1, "choices")
        for choice in c["choices"]:
            if choice["index"] not in seen:
                seen.append(choice["index"])
            expect("logprobs" in choice and "finish_reason" in choice, choice)
            if not chat:
                expect(isinstance(choice["text"], str), choice)
                continue
            delta = choice["delta"]
            if "role" in delta:
                roles.append(choice["index"])
                equal(delta, {"role": "assistant", "content": ""}, "the role's chunk")
            expect(set(delta) <= {"role", "content"}, "M3: other members inside delta", delta)
            expect(choice["finish_reason"] is None or delta == {}, "the last chunk has content", delta)
    if chat:
        equal(roles, sorted(set(roles)), "M3, M4: one role each, in order")
        equal(roles, list(range(body.get("n", 1))), "a role for each choice")
        with_choices = [c for c in chunks if c["choices"]]
        expect(all("role" in c["choices"][0]["delta"] for c in with_choices[:len(roles)]), "roles come first")
        equal(seen, sorted(seen), "choices begin in order")
    wants = (body.get("stream_options") or {}).get("include_usage")
    if wants:
        expect(chunks[-1]["choices"] == [] and chunks[-1]["usage"], "the usage chunk is the last")
        expect(all("usage" in c and c["usage"] is None for c in chunks[:-1]), "usage is null before")
    else:
        expect(all(c["choices"] or "prompt_progress" in c for c in chunks), "a chunk without a choice")


@test
def echo_streams(s):
    for fields in ({"logprobs": 2}, {}, {"logprobs": 1, "max_tokens": 0}, {"n": 2, "logprobs": 0}):
        body = {"prompt": ["The model", "Größe, x"], "seed": 4, "max_tokens": 6, "echo": True, **fields}
        whole = good(s.one.ask("/v1/completions", body)).json()
        choices, _, _ = gather(good(s.one.ask("/v1/completions", {**body, "stream": True})).chunks(), False)
        for w in whole["choices"]:
            equal(choices[w["index"]]["text"], w["text"], fields)
            if w["logprobs"]:
                l = w["logprobs"]
                equal(choices[w["index"]]["tokens"],
                      list(zip(l["tokens"], l["token_logprobs"], l["top_logprobs"], l["text_offset"])),
                      fields)
    equal([c["text"][:len(p)] for c, p in zip(s.complete(["ab", "Größe"], echo=True)["choices"],
                                              ["ab", "Größe"])], ["ab", "Größe"])


@test
def the_end_of_a_stream_is_the_end_of_the_body(s):
    """openai's async client reads until the end: the last chunk comes with [DONE], and the connection can be
    used again."""
    with contextlib.closing(s.one.connect()) as c:
        for _ in range(3):
            c.sendall(message(s.one.host(), "/v1/completions",
                              {"prompt": "a", "max_tokens": 3, "stream": True}))
            reply = read_reply(c)
            expect(reply.body.endswith(b"[DONE]\n\n"), reply)


# ----------------------------------------------------------------------------------------------- small routes
@test
def templates_and_tokens(s):
    messages = [{"role": "system", "content": "Be."}, {"role": "user", "content": "Hi <|im_end|> 你好"},
                {"role": "assistant", "content": None, "refusal": "no"},
                {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    wanted = (
        "<|endoftext|><|im_start|>system\nBe.<|im_end|>\n<|im_start|>user\nHi <|im_end|> 你好<|im_end|>\n"
        "<|im_start|>assistant\nno<|im_end|>\n<|im_start|>user\na\nb<|im_end|>\n<|im_start|>assistant\n")
    equal(good(s.one.ask("/apply-template", {"messages": messages})).json()["prompt"], wanted)
    ids = good(s.one.ask("/tokenize", {"messages": messages})).json()["tokens"]
    n = good(s.one.ask("/v1/chat/completions/input_tokens", {"messages": messages})).json()
    equal(n, {"input_tokens": len(ids), "object": "response.input_tokens"})
    reply = s.chat(messages, max_tokens=1, return_token_ids=True)
    equal(reply["prompt_token_ids"], ids, "the ids of the chat")
    equal(reply["usage"]["prompt_tokens"], len(ids))
    equal(ids.count(510), 5, "special tokens are the template's alone")
    equal(ids.count(511), 4, "special tokens are the template's alone")
    for text in PROMPTS:
        plain = [int(x) for x in rapt_text(s.args, "tokenize", s.args.models.chat, text).split()]
        framed = [int(x) for x in rapt_text(s.args, "tokenize", s.args.models.chat, text, "--frame").split()]
        equal(tokens(s, text), plain, "llama.cpp's form")
        equal(tokens(s, text, add_special=True), framed)
        vllm = good(s.one.ask("/tokenize", {"prompt": text, "return_token_strs": True})).json()
        equal((vllm["tokens"], vllm["count"], vllm["max_model_len"]), (framed, len(framed), 8192),
              "vLLM's form")
        equal(len(vllm["token_strs"]), len(framed))
        for route in ("/detokenize", "/v1/detokenize"):
            back = good(s.one.ask(route, {"tokens": plain})).json()
            equal(back, {"content": text, "prompt": text})
        pieces = good(s.one.ask("/tokenize", {"content": text, "with_pieces": True})).json()["tokens"]
        equal([p["id"] for p in pieces], plain)
        raw = b"".join(bytes(p["piece"]) if isinstance(p["piece"], list) else p["piece"].encode()
                       for p in pieces)
        equal(raw.decode(), text, "pieces")
    equal(tokens(s, "<|im_end|>"), [511], "parse_special is on")
    expect(511 not in tokens(s, "<|im_end|>", parse_special=False), "parse_special: false")
    info = good(s.one.ask("/tokenizer_info")).json()
    equal((info["eos_token"], info["bos_token"], info["chat_template"]), ("<|im_end|>", "<|endoftext|>",
                                                                         TEMPLATE))


@test
def continuing_a_message(s):
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "The mod"}]
    more = {"continue_final_message": True, "add_generation_prompt": False}
    text = good(s.one.ask("/apply-template", {"messages": messages, **more})).json()["prompt"]
    expect(text.endswith("<|im_start|>assistant\nThe mod"), text)
    reply = s.chat(messages, temperature=0, max_tokens=5, return_token_ids=True, **more)
    same = s.complete(reply["prompt_token_ids"], temperature=0, max_tokens=5, return_token_ids=True)
    equal(reply["choices"][0]["token_ids"], same["choices"][0]["token_ids"])
    refused(s.one.ask("/v1/chat/completions", {"messages": messages[:1], **more}), 400)


@test
def models_and_what_the_server_says_of_itself(s):
    for path in ("/v1/models", "/models"):
        reply = good(s.four.ask(path)).json()
        equal([m["id"] for m in reply["data"]], ["chat", "embed", "classify", "de-en"])
        for m in reply["data"]:
            expect(m["object"] == "model" and m["root"] and m["owned_by"] and m["max_model_len"], m)
    equal(good(s.four.ask("/v1/models/embed")).json()["id"], "embed")
    e = refused(s.four.ask("/v1/models/nosuch"), 404, "model_not_found")
    expect("de-en" in e["message"], e)
    e = refused(s.four.ask("/v1/completions", {"model": "nosuch", "prompt": "a"}), 404, "model_not_found")
    equal(s.complete("a", model="gpt-4o", max_tokens=1)["model"], "chat", "one model: any name")
    props = good(s.one.ask("/props")).json()
    equal((props["default_generation_settings"]["n_ctx"], props["chat_template"], props["model_alias"]),
          (8192, TEMPLATE, "chat"))
    expect("/" not in props["model_path"], "the path of the model's file is shown")
    equal(good(s.one.ask("/health")).json(), {"status": "ok"})
    for path in ("/v1/health", "/ping", "/"):
        good(s.one.ask(path))
    equal(good(s.one.ask("/slots")).json(), [])
    expect(good(s.one.ask("/limits")).json()["accepting"] is True, "accepting")
    head = s.one.ask("/v1/models", method="HEAD")
    equal((head.status, head.body), (200, b""))
    expect(int(head.headers["content-length"]) > 100, head.headers)


@test
def openapi_lists_what_there_is(s):
    doc = good(s.one.ask("/openapi.json")).json()
    expect(doc["openapi"].startswith("3.1"), doc["openapi"])
    stream = good(s.one.ask("/v1/completions", {"prompt": "a", "max_tokens": 1, "stream": True,
                                                "rapt": {"resume": True}})).headers["rapt-stream"]
    kept = s.complete("a", max_tokens=1)["id"]
    there = {"/v1/stream/{id}": stream, "/v1/replay/{id}": kept, "/page/{file}": "index.html",
             "/v1/monitor": "?once=1"}
    for path, methods in doc["paths"].items():
        for method in methods:
            for p in (path, path.removeprefix("/v1")):
                p = re.sub(r"\{.*\}", there.get(path, "chat"), p)
                p += there[path] if path == "/v1/monitor" else ""  # as a stream it has no end
                reply = s.one.ask(p, {} if method == "post" else None, method=method.upper())
                expect(reply.status in (200, 204, 400), f"{method} {p}: {reply}")
    refused(s.one.ask("/v1/nosuch"), 404, "route_not_found")
    refused(s.one.ask("/v1/nosuch", {}), 404, "route_not_found")
    refused(s.one.ask("/v1/chat/completions"), 405)
    refused(s.one.ask("/v1/models", {}), 405)


@test
def metrics_count(s):
    def numbers():
        return (s.one.metric("rapt_http_requests_total", route="/completions", status="200"),
                s.one.metric("rapt_generation_tokens_total"), s.one.metric("rapt_prompt_tokens_total"),
                s.one.metric("rapt_request_success_total", finished_reason="length"))
    before = numbers()
    s.complete([65] * 40, max_tokens=7, ignore_eos=True, cache_prompt=False)
    after = numbers()
    equal([b - a for a, b in zip(before, after)][:1] + [after[3] - before[3]], [1, 1])
    expect(after[1] - before[1] in (6, 7) and after[2] - before[2] in (39, 40), before, after)
    text = good(s.one.ask("/metrics"))
    expect(text.headers["content-type"].startswith("text/plain"), text.headers)
    names = set()
    for line in text.text().splitlines():
        if line.startswith("# TYPE "):
            expect(line.split()[2] not in names, f"{line}: twice")
            names.add(line.split()[2])
        elif not line.startswith("#"):
            expect(re.fullmatch(r'[a-z0-9_:]+(\{([a-z_]+="[^"\n]*",?)*\})? [-+.eInfa\d]+', line), line)
    values = dict(line.rsplit(" ", 1) for line in text.text().splitlines() if not line.startswith("#"))
    for ours, vllm in (("generation_tokens_total", "generation_tokens_total"),
                       ("prefix_cache_queries_total", "prompt_tokens_total"),
                       ("prompt_tokens_cached_total", "prefix_cache_hits_total"),
                       ("kv_cache_usage_perc", "kv_cache_usage_perc"),
                       ("num_requests_waiting", "num_requests_waiting")):
        equal(values[f'vllm:{vllm}{{model_name="chat"}}'], values[f'rapt_{ours}{{model="chat"}}'], vllm)
    equal(values['vllm:request_success_total{model_name="chat",finished_reason="length"}'],
          values['rapt_request_success_total{model="chat",finished_reason="length"}'])
    bucket = '_bucket{model%s="chat",le="+Inf"}'
    equal(values["vllm:time_to_first_token_seconds" + bucket % "_name"],
          values["rapt_time_to_first_token_seconds" + bucket % ""])
    expect({"vllm:e2e_request_latency_seconds", "vllm:iteration_tokens_total"} <= names, "histograms")


# --------------------------------------------------------------------------------------------- other models
@test
def embeddings_are_those_of_rapt_embed(s):
    texts = ["a small cat", "ein Hund", "x"]
    wanted = [w["embedding"] for w in rapt_lines(s.args, "embed", s.args.models.embed, *texts)]
    for path in ("/v1/embeddings", "/embeddings"):
        reply = good(s.four.ask(path, {"model": "embed", "input": texts})).json()
        equal(([d["index"] for d in reply["data"]], reply["object"], reply["model"]),
              ([0, 1, 2], "list", "embed"))
        for d, w in zip(reply["data"], wanted):
            near(d["embedding"], w, 1e-6, "embedding")
    coded = good(s.four.ask("/v1/embeddings", {"model": "embed", "input": texts,
                                               "encoding_format": "base64"})).json()
    for d, e in zip(coded["data"], reply["data"]):
        raw = base64.b64decode(d["embedding"])
        near(struct.unpack(f"<{len(raw) // 4}f", raw), e["embedding"], 1e-7, "base64")
    small = good(s.four.ask("/v1/embeddings", {"model": "embed", "input": texts[0], "dimensions": 8})).json()
    short = small["data"][0]["embedding"]
    norm = math.sqrt(math.fsum(x * x for x in wanted[0][:8]))
    near(short, [x / norm for x in wanted[0][:8]], 1e-5, "dimensions")
    ids = good(s.four.ask("/tokenize", {"model": "embed", "prompt": texts[0]})).json()["tokens"]
    by_ids = good(s.four.ask("/v1/embeddings", {"model": "embed", "input": [ids]})).json()
    near(by_ids["data"][0]["embedding"], wanted[0], 1e-6, "ids")
    equal(by_ids["usage"], {"prompt_tokens": len(ids), "total_tokens": len(ids)})
    refused(s.four.ask("/v1/embeddings", {"model": "embed", "input": "a", "dimensions": 33}), 400,
            param="dimensions")
    refused(s.four.ask("/v1/embeddings", {"model": "embed", "input": ""}), 400)
    refused(s.four.ask("/v1/embeddings", {"model": "embed", "input": []}), 400)
    refused(s.four.ask("/v1/embeddings", {"model": "embed", "input": "a" * 500}), 400,
            "context_length_exceeded")
    own = [w["embedding"] for w in rapt_lines(s.args, "embed", s.args.models.chat, texts[0])]
    mine = good(s.one.ask("/v1/embeddings", {"input": texts[0]})).json()["data"][0]["embedding"]
    near(mine, own[0], 1e-5, "of a decoder")


@test
def rerank_by_cosine(s):
    documents = ["a dog", "ein buch", "a dog runs through the snow", "zzz"]
    query = "a dog runs"
    vectors = [w["embedding"] for w in rapt_lines(s.args, "embed", s.args.models.embed, query, *documents)]
    def cosine(a, b):
        return math.fsum(x * y for x, y in zip(a, b)) / math.sqrt(
            math.fsum(x * x for x in a) * math.fsum(x * x for x in b))
    wanted = sorted(((cosine(vectors[0], v), i) for i, v in enumerate(vectors[1:])), reverse=True)
    for path in ("/v1/rerank", "/rerank", "/reranking"):
        reply = good(s.four.ask(path, {"model": "embed", "query": query, "documents": documents})).json()
        equal([r["index"] for r in reply["results"]], [i for _, i in wanted])
        near([r["relevance_score"] for r in reply["results"]], [c for c, _ in wanted], 1e-5)
    two = good(s.four.ask("/v1/rerank", {"model": "embed", "query": query, "documents": documents, "top_n": 2,
                                         "return_documents": True})).json()["results"]
    equal([r["document"]["text"] for r in two], [documents[i] for _, i in wanted[:2]])
    bare = good(s.four.ask("/rerank", {"model": "embed", "query": query, "texts": documents})).json()
    equal([r["index"] for r in bare], [i for _, i in wanted], "TEI")


@test
def classes_are_those_of_rapt_classify(s):
    texts = ["ein hund läuft", "a dog runs", "wasser"]
    wanted = rapt_lines(s.args, "classify", s.args.models.classify, *texts)
    reply = good(s.four.ask("/v1/classify", {"model": "classify", "input": texts})).json()
    for d, w in zip(reply["data"], wanted):
        known = {c["label"]: c["probability"] for c in w["classes"]}
        near([known[l] for l in d["labels"]], d["probs"], 1e-6)
        equal((d["label"], d["num_classes"]), (w["classes"][0]["label"], 2))
    refused(s.four.ask("/v1/classify", {"model": "embed", "input": "a"}), 400, param="model")
    refused(s.four.ask("/v1/chat/completions", {"model": "embed", "messages": [
        {"role": "user", "content": "a"}]}), 400, param="model")
    refused(s.four.ask("/v1/embeddings", {"model": "classify", "input": "a"}), 400, param="model")


@test
def translations_are_those_of_rapt_translate(s):
    for text in ("ein hund läuft durch den schnee", "zwei kinder"):
        wanted = rapt_lines(s.args, "translate", s.args.models.translate, text, "--beams", "1", "-n", "40")[0]
        chat = good(
            s.four.ask(
                "/v1/chat/completions", {
                    "model": "de-en", "max_tokens": 40, "messages": [{
                        "role": "system", "content": "ignored"}, {"role": "user", "content": text}]})).json()
        equal(chat["choices"][0]["message"]["content"], wanted["text"])
        plain = good(s.four.ask("/v1/completions", {"model": "de-en", "prompt": [text, "der mann"],
                                                    "max_tokens": 40})).json()
        equal(plain["choices"][0]["text"], wanted["text"])
        reply = good(s.four.ask("/v1/chat/completions", {
            "model": "de-en", "max_tokens": 40, "stream": True,
            "messages": [{"role": "user", "content": text}]}))
        equal(gather(reply.chunks(), True)[0][0]["text"], wanted["text"], "stream")


# -------------------------------------------------------------------------------------------------- prefixes
@test
def prefixes_are_found_and_change_nothing(s):
    ids = [(i * 37 + 11) % 500 for i in range(700)]
    body = {"temperature": 0, "max_tokens": 12, "logprobs": 3, "return_token_ids": True}
    alone = s.complete(ids, cache_prompt=False, **body)
    equal(alone["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
    s.complete(ids, **body)
    again = s.complete(ids, **body)
    expect(again["usage"]["prompt_tokens_details"]["cached_tokens"] > 300, again["usage"])
    for reply in (again, s.complete(ids, cache_salt="mine", **body)):
        equal(reply["rapt"]["hash"], alone["rapt"]["hash"], "bits")
        equal(reply["choices"], alone["choices"])
    salted = s.complete(ids, cache_salt="other", **body)
    equal(salted["usage"]["prompt_tokens_details"]["cached_tokens"], 0, "another salt")
    echoed = s.complete(ids, echo=True, **body)
    equal(echoed["choices"][0]["logprobs"]["token_logprobs"][-12:],
          alone["choices"][0]["logprobs"]["token_logprobs"], "echo after a hit")
    equal(len(echoed["choices"][0]["logprobs"]["tokens"]), 712)


@test
def looks_and_edits(s):
    body = {"temperature": 0, "max_tokens": 8, "return_token_ids": True}
    plain = s.complete("Attention is", **body)
    seen = s.complete("Attention is", cache_prompt=False, rapt={"look": ["layers", "heads", "tokens"]},
                      **body)
    equal(seen["rapt"]["hash"], plain["rapt"]["hash"], "a look changes bits")
    look = seen["rapt"]["look"]
    equal((len(look["layers"]), [len(h) for h in look["heads"]]), (2, [4, 4]))
    expect(len(look["tokens"]) >= seen["usage"]["prompt_tokens"], len(look["tokens"]))
    for h in look["heads"]:
        for x in h:
            expect(x["entropy"] >= 0 and 0 <= x["sink"] <= 1.0001 and 0 <= x["self"] <= 1.0001, x)
    refused(s.one.ask("/v1/completions", {"prompt": "a", "rapt": {"look": ["nosuch"]}}), 400)
    edited = s.complete("Attention is", rapt={"edits": ["L0H0:zero", "L1H2:zero"]}, **body)
    wanted = s.run("Attention is", "--raw", "--temp", "0", "-n", "8", "--edit", "L0H0:zero", "--edit",
                   "L1H2:zero")
    equal(edited["choices"][0]["token_ids"], wanted["samples"][0]["ids"], "rapt run --edit")
    expect(edited["rapt"]["hash"] != plain["rapt"]["hash"], "the edit did nothing")
    equal(s.complete("Attention is", **body)["rapt"]["hash"], plain["rapt"]["hash"], "afterwards")
    for bad in (["L9H0:zero"], ["nosuch"], [{"site": "x"}], ["resid_post.0:add=/etc/passwd"], "L0H0:zero"):
        refused(s.one.ask("/v1/completions", {"prompt": "a", "rapt": {"edits": bad}}), 400)


@test
def conversations_without_end(s):
    body = {"temperature": 0, "max_tokens": 40, "return_token_ids": True, "ignore_eos": True}
    ours = s.complete("The model", rapt={"stream": {"keep": 4, "window": 16}}, **body)
    wanted = s.run("The model", "--raw", "--temp", "0", "-n", "40", "--stream", "--keep", "4", "--window",
                   "16", "--ignore-eos")
    equal(ours["choices"][0]["token_ids"], wanted["samples"][0]["ids"])
    expect(ours["rapt"]["dropped"] > 0, ours["rapt"])


# ---------------------------------------------------------------------------------------------------- errors
@test
def null_is_absent_and_strangers_are_ignored(s):
    doc = good(s.one.ask("/openapi.json")).json()
    plain = s.complete("The model", seed=5, max_tokens=6)["rapt"]["hash"]
    names = fields_of(doc, "/v1/completions")
    expect(len(names) > 40, names)
    nulls = {n: None for n in names if n not in ("prompt", "seed", "max_tokens")}
    equal(s.complete("The model", seed=5, max_tokens=6, **nulls)["rapt"]["hash"], plain, "null is absent")
    for name in ("store", "metadata", "service_tier", "safety_identifier", "prompt_cache_key", "verbosity",
                 "user", "nosuch_field"):
        equal(s.complete("The model", seed=5, max_tokens=6, **{name: "x"})["rapt"]["hash"], plain, name)


def fields_of(doc, path):
    schema = doc["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    while "$ref" in schema:
        schema = doc["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    return schema["properties"]


@test
def what_is_not_possible_is_said(s):
    user = [{"role": "user", "content": "a"}]
    for field, value in (("tools", [{"type": "function", "function": {"name": "f"}}]), ("audio", {}),
                         ("response_format", {"type": "xml"}), ("functions", [{"name": "f"}]),
                         ("web_search_options", {}), ("grammar", "root ::= x"), ("guided_json", {}),
                         ("modalities", ["audio"]), ("tool_choice", "required")):
        e = refused(s.one.ask("/v1/chat/completions", {"messages": user, field: value}), 400)
        expect(e["param"] and e["param"].startswith(field), field, e)
    for field, value in (("n", 9), ("n", 0), ("temperature", 2.1), ("top_logprobs", 3), ("logprobs", 3),
                         ("max_tokens", "many"), ("stop", [1]), ("stop", ""), ("seed", 1.5), ("stream", 1)):
        e = refused(s.one.ask("/v1/chat/completions", {"messages": user, field: value}), 400)
        expect(e["param"] and e["param"].startswith(field), field, e)
    for content in ([{"type": "image_url", "image_url": {"url": "http://127.0.0.1/x.png"}}],
                    [{"type": "input_audio", "input_audio": {}}], 5, None):
        refused(s.one.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": content}]}), 400)
    for messages in ([], None, [{"content": "a"}], [{"role": "nobody", "content": "a"}], ["a"]):
        refused(s.one.ask("/v1/chat/completions", {"messages": messages}), 400)
    for more in ({"suffix": "x"}, {"best_of": 3}, {"prompt": []}, {"prompt": [[]]}, {"prompt": 5}):
        refused(s.one.ask("/v1/completions", {"prompt": "a", **more}), 400)


# ------------------------------------------------------------------------------------------------------ HTTP
@test
def http_as_clients_speak_it(s):
    body = json.dumps({"prompt": "a", "max_tokens": 2}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {s.one.host()}\r\nContent-Type: application/json\r\n"
    with contextlib.closing(s.one.connect()) as c:  # keep-alive, chunks, a promise to wait
        c.sendall(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n" +
                  b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in (body[:3], body[3:11], body[11:])) +
                  b"0\r\n\r\n")
        good(read_reply(c))
        c.sendall(head.encode() + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
        equal(c.recv(1000), b"HTTP/1.1 100 Continue\r\n\r\n")
        c.sendall(body)
        good(read_reply(c))
        one = head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body
        c.sendall(one * 3)  # sent ahead
        with c.makefile("rb") as f:
            for _ in range(3):
                expect(f.readline().startswith(b"HTTP/1.1 200"), "a request that was sent ahead")
                length = 0
                while (line := f.readline()) != b"\r\n":
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                f.read(length)
    old = s.one.raw(head.replace("HTTP/1.1", "HTTP/1.0").encode() +
                    b"Content-Length: %d\r\n\r\n" % len(body) + body)
    expect(old.startswith(b"HTTP/1.1 200") and b"chunked" not in old, old[:200])
    text = json.dumps({"prompt": "a", "max_tokens": 2, "stream": True}).encode()
    old = s.one.raw(head.replace("HTTP/1.1", "HTTP/1.0").encode() +
                    b"Content-Length: %d\r\n\r\n" % len(text) + text)
    expect(old.endswith(b"data: [DONE]\n\n") and b"chunked" not in old, old[-200:])
    for type in ("application/json", "application/json; charset=utf-8", "Application/JSON"):
        good(s.one.ask("/v1/completions", body, headers={"Content-Type": type}))
    options = s.one.ask("/v1/chat/completions", method="OPTIONS", headers={
        "Origin": "http://localhost:3000", "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, content-type, x-stainless-os, x-evil"})
    equal((options.status, options.headers["access-control-allow-origin"], options.headers["vary"]),
          (204, "http://localhost:3000", "Origin"))
    equal(options.headers["access-control-allow-headers"], "authorization, content-type, x-stainless-os")


@test
def request_ids_and_model_names_in_headers(s):
    reply = good(s.one.ask("/v1/completions", {"prompt": "a", "max_tokens": 1},
                           headers={"x-request-id": "mine-42"}))
    equal((reply.headers["x-request-id"], reply.headers["rapt-model"]), ("mine-42", "chat"))
    ids = {good(s.one.ask("/v1/completions", {"prompt": "a", "max_tokens": 1})).headers["x-request-id"]
           for _ in range(5)}
    expect(len(ids) == 5 and all(len(i) >= 24 for i in ids), ids)
    long = s.one.ask("/health", headers={"x-request-id": "a" * 129})
    expect(long.headers["x-request-id"] != "a" * 129, "an id of 129 letters")


@test
def a_model_without_a_template_and_another_template(s):
    with tempfile.TemporaryDirectory() as there:
        path = pathlib.Path(there, "t.jinja")
        path.write_text("{% for m in messages %}[{{ m.content }}|{{ style }}]{% endfor %}")
        with Server(s.args, "--chat-template", path) as other:
            reply = good(other.ask("/apply-template", {
                "messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": {"style": "y"}}))
            equal(reply.json()["prompt"], "[x|y]")


# --------------------------------------------------------------------------------- limits, keys, other doors
@test
def a_full_queue_says_when_to_come_again(s):
    with Server(s.args, "--parallel", "1", "--queue", "2") as small:
        streams, refusals = [], []
        try:
            for i in range(12):
                c = small.connect()
                c.sendall(message(small.host(), "/v1/completions", {
                    "prompt": "a", "max_tokens": 8000, "ignore_eos": True, "stream": True}))
                streams.append(c)
                time.sleep(0.05)
            for c in streams:
                c.settimeout(5)
                first = c.recv(400)
                if b" 429 " in first.split(b"\r\n")[0]:
                    refusals.append(first.decode())
            expect(refusals, "nobody was refused")
            for r in refusals:
                after = re.search(r"(?i)\r\nretry-after: (\d+)\r\n", r)
                expect(after and 1 <= int(after[1]) <= 120, r)
                expect(re.search(r"(?i)\r\nretry-after-ms: \d+\r\n", r), r)
            good(small.ask("/health"))
        finally:
            for c in streams:
                c.close()
        for _ in range(200):  # those who left are forgotten
            if small.ask("/slots").json() == [] and small.ask("/v1/completions", {
                    "prompt": "a", "max_tokens": 1}).status == 200:
                return
            time.sleep(0.05)
        raise Fault("requests of clients that left still run")


@test
def a_request_that_never_fits(s):
    """The pool is smaller than the context: such a prompt is refused, and takes no place in the queue."""
    with Server(s.args, "--pool", "128K", "--queue", "8") as small:
        for _ in range(20):
            for prompt in ([65] * 8000, [[65] * 10, [65] * 8000]):
                reply = small.ask("/v1/completions", {"prompt": prompt, "max_tokens": 2})
                expect(400 <= reply.status < 500 and reply.status != 429, reply)
        # A list's first prompt may be with the engine when its second is refused: it leaves a step later.
        for _ in range(200):
            queue = small.ask("/limits").json()["queue"]
            if queue["waiting"] == 0:
                break
            time.sleep(0.02)
        equal((queue["waiting"], queue["waiting_tokens"]), (0, 0), "the queue")
        good(small.ask("/v1/completions", {"prompt": [65] * 10, "max_tokens": 2}))
        # The only one that is left ends where the pool does.
        full = good(small.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}],
                                                       "ignore_eos": True})).json()
        equal(full["choices"][0]["finish_reason"], "length", "where the pool ends")


@test
def a_client_that_leaves_frees_its_place(s):
    with contextlib.closing(s.one.connect()) as c:
        c.sendall(message(s.one.host(), "/v1/completions", {"prompt": "a", "max_tokens": 8000,
                                                            "ignore_eos": True, "stream": True}))
        c.recv(1000)
        expect(len(s.one.ask("/slots").json()) == 1, "the running request is not shown")
    for _ in range(200):
        if s.one.ask("/slots").json() == []:
            break
        time.sleep(0.02)
    equal(s.one.ask("/slots").json(), [], "after it left")
    expect(s.one.metric("rapt_cancelled_total") >= 1, "not counted")


@test
def a_time_limit_of_the_client(s):
    with Server(s.args, "--no-prefix-cache") as slow:
        reply = slow.ask("/v1/completions", {"prompt": "a", "max_tokens": 8000, "ignore_eos": True, "n": 8},
                         headers={"x-request-timeout": "0.3"})
        if reply.status == 200:  # what there was, or all of it on a fast machine
            expect(reply.json()["rapt"]["choices"][0]["finish"] in ("deadline", "length"),
                   reply.json()["rapt"])
        else:
            refused(reply, 504, "deadline")


@test
def keys_from_file_and_environment(s):
    with tempfile.TemporaryDirectory() as there:
        file = pathlib.Path(there, "keys")
        file.write_text("# two\nfirst-key-1\nsecond-key-2\n")
        os.chmod(file, 0o600)
        with Server(s.args, "--key-file", file, env={"RAPT_API_KEY": "third-key-3"}) as keyed:
            for key in ("first-key-1", "second-key-2", "third-key-3"):
                good(keyed.ask("/v1/models", headers={"Authorization": f"Bearer {key}"}))
                good(keyed.ask("/v1/models", headers={"x-api-key": key}))
            refused(keyed.ask("/v1/models"), 401, "invalid_api_key")
            equal(keyed.ask("/v1/models").headers["www-authenticate"], "Bearer")
        os.chmod(file, 0o644)
        try:
            Server(s.args, "--key-file", file).stop()
        except Fault as f:
            expect("600" in str(f), f)
        else:
            raise Fault("a key file that others can read was taken")


@test
def a_unix_socket_a_configuration_and_the_environment(s):
    with tempfile.TemporaryDirectory() as there:
        path = f"{there}/s.sock"
        with Server(s.args, "--unix", path) as quiet:
            equal(oct(os.stat(path).st_mode & 0o777), "0o600")
            good(quiet.ask("/health"))
            text = good(quiet.ask("/v1/completions", {"prompt": "The model", "temperature": 0})).json()
            equal(text["choices"][0]["text"], s.complete("The model", temperature=0)["choices"][0]["text"])
        with Server(s.args, "--unix", path) as again:  # over what the first one left
            good(again.ask("/health"))
        config = pathlib.Path(there, "c.json")
        config.write_text(json.dumps({"models": [f"mine={s.args.models.chat}"], "port": 0, "ctx-size": 100,
                                      "quiet": True}))
        with Server(s.args, "--config", config, models=[], env={"RAPT_SERVE_CTX_SIZE": "120"}) as set:
            model = set.ask("/v1/models").json()["data"][0]
            equal((model["id"], model["max_model_len"]), ("mine", 120), "the environment is before the file")
        config.write_text('{"prot": 1}')
        try:
            Server(s.args, "--config", config, models=[]).stop()
        except Fault as f:
            expect("port" in str(f), f)
        else:
            raise Fault("a flag that does not exist was taken")


@test
def a_cache_for_each_name(s):
    chat = s.args.models.chat
    flags = ("--cache-type", "f32", "--cache-type", "b=bf16", "--cache-type", "c=f16")
    asked = {"prompt": "The model reads", "seed": 5, "max_tokens": 12, "logprobs": 2}

    def hash_of(server, name):
        return good(server.ask("/v1/completions", {**asked, "model": name})).json()["rapt"]["hash"]
    log = tempfile.TemporaryFile()
    names = [f"{name}={chat}" for name in "abc"]
    with Server(s.args, *flags, models=names, quiet=False, stderr=log) as three:
        cards = {m["id"]: m for m in good(three.ask("/v1/models")).json()["data"]}
        equal([(m["meta"]["n_layer"], m["meta"]["n_head"]) for m in cards.values()], [(2, 4)] * 3)
        equal({name: (m["meta"]["cache_type"], m["root"]) for name, m in cards.items()},
              {"a": ("f32", "a"), "b": ("bf16", "a"), "c": ("f16", "a")}, "one file, three caches")
        hashes = [hash_of(three, name) for name in "abc"]
        again = [hash_of(three, name) for name in "abc"]
        equal(again, hashes, "each name has its bits")
        equal(len(set(hashes)), 3, "another cache, other bits")
        seen = three.ask("/v1/look", {"model": "b", "text": "The model", "want": ["heads"]})
        equal(good(seen).json()["model"], "b")
        log.seek(0)
        told = log.read().decode()
        expect("b: " in told and "bf16 cache" in told and told.count("the weights are those of a") == 2, told)
    equal(hashes[0], s.complete(**asked)["rapt"]["hash"], "as in a server of its own")
    with Server(s.args, "--cache-type", "bf16") as packed:
        equal(hashes[1], hash_of(packed, "chat"), "as in a server of its own")
    for flags, words in ((("--cache-type", "d=f16"), ("d=f16", "a, b")), (("--cache-type", "b=q3"), ("q3",)),
                         (("--cache-type", "q3"), ("q8_0", "q3")), (("--cache-type", "b="), ("''",))):
        try:
            Server(s.args, *flags, models=[f"a={chat}", f"b={chat}"]).stop()
        except Fault as f:
            expect(all(w in str(f) for w in words) and "code 2" in str(f), flags, f)
        else:
            raise Fault(f"{flags} was taken")
    try:
        Server(s.args, models=[f"a={chat}", f"a={chat}"]).stop()
    except Fault as f:
        expect("two models are called 'a'" in str(f), f)
    else:
        raise Fault("two models of one name")
    with tempfile.TemporaryDirectory() as there:
        config = pathlib.Path(there, "c.json")
        config.write_text(json.dumps({"models": [f"a={chat}", f"b={chat}"], "port": 0, "quiet": True,
                                      "cache-type": ["bf16", "b=f32"]}))
        with Server(s.args, "--config", config, models=[]) as two:
            equal([m["meta"]["cache_type"] for m in two.ask("/v1/models").json()["data"]], ["bf16", "f32"])


def write_adapter(model, folder, seed):
    """A LoRA adapter of rank 4 for the matrices of attention of a model's folder, as PEFT saves it."""
    data = pathlib.Path(model, "model.safetensors").read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    shapes = {k: v["shape"] for k, v in json.loads(data[8:8 + length]).items() if "self_attn." in k}
    header, body, draw = {}, b"", random.Random(seed)
    for name, (rows, cols) in shapes.items():
        stem = "base_model.model." + name.removesuffix(".weight")
        for half, shape in (("A", (4, cols)), ("B", (rows, 4))):
            numbers = struct.pack(f"<{shape[0] * shape[1]}f",
                                  *(draw.gauss(0, 0.2) for _ in range(shape[0] * shape[1])))
            header[f"{stem}.lora_{half}.weight"] = {"dtype": "F32", "shape": shape, "data_offsets":
                                                    (len(body), len(body) + len(numbers))}
            body += numbers
    text = json.dumps(header).encode()
    folder.mkdir()
    pathlib.Path(folder, "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)
    pathlib.Path(folder, "adapter_config.json").write_text(
        json.dumps({"peft_type": "LORA", "r": 4, "lora_alpha": 4}))


@test
def adapters_are_models_by_name(s):
    chat = s.args.models.chat
    asked = {"prompt": "The model reads", "seed": 5, "max_tokens": 12, "return_token_ids": True}
    with tempfile.TemporaryDirectory() as there:
        one, two = pathlib.Path(there, "one"), pathlib.Path(there, "two")
        write_adapter(chat, one, 1)
        write_adapter(chat, two, 2)
        flags = ("--cache-type", "f32", "--lora", f"poet={one}", "--lora", f"chat:judge={two}=0.5")
        with Server(s.args, *flags, models=[f"chat={chat}"]) as server:
            cards = [(m["id"], m["parent"]) for m in good(server.ask("/v1/models")).json()["data"]]
            equal(cards, [("chat", None), ("poet", "chat"), ("judge", "chat")])
            equal(good(server.ask("/v1/models/judge")).json()["parent"], "chat")
            names = ["chat", "poet", "judge", "chat:poet", "anything"]
            said = {}

            def complete(name, prompt="The model reads"):
                said[name, prompt] = good(server.ask("/v1/completions",
                                                     {**asked, "prompt": prompt, "model": name})).json()
            for name in names:
                complete(name)
            alone = {name: said[name, asked["prompt"]] for name in names}
            hashes = [alone[name]["rapt"]["hash"] for name in names]
            equal(hashes[3:], [hashes[1], hashes[0]], "a name with its model's, an unknown name")
            equal(len(set(hashes[:3])), 3, "three ways to answer")
            equal([alone[name]["model"] for name in names], ["chat", "poet", "judge", "poet", "chat"])
            equal(len({alone[name]["system_fingerprint"] for name in names}), 3)
            threads = [threading.Thread(target=complete, args=(name, asked["prompt"]))
                       for _ in range(4) for name in names]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            equal([said[name, asked["prompt"]]["rapt"]["hash"] for name in names], hashes, "side by side")
            vector = [good(server.ask("/v1/embeddings", {"input": "The model", "model": name})).json()
                      for name in ("chat", "poet")]
            expect(vector[0]["data"][0]["embedding"] != vector[1]["data"][0]["embedding"], "one vector")
            equal(vector[1]["model"], "poet")
            refused(server.ask("/v1/look", {"model": "poet", "text": "The model", "want": ["heads"]}), 400,
                    "invalid_value", "model")
        for flag, adapter, name in (("poet", str(one), "poet"), ("judge", f"{two}=0.5", "judge")):
            ours = rapt_json(s.args, "run", chat, "The model reads", "--raw", "--temp", "0", "-n", "12",
                             "--lora", adapter)
            with Server(s.args, "--cache-type", "f32", "--lora", f"{flag}={adapter}",
                        models=[f"chat={chat}"]) as server:
                theirs = server.ask("/v1/completions", {**asked, "temperature": 0, "model": name})
            equal(good(theirs).json()["choices"][0]["token_ids"], ours["samples"][0]["ids"], name)
        for flags, words in ((("--lora", f"chat={one}"), ("'chat' is taken",)),
                             (("--lora", str(one)), ("NAME=FILE",)),
                             (("--lora", f"b:x={one}"), ("no model is served as 'b'",))):
            try:
                Server(s.args, *flags, models=[f"chat={chat}"]).stop()
            except Fault as f:
                expect(all(w in str(f) for w in words) and "code 2" in str(f), flags, f)
            else:
                raise Fault(f"{flags} was taken")


@test
def the_end_waits_for_answers(s):
    server = Server(s.args)
    result = {}

    def stream():
        with contextlib.closing(server.connect()) as c:
            c.sendall(message(server.host(), "/v1/completions", {
                "prompt": "a", "max_tokens": 4000, "ignore_eos": True, "stream": True}))
            result["reply"] = read_reply(c)
    thread = threading.Thread(target=stream)
    thread.start()
    for _ in range(200):
        if server.ask("/slots").json():
            break
        time.sleep(0.01)
    server.signal(signal.SIGTERM)
    thread.join(60)
    code = server.stop(40)
    equal(code, 0, "the exit code")
    expect(result["reply"].chunks()[-1]["choices"][0]["finish_reason"] == "length", "the stream was cut")


if __name__ == "__main__":
    args = arguments(__doc__)
    both = Both(args)
    try:
        code = run_tests(args, both)
    finally:
        for server in (both.one, both.four):
            if server.stop() != 0:
                print(f"FAILED: the server ended with {server.process.returncode}: {server.errors()[-2000:]}")
                code = 1
    sys.exit(code)
