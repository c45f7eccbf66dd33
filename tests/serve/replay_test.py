#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Answers that are given again have the bits of then: many kinds of them, logged under load and replayed in
another order under load, with looks on, after a restart and by `rapt replay`; what is kept, for whom and how
long; `rapt.compare` by value. --count N (--long: 1,000) is the number of answers.

  tests/serve/replay_test.py [--rapt build/rapt] [--only PATTERN] [--count 60]
"""
import json
import math
import pathlib
import random
import re
import stat
import subprocess
import sys
import tempfile
import threading
import time

import server as shared
from api_test import write_adapter
from bits_test import Client, core, core_of_stream, make_request, share, text
from server import (Fault, Server, TOOLS_TEMPLATE, arguments, equal, expect, good, message, near, rapt_text,
                    read_npy, refused, run_tests, test)

shared.TESTS.clear()  # those of api_test.py
KEY, OTHER = "canary-key-of-the-first", "canary-key-of-another"
EDIT, EDIT_2 = ["L0H1:zero"], ["z.1@2:scale=0.5", {"point": "resid_post.0", "op": "add", "value": 0.2}]


class Setup:
    def __init__(self, args):
        self.args = args
        self.folder = tempfile.TemporaryDirectory()
        self.at = pathlib.Path(self.folder.name)
        keys = self.at / "keys"
        keys.write_text(f"{KEY}\n{OTHER}\n")
        keys.chmod(0o600)
        self.keys = keys
        self.one = Server(args, "--cache-type", "f32")

    def complete(self, prompt, **more):
        return good(self.one.ask("/v1/completions", {"prompt": prompt, **more})).json()

    def rapt(self, *words):
        done = subprocess.run([self.args.rapt, *map(str, words)], capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout, done.stderr

    def close(self):
        bad = self.one.stop() != 0
        if bad:
            print(f"FAILED: the server ended with {self.one.process.returncode}: {self.one.errors()[-2000:]}")
        self.folder.cleanup()
        return bad


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def again(server, id, headers=None, **body):
    return server.ask(f"/v1/replay/{id}", body, headers=headers)


def endings(reply):
    rapt = reply["rapt"]
    return rapt.get("choices") or [{"hash": rapt["hash"], "finish": rapt["finish"]}]


def kinds(draw, count):
    """Requests of every kind (bits_test.py), half of them to be streamed."""
    beginnings = [text(draw, n) for n in (10, 30, 60, 120)]
    out = []
    for number in range(count):
        path, body = make_request(draw, number, beginnings)
        body["max_tokens"] = min(60, body["max_tokens"])
        body.get("rapt", {}).pop("look", None)
        if draw.random() < 0.5:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        if draw.random() < 0.3:
            body.pop("seed", None)  # drawn, and kept
        out.append((path, body))
    return out


def gather(reply, body, chat):
    return core_of_stream(reply.chunks(), chat) if body.get("stream") else core(reply.json(), chat)


def logged(server, requests, clients):
    """Sends them side by side: what each said, and the id it can be asked for again."""
    first, ids = [None] * len(requests), [None] * len(requests)

    def ask(me, n, client):
        client = client or Client(server)
        path, body = requests[n]
        reply = good(client.ask(path, body))
        first[n] = gather(reply, body, "messages" in body)
        ids[n] = reply.headers["rapt-replay"]
        if not body.get("stream"):
            equal(reply.json()["id"], ids[n], "the id of the reply")
        return client
    share(len(requests), clients, ask)
    return first, ids


def replayed(server, requests, first, ids, clients, draw):
    """All of them once more, in another order, half of them as streams: every one equal."""
    order = list(range(len(requests)))
    draw.shuffle(order)
    streams = [draw.random() < 0.5 for _ in order]
    counts = {"choices": 0}

    def ask(me, n, client):
        client = client or Client(server)
        which = order[n]
        chat = "messages" in requests[which][1]
        body = {"stream": True, "stream_options": {"include_usage": True}} if streams[n] else {}
        reply = good(client.ask(f"/v1/replay/{ids[which]}", body))
        expect("rapt-replay" not in reply.headers, "a repetition is kept, too")
        got = gather(reply, body, chat)
        equal(got, first[which], f"request {which}: {requests[which]}")
        if streams[n]:
            told = [c["rapt"]["replay"] for c in reply.chunks() if "replay" in c.get("rapt", {})]
            equal(len(told), len(first[which][1]), "a word about each choice")
            for t in told:
                equal((t["of"], t["equal"]), (ids[which], True))
            equal(sorted(t["hash"] for t in told), sorted(h for h, _ in first[which][1]))
        else:
            told = reply.json()["rapt"]["replay"]
            equal((told["of"], told["equal"]), (ids[which], True))
            equal([c["hash"] for c in told.get("choices", [told])], [h for h, _ in first[which][1]])
        counts["choices"] += len(first[which][1])
        return client
    share(len(requests), clients, ask)
    return counts["choices"]


# ----------------------------------------------------------------------------------------------- equal bits
@test
def answers_of_every_kind_come_again(s):
    """Side by side on a small pool (pauses), replayed in another order while others write. More than 256 at a
    time are not kept: the rest in further rounds. Then the log of all of them by `rapt replay`."""
    draw = random.Random(11)
    done = choices = 0
    began = time.monotonic()
    log = s.at / "load.jsonl"
    with Server(s.args, "--pool", "160K", "--queue", "1000", "--queue-wait", "600", "--replay-log",
                log) as server:
        over = threading.Event()

        def neighbour():
            client = Client(server)
            while not over.is_set():
                client.ask("/v1/completions", {"prompt": "The model " * 20, "max_tokens": 200,
                                               "ignore_eos": True,
                                               "rapt": {"edits": EDIT, "replay": False}})
            client.close()
        noise = threading.Thread(target=neighbour)
        noise.start()
        try:
            while done < s.args.count:
                requests = kinds(draw, min(250, s.args.count - done))
                first, ids = logged(server, requests, 8)
                equal(len(set(ids)), len(ids), "ids repeat")
                choices += replayed(server, requests, first, ids, 8, draw)
                done += len(requests)
        finally:
            over.set()
            noise.join()
        equal(server.metric("rapt_replays_total", result="equal"), done, "repetitions counted as equal")
        pauses = server.metric("rapt_num_preemptions_total")
    print(f"    {done} answers ({choices} choices) given again with equal hashes, texts and "
          f"log-probabilities; {int(pauses)} pauses; {time.monotonic() - began:.1f} s")
    code, out, errors = s.rapt("replay", log, f"chat={s.args.models.chat}", "--json", "-q", "-t", "2")
    equal((code, json.loads(out)["equal"], json.loads(out)["differences"]), (0, done, []), errors)


@test
def with_looks_on_the_bits_stay(s):
    draw = random.Random(5)
    requests = kinds(draw, 12)
    first, ids = logged(s.one, requests, 4)
    for (path, body), was, id in zip(requests, first, ids):
        for more in ({"rapt": {"look": ["layers", "heads", "tokens"]}}, {"top_logprobs": 3},
                     {"logprobs": False}, {"return_token_ids": True}):
            reply = good(again(s.one, id, **more)).json()
            expect(reply["rapt"]["replay"]["equal"] is True, f"{body} with {more}: {reply['rapt']}")
            equal([(e["hash"], e["finish"]) for e in endings(reply)], was[1], body)
            equal([c[0] for c in core(reply, "messages" in body)[0]], [c[0] for c in was[0]])
            if "rapt" in more:  # a look sees every row, also those that the cache has
                look = reply["rapt"]["look"]
                equal(look["reused_positions"], 0, "rows that were not seen")
                expect(len(look["layers"]) == 2, look)
            if "top_logprobs" in more:
                expect(all(c["logprobs"] for c in reply["choices"] if c.get("text")), reply)
    live = good(again(s.one, s.complete("a", max_tokens=3, ignore_eos=True)["id"], stream=True,
                      rapt={"look": ["live"]}))
    equal(sum("live" in c.get("rapt", {}) for c in live.chunks()), 3, "rows of a live look")


@test
def with_an_edit_on_it_says_where_they_part(s):
    plain = s.complete("Attention is", seed=4, max_tokens=40, ignore_eos=True, return_token_ids=True)
    edited = s.complete("Attention is", seed=4, max_tokens=40, ignore_eos=True, return_token_ids=True,
                        rapt={"edits": EDIT_2})
    a, b = (r["choices"][0]["token_ids"] for r in (plain, edited))
    at = next(i for i, (x, y) in enumerate(zip(a, b)) if x != y)
    reply = good(again(s.one, plain["id"], rapt={"edits": EDIT_2}, return_token_ids=True)).json()
    equal(reply["choices"][0]["token_ids"], b)
    equal(reply["rapt"]["hash"], edited["rapt"]["hash"])
    equal(reply["rapt"]["replay"], {"of": plain["id"], "hash": plain["rapt"]["hash"], "equal": False,
                                    "parts_at": at})
    # One that was edited is so again; [] takes the edits away.
    expect(good(again(s.one, edited["id"])).json()["rapt"]["replay"]["equal"] is True, "edited again")
    equal(good(again(s.one, edited["id"], rapt={"edits": []})).json()["rapt"]["hash"], plain["rapt"]["hash"])
    # Several choices: each for itself. Logits alone may differ.
    three = s.complete("The model", seed=1, n=3, max_tokens=6, ignore_eos=True)
    told = good(again(s.one, three["id"], rapt={"edits": ["resid_post.1:scale=1.0001"]})).json()
    replay = told["rapt"]["replay"]
    equal(([c["hash"] for c in replay["choices"]], replay["equal"]),
          ([c["hash"] for c in three["rapt"]["choices"]], False))
    for then, now, c in zip(three["choices"], told["choices"], replay["choices"]):
        if then["text"] == now["text"]:
            equal((c["equal"], c["parts_at"]), (False, None), "only the logits differ")
    expect(s.one.metric("rapt_replays_total", result="edited") >= 3, "the count of edited ones")


USER = [{"role": "user", "content": "What is it like?"}]
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string", "maxLength": 9}},
          "required": ["n", "s"], "additionalProperties": False}
CALLS = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]
FORMED = [
    ("/v1/chat/completions", {"messages": USER, "max_tokens": 60, "response_format": {
        "type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}}),
    ("/v1/chat/completions", {"messages": USER, "max_tokens": 40, "tools": CALLS, "tool_choice": "required"}),
    ("/v1/chat/completions", {"messages": USER, "max_tokens": 40, "tools": CALLS, "n": 2}),
    ("/v1/completions", {"prompt": "a", "max_tokens": 40, "grammar": 'root ::= "x" [a-f]+ "y" | root2\n'
                                                                     'root2 ::= "z"'}),
    ("/v1/completions", {"prompt": "a", "max_tokens": 30, "model": "poet", "n": 2}),
    ("/v1/chat/completions", {"messages": USER, "max_tokens": 30, "model": "poet", "tools": CALLS,
                              "tool_choice": "required"}),
    ("/v1/responses", {"input": USER, "max_output_tokens": 40, "temperature": 0.8}),
    ("/v1/responses", {"input": "x", "max_output_tokens": 40, "tool_choice": "required", "tools": [
        {"type": "function", "name": "weather", "parameters": SCHEMA}]}),
    ("/v1/messages", {"messages": USER, "max_tokens": 30}),
    ("/api/chat", {"model": "chat", "messages": USER, "stream": False, "format": SCHEMA,
                   "options": {"num_predict": 40}}),
    ("/api/generate", {"model": "chat", "prompt": "hm", "stream": False, "options": {"num_predict": 20}})]


def said(value):
    """What a reply says, without names and times."""
    if isinstance(value, list):
        return [said(v) for v in value]
    if not isinstance(value, dict):
        return value
    return {k: said(v) for k, v in value.items()
            if k not in ("id", "call_id", "created", "created_at", "completed_at", "timings", "usage", "rapt")
            and not k.endswith(("_duration", "_count"))}


@test
def constrained_calls_adapters_and_other_apis_come_again(s):
    template, adapter, log = s.at / "template", s.at / "adapter", s.at / "forms.jsonl"
    template.write_text(TOOLS_TEMPLATE)
    write_adapter(s.args.models.chat, adapter, 1)
    flags = ("--cache-type", "f32", "--replay-log", log)
    with Server(s.args, *flags, "--chat-template", template, "--lora", f"poet={adapter}") as server:
        first = []
        for path, body in FORMED * 2:
            reply = good(server.ask(path, body))
            first.append((reply.headers["rapt-replay"], reply.json(), reply.headers["rapt-model"]))
        for (path, body), (id, was, model) in zip(FORMED * 2, first):
            reply = good(again(server, id))
            equal(said(reply.json()), said(was), path)
            equal((reply.json()["rapt"]["replay"]["equal"], reply.headers["rapt-model"]), (True, model), path)
            told = good(again(server, id, rapt={"look": ["layers"]})).json()["rapt"]
            expect(told["replay"]["equal"] is True and told["look"], told)
            stream = good(again(server, id, stream=True)).body.decode()
            equal(len(re.findall(r'"equal":true', stream)), body.get("n", 1), stream[-500:])
            if path not in ("/v1/chat/completions", "/v1/completions"):
                refused(again(server, id, top_logprobs=1), 400)
                refused(again(server, id, rapt={"compare": {"edits": EDIT}}), 400)
        # Two adapters, or one and none, compared.
        ask = {"prompt": "Attention is", "seed": 3, "max_tokens": 30}
        plain, poet = (good(server.ask("/v1/completions", {**ask, "model": m})).json()
                       for m in ("chat", "poet"))
        for a, b in ((plain, "poet"), (poet, "chat"), (plain, "chat")):
            both = good(server.ask("/v1/completions", {**ask, "model": a["model"],
                                                       "rapt": {"compare": {"model": b}}})).json()["rapt"]
            other = poet if b == "poet" else plain
            equal([c["hash"] for c in both["choices"]], [a["rapt"]["hash"], other["rapt"]["hash"]])
            expect((both["compare"]["max_kl"] > 0) == (a is not other), both["compare"])
    # Without the template and the adapter of then.
    with Server(s.args, *flags) as server:
        for (path, body), (id, _, model) in zip(FORMED, first):
            reply = again(server, id)
            if model == "poet":
                refused(reply, 409, "model_changed")
            elif any(name in body for name in ("tools", "response_format", "format", "grammar")):
                refused(reply, 409, "template_changed")
            else:
                equal(good(reply).json()["rapt"]["replay"]["equal"], True, path)
    count = len(FORMED) * 2 + 2
    code, out, errors = s.rapt("replay", log, f"chat={s.args.models.chat}", "--chat-template", template,
                               "--lora", f"poet={adapter}", "--cache-type", "f32", "--json", "-q")
    equal((code, json.loads(out)["equal"], json.loads(out)["differences"]), (0, count, []), errors)


# ------------------------------------------------------------------------------------------- what is kept
@test
def the_257th_evicts_the_first(s):
    with Server(s.args, "--key-file", s.keys) as server:
        client, ids = Client(server), []
        kept = good(client.ask("/v1/completions", {"prompt": "b", "max_tokens": 1}, bearer(OTHER))).headers
        for n in range(257):
            ids.append(good(client.ask("/v1/completions", {"prompt": [n % 300 + 1], "max_tokens": 1},
                                       bearer(KEY))).headers["rapt-replay"])
        client.close()
        refused(again(server, ids[0], bearer(KEY)), 404, "replay_not_found")
        for id in (ids[1], ids[256]):
            expect(good(again(server, id, bearer(KEY))).json()["rapt"]["replay"]["equal"] is True, id)
        # The other key's is still there, and nobody's but its own.
        other = kept["rapt-replay"]
        good(again(server, other, bearer(OTHER)))
        missing = again(server, "cmpl-nosuch", bearer(KEY))
        for reply in (again(server, other, bearer(KEY)),
                      server.ask(f"/v1/replay/{other}", headers=bearer(KEY)),
                      server.ask(f"/v1/replay/{other}?text=1", headers=bearer(KEY))):
            equal((reply.status, reply.body), (404, missing.body), "another key's is not there")
        refused(again(server, other), 401)
        equal(sum(v for k, v in server.metrics(KEY).items() if k == "rapt_replay_answers"), 257)


@test
def a_long_one_takes_more_room(s):
    """8 MiB of a key: few of two megabytes each, however many short ones were before."""
    with Server(s.args, "--body-limit", "3M") as server:
        ids = [good(server.ask("/v1/completions", {"prompt": "a", "max_tokens": 1, "user": "x",
                                                   "logit_bias": {}, "stop": [str(n)],
                                                   "filler": "z" * 2_000_000})).headers["rapt-replay"]
               for n in range(6)]
        found = [again(server, id).status for id in ids]
        equal(found, [404, 404, 200, 200, 200, 200], "the last 8 MiB")
        expect(server.metric("rapt_replay_bytes") <= 8 << 20, "more than a key's part")


@test
def what_is_told_of_an_answer(s):
    reply = s.complete("canary of the prompt", max_tokens=4, seed=9, n=2, ignore_eos=True,
                       return_token_ids=True)
    told = good(s.one.ask(f"/v1/replay/{reply['id']}"))
    expect(b"canary" not in told.body, "the text is told unasked")
    told = told.json()
    equal((told["id"], told["route"], told["model"], told["seed"], told["created"]),
          (reply["id"], "/v1/completions", "chat", 9, reply["created"]))
    equal([(c["hash"], c["finish"], c["tokens"]) for c in told["choices"]],
          [(c["hash"], c["finish"], 4) for c in reply["rapt"]["choices"]])
    whole = good(s.one.ask(f"/v1/replay/{reply['id']}?text=1")).json()
    equal(whole["request"]["prompt"], "canary of the prompt")
    equal([c["ids"] for c in whole["choices"]], [c["token_ids"] for c in reply["choices"]])
    equal(whole["prompts"], [reply["choices"][0]["prompt_token_ids"]])
    # What is not kept: by wish, comparisons, errors, tasks without an answer.
    for body in ({"prompt": "a", "rapt": {"replay": False}}, {"prompt": "a", "rapt": {"compare": {}}},
                 {"prompt": []}):
        hidden = s.one.ask("/v1/completions", {**body, "max_tokens": 2})
        expect("rapt-replay" not in hidden.headers, body)
        if hidden.status == 200:
            refused(again(s.one, hidden.json()["id"]), 404)
    with Server(s.args, "--no-replay") as without:
        reply = good(without.ask("/v1/completions", {"prompt": "a", "max_tokens": 2}))
        expect("rapt-replay" not in reply.headers, "--no-replay")
        refused(again(without, reply.json()["id"]), 404)
        equal(without.ask("/limits").json()["replay"]["answers_of_a_key"], 0)
    equal(s.one.ask("/limits").json()["replay"],
          {"answers_of_a_key": 256, "bytes_of_a_key": 8 << 20, "bytes": 64 << 20})
    # Fields that it does not take are refused, and so are values out of range.
    id = s.complete("a", max_tokens=1)["id"]
    for body in ({"seed": 1}, {"prompt": "b"}, {"rapt": {"stream": {"window": 4}}},
                 {"rapt": {"cache_salt": "a"}},
                 {"top_logprobs": 21}, {"logprobs": 1}, {"stream": 1}, {"rapt": {"edits": ["L9H9:zero"]}},
                 {"rapt": {"look": ["nosuch"]}}, {"logprobs": False, "top_logprobs": 1},
                 {"rapt": {"edits": ["z.0@1:add=file.npy"]}}):
        refused(again(s.one, id, **body), 400)
    equal(s.one.ask(f"/v1/replay/{id}", b"", headers={"Content-Type": "application/json"}).status, 200)
    refused(s.one.ask(f"/v1/replay/{id}", {}, headers={"Content-Type": "text/plain"}), 415)
    refused(s.one.ask("/v1/replay/" + "x" * 300, {}), 404)
    refused(s.one.ask("/v1/replay", {}), 404)


@test
def a_cut_answer_is_not_kept(s):
    reply = s.one.ask("/v1/completions", {"prompt": "a", "max_tokens": 8000, "ignore_eos": True},
                      headers={"x-request-timeout": "0.4"})
    if reply.status == 504:  # not one token in that time
        return
    equal(good(reply).json()["rapt"]["finish"], "deadline")
    refused(again(s.one, reply.json()["id"]), 404)


# ------------------------------------------------------------------------------------------------- the file
@test
def a_log_outlives_the_server(s):
    log = s.at / "answers.jsonl"
    requests = kinds(random.Random(3), 16)
    flags = ("--replay-log", log, "--key-file", s.keys)

    def ask(server, path, body=None, key=KEY):
        return server.ask(path, body, headers=bearer(key))
    with Server(s.args, *flags) as server:
        said = [good(ask(server, *r)) for r in requests]
        first = [gather(r, body, "messages" in body) for r, (_, body) in zip(said, requests)]
        ids = [r.headers["rapt-replay"] for r in said]
        hidden = good(ask(server, "/v1/completions", {"prompt": "canary-hidden", "max_tokens": 1,
                                                      "rapt": {"replay": False}}))
        expect("rapt-replay" not in hidden.headers, "hidden")
        equal(stat.S_IMODE(log.stat().st_mode), 0o600, "the mode of the file")
        try:  # another server does not write to it
            with Server(s.args, *flags):
                raise Fault("two servers write to one log")
        except Fault as f:
            expect("another server writes to it" in str(f), f)
    lines = log.read_text().splitlines()
    equal([json.loads(l)["id"] for l in lines], ids, "a line each, in their order")
    expect(KEY not in log.read_text() and "canary-hidden" not in log.read_text(), "what must not be there")

    # A torn line, lines that mean harm, and one of a key that is gone.
    good_line = json.loads(lines[0])
    deep = "[" * 5000
    bad = [lines[0][:len(lines[0]) // 2], "{}", "null", deep, '{"id":"a"}', "\0\x1b[31m", "{" * 200,
           json.dumps({**good_line, "id": "../../etc/passwd"}), json.dumps({**good_line, "prompts": [[-1]]}),
           json.dumps({**good_line, "prompts": []}), json.dumps({**good_line, "context": -5}),
           json.dumps({**good_line, "choices": [{"ids": [1], "hash": "zz", "finish": "eos"}]}),
           json.dumps({**good_line, "seed": 1e300}), json.dumps({**good_line, "request": "a"})]
    strange = {**good_line, "id": "cmpl-strange", "prompts": [[100000]]}
    gone = {**good_line, "id": "cmpl-gone", "key": "0" * 32}
    other = {**good_line, "id": "cmpl-other", "fingerprint": "rapt-0123456789abcdef"}
    wrong = {**good_line, "id": "cmpl-wrong",
             "choices": [{**c, "hash": "0" * 16} for c in good_line["choices"]]}
    body = {**good_line, "id": "cmpl-body", "request": {"prompt": "a", "temperature": 99}, "form": "text"}
    log.write_text("\n".join(bad + [json.dumps(x) for x in (strange, gone, other, wrong, body)] + lines) +
                   "\n" + lines[1][:50])  # and the server was killed while it wrote
    with Server(s.args, *flags, quiet=False) as server:
        told = server.errors()
        expect(f"{len(bad) + 1} lines left out" in told, told)
        expect("1 answer left out whose key" in told and "\x1b" not in told, told)
        for n, id in enumerate(ids):
            reply = good(ask(server, f"/v1/replay/{id}", {}))
            equal(reply.json()["rapt"]["replay"]["equal"], True, requests[n])
            equal(core(reply.json(), "messages" in requests[n][1]), first[n], requests[n])
        refused(ask(server, f"/v1/replay/{ids[0]}", {}, OTHER), 404)
        e = refused(ask(server, "/v1/replay/cmpl-other", {}), 409, "model_changed")
        expect("rapt-0123456789abcdef" in e["message"], e)
        equal(ask(server, "/v1/replay/cmpl-wrong", {}).json()["rapt"]["replay"]["equal"], False)
        refused(ask(server, "/v1/replay/cmpl-strange", {}), 409, "replay_damaged")
        refused(ask(server, "/v1/replay/cmpl-body", {}), 400, param="temperature")
        refused(ask(server, "/v1/replay/cmpl-gone", {}), 404)
        new = good(ask(server, "/v1/completions", {"prompt": "after", "max_tokens": 2})).json()["id"]
    equal(json.loads(log.read_text().splitlines()[-1])["id"], new, "what follows a torn line stands alone")

    # The same by the program.
    whole = s.at / "whole.jsonl"
    whole.write_text("\n".join(lines) + "\n")
    code, out, errors = s.rapt("replay", whole, f"chat={s.args.models.chat}", "--json", "-q", "-t", "2")
    equal((code, {k: json.loads(out)[k] for k in ("answers", "equal", "different", "damaged")}),
          (0, {"answers": 16, "equal": 16, "different": 0, "damaged": 0}), errors)
    code, out, errors = s.rapt("replay", log, f"chat={s.args.models.chat}", "-t", "2")
    equal(code, 1, out + errors)
    expect("cmpl-wrong" in out and "the same tokens, other logits" in out, out)
    expect("22 answers: 19 equal, 1 different, 2 could not be given" in out, out)
    expect(f"{len(bad) + 1} lines left out" in errors and "another build" in errors, errors)
    code, out, errors = s.rapt("replay", whole, f"else={s.args.models.chat}", "--cache-type", "f32")
    expect(code == 1 and "16 answers left out" in errors and "holds no answer" in errors, out + errors)
    equal(s.rapt("replay", s.at / "nosuch", s.args.models.chat)[0], 1)
    equal(s.rapt("replay")[0], 2)


@test
def a_log_that_cannot_be(s):
    readable = s.at / "readable.jsonl"
    readable.write_text("")
    readable.chmod(0o644)
    for log, why in ((readable, "chmod 600"), (s.at, "cannot be opened"), (s.at / "no" / "such", "opened")):
        code, out, errors = s.rapt("serve", s.args.models.chat, "--port", "0", "--replay-log", log)
        expect(code == 1 and why in errors, (code, errors))
    code, out, errors = s.rapt("serve", s.args.models.chat, "--replay-log", s.at / "x", "--no-replay")
    equal(code, 2, errors)
    # A full disk: the answers are given all the same, and what was lost is counted.
    small = ("bash", "-c", 'ulimit -f 4; trap "" XFSZ; exec "$0" "$@"')
    with Server(s.args, "--replay-log", s.at / "small.jsonl", wrap=small) as server:
        for n in range(40):
            good(server.ask("/v1/completions", {"prompt": f"a long prompt {n} " * 20, "max_tokens": 1}))
        for _ in range(100):
            lost = server.metric("rapt_replay_log_lines_total", result="lost")
            if lost + server.metric("rapt_replay_log_lines_total", result="written") == 40:
                break
            time.sleep(0.02)
        expect(lost > 0, "nothing was lost on a full disk")
        expect("could not be written" in server.errors(), server.errors())


# ------------------------------------------------------------------------------------------------- compare
def logits(s, ids, edits):
    """Of a pass over all of them, by the command line."""
    with tempfile.TemporaryDirectory() as there:
        flags = [w for e in edits for w in ("--edit", e if isinstance(e, str) else None)]
        expect(None not in flags, "edits as text")
        rapt_text(s.args, "inspect", "tensors", s.args.models.chat, "--ids", " ".join(map(str, ids)),
                  "--points", "logits", "--out", f"{there}/l.npy", "-q", *flags)
        return read_npy(f"{there}/l.npy")


def log_softmax(row):
    top = max(row)
    total = math.log(math.fsum(math.exp(x - top) for x in row))
    return [x - top - total for x in row]


def parted_at(s, seed, a_edits, b_edits, more):
    """Compares once, every number by value; where the two part, or None."""
    ask = {"seed": seed, "max_tokens": 40, "return_token_ids": True, **more}
    a = s.complete("Attention is", **ask, rapt={"edits": a_edits})
    b = s.complete("Attention is", **ask, rapt={"edits": b_edits})
    both = s.complete("Attention is", **ask, logprobs=0,
                      rapt={"edits": a_edits, "compare": {"edits": b_edits}})
    equal([(c["text"], c["token_ids"], c["finish_reason"]) for c in both["choices"]],
          [(r["choices"][0]["text"], r["choices"][0]["token_ids"], r["choices"][0]["finish_reason"])
           for r in (a, b)], "the answers")
    equal([c["hash"] for c in both["rapt"]["choices"]], [r["rapt"]["hash"] for r in (a, b)])
    got = both["rapt"]["compare"]
    equal(got["equal"], a["rapt"]["hash"] == b["rapt"]["hash"])
    x, y = (r["choices"][0]["token_ids"] for r in (a, b))
    same = next((i for i, (p, q) in enumerate(zip(x, y)) if p != q), min(len(x), len(y)))
    # One that ended by itself chose one token more; which one the reply of `compare` says.
    expect(got["same_tokens"] in (same, same + 1), got)
    prompt = a["choices"][0]["prompt_token_ids"]
    ids = prompt + x[:got["places"] - 1]
    rows = [[log_softmax(row) for row in logits(s, ids, e)[len(prompt) - 1:]] for e in (a_edits, b_edits)]
    kl = [math.fsum(math.exp(p) * (p - q) for p, q in zip(*pair)) for pair in zip(*rows)]
    near(got["kl"], kl, 1e-9, f"divergences, {a_edits} and {b_edits}")
    near([got["mean_kl"], got["max_kl"]], [sum(kl) / len(kl), max(kl)], 1e-9)
    equal(got["kl"][got["max_kl_at"]], got["max_kl"])
    if not got["tokens"]:
        return None
    at = got["parts_at"]
    equal((at, got["places"]), (got["same_tokens"], got["same_tokens"] + 1))
    for t, chosen in zip(got["tokens"], (x, y)):
        if at < len(chosen):
            equal(t["id"], chosen[at])
        near(t["logprobs"], [rows[k][at][t["id"]] for k in (0, 1)], 1e-5, "at the parting")
    for k in (0, 1):  # the very value that the answer itself told
        if at < len((x, y)[k]):
            told = both["choices"][k]["logprobs"]["token_logprobs"]
            equal(got["tokens"][k]["logprobs"][k], told[at])
    return at


@test
def compare_by_value(s):
    """Answers that part late, at once and never; where a seed does not do so, another one will."""
    for wanted, a_edits, b_edits, more in (
        (lambda at: (at or 0) > 5, [], ["z.1@2:scale=0.9"], {}),
        (lambda at: (at or 0) > 5, [], ["resid_post.0:add=0.02"], {"temperature": 0.5}),
        (lambda at: at == 0, ["L0H1:zero"], [], {"temperature": 0.7, "top_p": 0.9}),
        (lambda at: True, ["L0H1:zero"], ["resid_post.1:scale=1.01"], {"temperature": 0}),
        (lambda at: at is None, [], ["resid_post.1:scale=1.00001"], {"stop": ["the"]})):
        if not any(wanted(parted_at(s, seed, a_edits, b_edits, more)) for seed in range(1, 40)):
            raise Fault(f"{a_edits} and {b_edits}: no seed parts as wanted")


@test
def compare_of_equals_and_what_it_refuses(s):
    for edits in ([], EDIT_2):
        got = s.complete("The model", seed=3, max_tokens=24,
                         rapt={"edits": edits, "compare": {"edits": edits}})
        c = got["rapt"]["compare"]
        equal((c["equal"], c["parts_at"], c["tokens"], c["max_kl"]), (True, None, None, 0))
        expect(len(c["kl"]) == c["same_tokens"] == c["places"] >= 1 and not any(c["kl"]), c)
    chat = good(s.one.ask("/v1/chat/completions", {
        "messages": [{"role": "user", "content": "x"}], "max_tokens": 8, "seed": 1,
        "rapt": {"look": ["layers"], "compare": {"edits": EDIT}}})).json()
    equal([c["index"] for c in chat["choices"]], [0, 1])
    expect("look" in chat["rapt"], chat["rapt"])
    equal(s.complete("a", max_tokens=0, rapt={"compare": {"edits": EDIT}})["rapt"]["compare"]["places"], 0)
    # An answer of before, compared.
    first = s.complete("Attention is", seed=4, max_tokens=30)
    both = good(again(s.one, first["id"], rapt={"compare": {"edits": EDIT}})).json()
    equal((both["rapt"]["replay"]["equal"], both["rapt"]["choices"][0]["hash"]),
          (True, first["rapt"]["hash"]))
    expect(both["rapt"]["compare"]["kl"], both["rapt"])
    for body in ({"stream": True}, {"n": 2}, {"prompt": ["a", "b"]}, {"echo": True}, {"prompt_logprobs": 1},
                 {"rapt": {"stream": {"window": 8}}}, {"rapt": {"compare": {"edits": ["L9H9:zero"]}}},
                 {"rapt": {"compare": {"edit": []}}}, {"rapt": {"compare": []}},
                 {"rapt": {"compare": {"edits": ["z.0@p900:zero"]}}}):  # touches nothing
        rapt = {"compare": {"edits": EDIT}, **body.get("rapt", {})}
        refused(s.one.ask("/v1/completions", {"prompt": "a", "max_tokens": 4, **body, "rapt": rapt}), 400)
    # A reader who leaves, and a deadline, in the middle of it.
    with s.one.connect() as c:
        c.sendall(message("localhost", "/v1/completions", {
            "prompt": "a", "max_tokens": 2000, "ignore_eos": True, "rapt": {"compare": {"edits": EDIT}}}))
        time.sleep(0.2)
    refused(s.one.ask("/v1/completions", {"prompt": "a", "max_tokens": 8000, "ignore_eos": True,
                                          "rapt": {"compare": {"edits": EDIT}}},
                      headers={"x-request-timeout": "0.3"}), 504)
    for _ in range(200):
        if not s.one.ask("/slots").json():
            break
        time.sleep(0.02)
    equal(s.one.ask("/slots").json(), [], "what was left")


@test
def compare_in_slices(s):
    """A long answer: its places are read in several pieces, each row once."""
    got = s.complete("The model", seed=3, max_tokens=1100, ignore_eos=True,
                     rapt={"compare": {"edits": ["resid_post.1:scale=1"]}})["rapt"]["compare"]
    equal((got["same_tokens"], got["places"], got["max_kl"]), (1100, 1024, 0))


if __name__ == "__main__":
    def more(parse):
        parse.add_argument("--count", type=int)
    args = arguments(__doc__, more)
    args.count = args.count or (1000 if args.long else 60)
    setup = Setup(args)
    code = 1
    try:
        code = run_tests(args, setup)
    finally:
        if setup.close():
            code = 1
    sys.exit(code)
