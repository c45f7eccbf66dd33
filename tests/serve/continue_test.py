#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Answers that one server begins and another goes on with (rapt.continue): streams of many kinds, cut between
any two chunks, have the chunks, log-probabilities and hashes of the undisturbed ones; and what is refused.
--count N (--long: 1,000) is the number of answers, each of which is cut twice.

  tests/serve/continue_test.py [--rapt build/rapt] [--only PATTERN] [--count 80]
"""
import json
import pathlib
import random
import signal
import sys
import tempfile

import server as shared
from api_test import write_adapter
from bits_test import core, core_of_stream, make_request, share, text
from server import (Server, TOOLS_TEMPLATE, arguments, equal, expect, good, message, read_reply,
                    refused, run_tests, test)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "examples" / "cluster"))
from failover import Answer  # noqa: E402

shared.TESTS.clear()  # those of api_test.py
ASKED = {"prompt": "The model has", "max_tokens": 60, "seed": 5, "ignore_eos": True}
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {
    "type": "object", "properties": {"at": {"enum": ["head", "layer", "token"]}, "n": {"type": "integer"}},
    "required": ["at", "n"], "additionalProperties": False}}}]


class Setup:
    """Two servers of one model that differ in what no bit depends on."""

    def __init__(self, args):
        self.args = args
        self.first = Server(args)
        self.second = Server(args, "-t", "1", "--speculate", "off", "--no-prefix-cache", "--itl-target", "5")

    def close(self):
        bad = [s for s in (self.first, self.second) if s.stop() != 0]
        for s in bad:
            print(f"FAILED: a server ended with {s.process.returncode}: {s.errors()[-2000:]}")
        return bool(bad)


def stream(server, path, body):
    return good(server.ask(path, {**body, "stream_options": {"include_usage": True}})).chunks()


def without_call_ids(choices):
    out = json.loads(json.dumps(choices))
    for c in out:
        for call in c.get("delta", {}).get("tool_calls", ()):
            call.pop("id", None)
    return out


def told(chunks):
    """By choice: all its chunks, one after the other. How choices alternate may differ."""
    out = {}
    for c in chunks:
        for choice in without_call_ids(c["choices"]):
            out.setdefault(choice["index"], []).append(choice)
    return out


def cut_and_go_on(second, path, body, cut, whole):
    """The first `cut` chunks of the one server's stream `whole`, then what the other one adds."""
    so_far = Answer(body)
    chunks = [c for chunk in whole[:cut] for c in so_far.take(chunk)]
    rest = stream(second, path, so_far.request())
    return chunks + [c for chunk in rest for c in so_far.take(chunk)]


# ------------------------------------------------------------------------------------------------- the bits
@test
def every_kind_of_answer_goes_on_anywhere(s):
    draw = random.Random(11)
    beginnings = [text(draw, n) for n in (10, 30, 60, 120)]
    requests = [make_request(draw, i, beginnings) for i in range(s.args.count)]
    cuts = [(draw.random(), draw.random()) for _ in requests]
    counts = {"chunks": 0, "cuts": 0, "ids": 0}

    def one(me, n, client):
        path, body = requests[n]
        chat = "messages" in body
        plain = core(good(s.first.ask(path, body)).json(), chat)
        whole = stream(s.first, path, Answer(body).request())
        equal(core_of_stream(whole, chat), plain, f"{path} {json.dumps(body)[:300]}")
        for c in cuts[n]:
            cut = int(c * (len(whole) + 1))
            merged = cut_and_go_on(s.second, path, body, cut, whole)
            what = f"cut at {cut} of {len(whole)}: {path} {json.dumps(body)[:300]}"
            equal(core_of_stream(merged, chat), plain, what)
            equal(told(merged), told(whole), what)
            counts["cuts"] += 1
            counts["ids"] += sum(len(choice.get("token_ids", ()))
                                 for x in whole[:cut] for choice in x["choices"])
        counts["chunks"] += len(whole)
    share(s.args.count, 3, one)
    print(f"    {counts['cuts']} continuations of {s.args.count} answers of {counts['chunks']} chunks, "
          f"{counts['ids']} ids known, 0 differences")
    expect(counts["ids"] > 5 * s.args.count, counts)


@test
def a_cut_between_any_two_chunks(s):
    """Several tokens may be one chunk (a stop holds text back, a character is not whole)."""
    with tempfile.TemporaryDirectory() as at:
        template = pathlib.Path(at) / "tools.jinja"
        template.write_text(TOOLS_TEMPLATE)
        flags = ("--chat-template", template)
        with Server(s.args, *flags) as first, Server(s.args, *flags, "-t", "1") as second:
            call = {"messages": [{"role": "user", "content": "Look!"}], "tools": TOOLS, "seed": 3,
                    "tool_choice": "required", "logprobs": True, "max_tokens": 80}
            stops = {**ASKED, "max_tokens": 40, "stop": ["qqqqqq", "e the", "of t"], "logprobs": 2}
            letters = {**ASKED, "prompt": "你好 🙂", "max_tokens": 40, "temperature": 1.6, "logprobs": 0}
            pair = {**ASKED, "prompt": ["a", "The model"], "n": 2, "max_tokens": 12}
            for path, body in (("/v1/chat/completions", call), ("/v1/completions", stops),
                               ("/v1/completions", letters), ("/v1/completions", pair)):
                chat = "messages" in body
                whole = stream(first, path, Answer(body).request())
                for cut in range(len(whole) + 1):
                    merged = cut_and_go_on(second, path, body, cut, whole)
                    equal(told(merged), told(whole), f"cut at {cut}: {body}")
                    equal(core_of_stream(merged, chat), core_of_stream(whole, chat), f"cut at {cut}")
            several = [c for c in whole if c["choices"]]
            expect(len({c["choices"][0]["index"] for c in several}) == 4, "four choices")


@test
def a_reply_in_one_piece_is_whole(s):
    body = {**ASKED, "logprobs": 1}
    whole = good(s.first.ask("/v1/completions", {**body, "return_token_ids": True})).json()
    known = {"ids": whole["choices"][0]["token_ids"][:30], "seed": 5,
             "fingerprint": whole["system_fingerprint"]}
    del body["seed"]
    again = good(s.second.ask("/v1/completions", {**body, "rapt": {"continue": known}})).json()
    equal(core(again, False), core(whole, False))
    equal(again["timings"].get("draft_n"), None, "what is known is no guess")


@test
def it_fails_over_twice_and_while_others_write(s):
    body = {"messages": [{"role": "user", "content": "the head"}], "max_tokens": 150, "seed": 9,
            "ignore_eos": True, "temperature": 1.2, "frequency_penalty": 0.7, "mirostat": 2}
    whole = stream(s.first, "/v1/chat/completions", Answer(body).request())
    busy = [s.second.connect(timeout=60) for _ in range(4)]
    for i, c in enumerate(busy):
        c.sendall(message("localhost", "/v1/completions", {
            "prompt": text(random.Random(i), 300), "max_tokens": 120, "ignore_eos": True, "stream": True}))
    so_far = Answer(body)
    merged = [c for chunk in whole[:40] for c in so_far.take(chunk)]
    part = stream(s.second, "/v1/chat/completions", so_far.request())
    merged += [c for chunk in part[:50] for c in so_far.take(chunk)]
    merged += stream(s.first, "/v1/chat/completions", so_far.request())
    equal(told(merged), told(whole))
    for c in busy:
        read_reply(c)
        c.close()


@test
def other_clients_see_nothing_new(s):
    plain = stream(s.first, "/v1/completions", {**ASKED, "stream": True})
    for chunk in plain[:-2]:
        equal(set(chunk), {"id", "object", "created", "model", "system_fingerprint", "choices", "usage"})
        equal(set(chunk["choices"][0]), {"text", "index", "logprobs", "finish_reason"})
    first = stream(s.first, "/v1/completions", Answer(ASKED).request())[0]
    equal((first["choices"], set(first["rapt"]["continue"])), ([], {"seed", "fingerprint", "basis"}))
    equal(first["rapt"]["continue"]["seed"], 5)
    chat = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2}
    first = stream(s.first, "/v1/chat/completions", Answer(chat).request())[0]
    equal(first["choices"][0]["delta"], {"role": "assistant", "content": ""})
    expect(0 <= first["rapt"]["continue"]["seed"] < 2 ** 53, "the drawn seed is told at the beginning")


@test
def translations_and_adapters_go_on(s):
    with tempfile.TemporaryDirectory() as at:
        adapter = pathlib.Path(at) / "adapter"
        write_adapter(s.args.models.chat, adapter, 1)
        models = [f"chat={s.args.models.chat}", f"de={s.args.models.translate}"]
        flags = ("--lora", f"chat:poet={adapter}")
        with Server(s.args, *flags, models=models) as first, \
                Server(s.args, *flags, "-t", "1", models=models[::-1]) as second:
            for model, more in (("de", {"prompt": "ein hund läuft durch", "temperature": 1.5}),
                                ("poet", {"temperature": 1.3, "logprobs": 2})):
                body = {**ASKED, "model": model, "max_tokens": 24, **more}
                whole = stream(first, "/v1/completions", Answer(body).request())
                for cut in range(0, len(whole) + 1, 3):
                    merged = cut_and_go_on(second, "/v1/completions", body, cut, whole)
                    equal(told(merged), told(whole), f"{model}: cut at {cut}")
                    equal(core_of_stream(merged, False), core_of_stream(whole, False), f"{model}: {cut}")
            so_far = Answer(body)
            for chunk in whole[:9]:
                so_far.take(chunk)
            refused(second.ask("/v1/completions", {**so_far.request(), "model": "chat"}), 409,
                    "model_changed")


@test
def one_that_shuts_down_says_so_and_another_goes_on(s):
    body = {**ASKED, "max_tokens": 8000, "ignore_eos": True}
    so_far, merged = Answer(body), []
    with Server(s.args, "--drain", "0.2") as ends:
        c = ends.connect(timeout=60)
        c.sendall(message("localhost", "/v1/completions", so_far.request()))
        got = b""
        while got.count(b"data: ") < 20:
            got += c.recv(4096)
        ends.signal(signal.SIGTERM)
        while piece := c.recv(65536):
            got += piece
        c.close()
        equal(ends.process.wait(20), 0)
    lines = [line[6:] for line in got.split(b"\n") if line.startswith(b"data: ")]
    equal(json.loads(lines[-1])["error"]["code"], "draining")
    for line in lines[:-1]:
        merged += so_far.take(json.loads(line))
    expect(20 < len(so_far.ids[0]) < 8000, len(so_far.ids[0]))
    for chunk in stream(s.second, "/v1/completions", so_far.request()):
        merged += so_far.take(chunk)
    whole = stream(s.first, "/v1/completions", Answer(body).request())
    equal(told(merged), told(whole))


# ---------------------------------------------------------------------------------------------- what is not
def begun(s, body=None):
    body = body or ASKED
    so_far = Answer(body)
    for chunk in stream(s.first, "/v1/completions", so_far.request())[:20]:
        so_far.take(chunk)
    return so_far


@test
def other_ids_than_the_answers_are_found_out(s):
    so_far = begun(s)
    good(s.second.ask("/v1/completions", so_far.request()))
    for place in (0, len(so_far.ids[0]) // 2, len(so_far.ids[0]) - 1):
        request = json.loads(json.dumps(so_far.request()))
        ids = request["rapt"]["continue"]["ids"][0]
        ids[place] = (ids[place] + 1) % 500
        e = refused(s.second.ask("/v1/completions", {**request, "stream": False}), 409, "continue_differs",
                    "rapt.continue.ids")
        expect(f"token {place} stands {ids[place]}" in e["message"], e["message"])
        events = good(s.second.ask("/v1/completions", request)).events()
        equal(json.loads(events[-1])["error"]["code"], "continue_differs")
        expect(not any(json.loads(e)["choices"] for e in events[:-1]), "no piece of another answer")
    short = {**ASKED, "ignore_eos": False, "stop": [" "], "temperature": 0}
    whole = good(s.first.ask("/v1/completions", {**short, "return_token_ids": True})).json()
    ids = whole["choices"][0]["token_ids"] + [7, 8]
    e = refused(s.second.ask("/v1/completions", {**short, "rapt": {"continue": {
        "ids": ids, "fingerprint": whole["system_fingerprint"]}}}), 409, "continue_differs")
    expect("it has ended" in e["message"] or "comes" in e["message"], e["message"])


@test
def another_fingerprint_or_prompt_is_refused_before_anything(s):
    so_far = begun(s)
    with Server(s.args, "--cache-type", "bf16") as other:
        e = refused(other.ask("/v1/completions", so_far.request()), 409, "model_changed")
        expect(so_far.state["fingerprint"] in e["message"] and "whole answer" in e["message"], e["message"])
    with Server(s.args, "--ctx-size", "300") as other:
        refused(other.ask("/v1/completions", so_far.request()), 409, "prompt_changed")
    request = so_far.request()
    refused(s.second.ask("/v1/completions", {**request, "prompt": "The model has a"}), 409, "prompt_changed")
    known = {k: v for k, v in request["rapt"]["continue"].items() if k != "basis"}
    good(s.second.ask("/v1/completions", {**request, "rapt": {"continue": known}}))


@test
def what_is_refused(s):
    so_far = begun(s)
    state, ids = so_far.state, so_far.ids[0]

    def ask(known, **more):
        return s.second.ask("/v1/completions", {**ASKED, **more, "rapt": {"continue": known}})
    at = "rapt.continue.ids"
    vocabulary = s.first.ask("/v1/models").json()["data"][0]["meta"]["n_vocab"]
    for wrong in (-1, vocabulary, 2 ** 31, 2 ** 63, 1.5, "7", None, True, {}):
        refused(ask({**state, "ids": ids[:3] + [wrong]}), 400, param=f"{at}[3]")
        refused(ask({**state, "ids": [ids[:3] + [wrong]]}), 400)
    for wrong in ("1", 7, {}, True):
        refused(ask({**state, "ids": wrong}), 400, param=at)
    refused(ask({**state, "ids": [ids, 7]}), 400, param=f"{at}[1]")
    refused(ask({**state, "ids": [ids, ids]}), 400, param=at)  # one choice
    refused(ask({**state, "ids": [[]] * 100_000}), 400, param=at)
    refused(ask({**state, "ids": [5] * 61}), 400, param=at)  # max_tokens is 60
    refused(ask({**state, "ids": [5] * 9000}, max_tokens=None), 400, param=at)  # of a context of 8,192
    refused(ask({**state, "ids": [5] * 9000}, max_tokens=-1), 400, param=at)
    refused(ask({**state, "ids": ids, "seed": 6}), 400, param="rapt.continue.seed")
    refused(ask({"ids": ids, "seed": 5}), 400, param="rapt.continue.fingerprint")
    refused(ask({"ids": ids, "fingerprint": state["fingerprint"]}, seed=None), 400,
            param="rapt.continue.seed")
    refused(ask({**state, "ids": ids, "fingerprint": "x" * 129}), 400, param="rapt.continue.fingerprint")
    refused(ask({**state, "ids": ids, "id": 1}), 400)
    refused(ask([]), 400, param="rapt.continue")
    refused(s.second.ask("/v1/completions", {**ASKED, "rapt": {
        "continue": {}, "compare": {"edits": []}}}), 400, param="rapt.continue")
    refused(s.second.ask("/v1/completions", {**ASKED, "stream": True, "rapt": {
        "continue": {**state, "ids": ids}, "look": ["live"]}}), 400, param="rapt.look")
    for route in ("/v1/messages", "/v1/responses", "/api/chat"):
        body = {"model": "chat", "messages": [{"role": "user", "content": "a"}], "input": "a",
                "max_tokens": 3, "rapt": {"continue": {}}}
        equal(s.second.ask(route, body).status, 400, route)
    good(ask({"ids": [], **state}))
    good(ask({"ids": None}))


@test
def nothing_is_read_from_the_server(s):
    """What another key was answered is no nearer to who has its ids: they are computed again, from nothing
    that was kept for the other."""
    with tempfile.TemporaryDirectory() as at:
        keys = pathlib.Path(at) / "keys"
        keys.write_text("key-of-the-first-one\nkey-of-the-other-one\n")
        keys.chmod(0o600)
        mine, others = ({"Authorization": f"Bearer key-of-the-{who}-one"} for who in ("first", "other"))
        with Server(s.args, "--key-file", keys) as server:
            body = {**ASKED, "prompt": text(random.Random(1), 150)}
            so_far = Answer(body)
            reply = good(server.ask("/v1/completions", so_far.request(), headers=mine))
            for chunk in reply.chunks()[:30]:
                so_far.take(chunk)
            refused(server.ask("/v1/completions", so_far.request()), 401)
            for who, cached in ((others, False), (mine, True)):
                ask = {**so_far.request(), "stream": False}
                usage = good(server.ask("/v1/completions", ask, headers=who)).json()["usage"]
                equal(usage["prompt_tokens_details"]["cached_tokens"] > 0, cached, who)


@test
def an_answer_that_went_on_is_given_again_whole(s):
    so_far = begun(s)
    reply = good(s.second.ask("/v1/completions", so_far.request()))
    hash = reply.chunks()[-1]["rapt"]["hash"]
    again = good(s.second.ask(f"/v1/replay/{reply.headers['rapt-replay']}", {"stream": True})).chunks()
    equal((again[-1]["rapt"]["hash"], again[-1]["rapt"]["replay"]["equal"]), (hash, True))
    whole = good(s.first.ask("/v1/completions", ASKED)).json()
    equal("".join(c["choices"][0]["text"] for c in again), whole["choices"][0]["text"])
    equal(whole["rapt"]["hash"], hash)


def main():
    args = arguments(__doc__, lambda parse: parse.add_argument("--count", type=int))
    args.count = args.count or (1000 if args.long else 80)
    setup = Setup(args)
    code = run_tests(args, setup)
    return 1 if setup.close() else code


if __name__ == "__main__":
    sys.exit(main())
