#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The APIs of other vendors on `rapt serve`: answers of /v1/responses, /v1/messages and Ollama's /api are
those of /v1/chat/completions for the same prompt and seed: text, numbers of tokens, hash; their streams are
their answers in pieces; errors have each vendor's shape.

  tests/serve/vendors_test.py [--rapt build/rapt] [--only PATTERN]
"""
import datetime
import json
import pathlib
import re
import sys
import tempfile
import time

from server import (Server, arguments, equal, expect, good, message, run_tests, test)

# A template with words for thoughts and functions, in the manner of released ones.
TOOLS = (
    "{{ bos_token }}{% if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool | tojson }}\n"
    "{% endfor %}<|im_end|>\n{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "THOUGHT{{ message.content }}{% for call in message.tool_calls or [] %}\n<tool_call>\n"
    "{\"name\": \"{{ call.function.name }}\", \"arguments\": {{ call.function.arguments | tojson }}}\n"
    "</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\nBEGIN{% endif %}")
THOUGHT = ("{% if message.reasoning_content %}<think>\n{{ message.reasoning_content }}\n</think>\n\n"
           "{% endif %}")
BEGIN = "{% if enable_thinking or reasoning_effort == 'high' %}<think>\n{% endif %}"
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]},
                                               "days": {"enum": [1, 2, 3]}},
              "required": ["city", "days"], "additionalProperties": False}
USER = [{"role": "user", "content": "Tell me, 你好"}]
# What is asked for, in the words of a chat.
CASES = [{"seed": 1, "max_tokens": 24}, {"temperature": 0, "max_tokens": 24}, {"seed": 3, "max_tokens": 1},
         {"seed": 4, "max_tokens": 30, "top_p": 0.6, "temperature": 0.8},
         {"seed": 5, "max_tokens": 40, "stop": ["e", "\n"]}, {"seed": 6, "max_tokens": 20, "top_k": 5},
         {"seed": 7, "max_tokens": 0}]


class All:
    def __init__(self, args):
        self.args, m = args, args.models
        self.one = Server(args, "--cache-type", "f32")
        self.two = Server(args, models=[f"chat={m.chat}", f"embed={m.embed}"])

    def chat(self, messages=None, server=None, **more):
        return good((server or self.one).ask("/v1/chat/completions",
                                             {"messages": messages or USER, **more})).json()

    def stop(self):
        bad = [s for s in (self.one, self.two) if s.stop() != 0]
        for s in bad:
            print(f"FAILED: a server ended with {s.process.returncode}: {s.errors()[-2000:]}")
        return bool(bad)


def events(reply):
    """(event, data) of a stream whose every event has a name and is of that type."""
    equal(reply.headers["content-type"], "text/event-stream; charset=utf-8")
    expect(b"\r" not in reply.body and b"[DONE]" not in reply.body, "the bytes of a stream")
    out = []
    for block in reply.body.decode().removesuffix("\n\n").split("\n\n"):
        if block == ":":
            continue
        m = re.fullmatch(r"event: (\S+)\ndata: (.*)", block)
        expect(m, f"an event without a name: {block[:200]!r}")
        data = json.loads(m[2])
        equal(data["type"], m[1])
        out.append(data)
    return out


def lines(reply):
    equal(reply.headers["content-type"], "application/x-ndjson")
    expect(reply.body.endswith(b"\n") and b"\n\n" not in reply.body, "lines")
    return [json.loads(line) for line in reply.body.decode().splitlines()]


# ------------------------------------------------------------------------------------------------- Anthropic
def as_messages(fields):
    fields = dict(fields)
    if "stop" in fields:
        fields["stop_sequences"] = fields.pop("stop")
    return fields


def gather_messages(all_events):
    """What a client makes of a stream, checking the order of its events."""
    message, open_block, ended = None, None, False
    for e in all_events:
        kind = e["type"]
        expect(not ended, "an event behind the end")
        if kind == "message_start":
            expect(message is None, "it begins twice")
            message = e["message"]
            equal((message["content"], message["stop_reason"]), ([], None))
        elif kind == "content_block_start":
            expect(open_block is None, "two blocks are open")
            equal(e["index"], len(message["content"]))
            open_block = dict(e["content_block"])
            message["content"].append(open_block)
            pieces = ""
            if open_block["type"] == "tool_use":
                equal(open_block["input"], {})
        elif kind == "content_block_delta":
            equal(e["index"], len(message["content"]) - 1)
            d = e["delta"]
            if d["type"] == "text_delta":
                open_block["text"] += d["text"]
            elif d["type"] == "thinking_delta":
                open_block["thinking"] += d["thinking"]
            else:
                equal(d["type"], "input_json_delta")
                pieces += d["partial_json"]
        elif kind == "content_block_stop":
            equal(e["index"], len(message["content"]) - 1)
            if open_block["type"] == "tool_use":
                open_block["input"] = json.loads(pieces)
            open_block = None
        elif kind == "message_delta":
            expect(open_block is None, "a block is still open")
            message.update(e["delta"])
            message["usage"].update(e["usage"])
            message["rapt"] = e["rapt"]
        else:
            equal(kind, "message_stop")
            ended = True
    expect(ended, "no end")
    return message


@test
def messages_are_chats(s):
    for fields in CASES:
        wanted = s.chat(**fields)
        choice, usage = wanted["choices"][0], wanted["usage"]
        body = {"model": "claude", "messages": USER, **as_messages(fields)}
        whole = good(s.one.ask("/v1/messages", body)).json()
        streamed = gather_messages(events(good(s.one.ask("/v1/messages", {**body, "stream": True}))))
        for mine in (whole, streamed):
            text = choice["message"]["content"]
            equal(mine["content"], [{"type": "text", "text": text}] if text else [], fields)
            equal((mine["type"], mine["role"], mine["model"]), ("message", "assistant", "chat"))
            stopped = wanted["rapt"]["finish"] == "stop_string"
            equal(mine["stop_reason"], "stop_sequence" if stopped else
                  {"stop": "end_turn", "length": "max_tokens"}[choice["finish_reason"]], fields)
            expect((mine["stop_sequence"] in fields["stop"]) if stopped else mine["stop_sequence"] is None,
                   mine)
            u = mine["usage"]
            equal((u["input_tokens"] + u["cache_read_input_tokens"], u["output_tokens"]),
                  (usage["prompt_tokens"], usage["completion_tokens"]), fields)
            equal((mine["rapt"]["hash"], mine["rapt"]["seed"] if "seed" in fields else 0),
                  (wanted["rapt"]["hash"], fields.get("seed", 0)), fields)
            expect(mine["id"].startswith("msg_"), mine["id"])
    reply = s.one.ask("/messages", {"messages": USER, "max_tokens": 1}, headers={"x-request-id": "mine"})
    equal((reply.status, reply.headers["request-id"], reply.headers["x-request-id"]), (200, "mine", "mine"))


@test
def messages_tell_which_stop_it_was(s):
    text = s.chat(seed=5, max_tokens=40)["choices"][0]["message"]["content"]
    for wanted in (text[9:11], text[14:17]):
        for stops in ([wanted], ["\x01no", wanted], [wanted, text[30:34]]):
            reply = good(s.one.ask("/v1/messages", {"messages": USER, "seed": 5, "max_tokens": 40,
                                                    "stop_sequences": stops})).json()
            equal((reply["stop_reason"], reply["stop_sequence"]), ("stop_sequence", wanted), stops)
            equal(reply["content"][0]["text"], text[:text.index(wanted)])


@test
def messages_read_what_was_read_before(s):
    """input_tokens is without those that were found again; a stamp that changes does not hide them."""
    def ask(stamp):
        system = [{"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.9; cc_entrypoint=cli; "
                                           f"cch={stamp};"},
                  {"type": "text", "text": "Be short. " * 60, "cache_control": {"type": "ephemeral"}}]
        body = {"messages": USER, "system": system, "max_tokens": 4, "seed": 1}
        whole = good(s.one.ask("/v1/messages", body)).json()
        streamed = events(good(s.one.ask("/v1/messages", {**body, "stream": True})))
        equal(streamed[0]["message"]["usage"]["input_tokens"] +
              streamed[0]["message"]["usage"]["cache_read_input_tokens"],
              sum(whole["usage"][k] for k in ("input_tokens", "cache_read_input_tokens")), "message_start")
        return whole["usage"], s.one.ask("/v1/messages/count_tokens", {
            "messages": USER, "system": system}).json()["input_tokens"]
    first, n = ask("0123a")
    equal(first["input_tokens"] + first["cache_read_input_tokens"], n)
    second, _ = ask("99fe2")
    found = second["cache_read_input_tokens"]
    expect(found >= n - 128 and found % 64 == 0, second)
    equal(second["input_tokens"] + second["cache_read_input_tokens"], n)


@test
def a_bound_beyond_the_context_is_a_bound(s):
    """Clients of these name tens of thousands of tokens; OpenAI's are refused with the numbers."""
    long = [{"role": "user", "content": "a " * 4070}]
    wanted = s.chat(long, seed=1)
    mine = good(s.one.ask("/v1/messages", {"messages": long, "max_tokens": 32000, "seed": 1})).json()
    equal(mine["rapt"]["hash"], wanted["rapt"]["hash"])
    end = "end_turn" if wanted["choices"][0]["finish_reason"] == "stop" else "model_context_window_exceeded"
    equal(mine["stop_reason"], end)
    mine = good(s.one.ask("/api/chat", {"model": "m", "messages": long, "stream": False,
                                        "options": {"seed": 1, "num_predict": 32000}})).json()
    equal((mine["rapt"]["hash"], mine["done_reason"]),
          (wanted["rapt"]["hash"], wanted["choices"][0]["finish_reason"]))
    equal(s.one.ask("/v1/responses", {"input": long, "max_output_tokens": 32000}).status, 400)
    # A conversation without end is told to end by its own number.
    mine = good(s.one.ask("/v1/messages", {"messages": USER, "max_tokens": 8300, "seed": 1, "rapt": {
        "stream": {"keep": 4, "window": 60}}})).json()
    expect(mine["stop_reason"] == "end_turn" or mine["usage"]["output_tokens"] == 8300, mine["usage"])


@test
def messages_go_on_with_the_last_one(s):
    begun = [*USER, {"role": "assistant", "content": "The mod"}]
    wanted = s.chat(begun, seed=2, max_tokens=12, continue_final_message=True, add_generation_prompt=False)
    body = {"messages": begun, "seed": 2, "max_tokens": 12}
    mine = good(s.one.ask("/v1/messages", body)).json()
    equal(mine["content"][0]["text"], wanted["choices"][0]["message"]["content"])
    equal(good(s.one.ask("/v1/messages/count_tokens", body)).json(),
          {"input_tokens": wanted["usage"]["prompt_tokens"]})


# ---------------------------------------------------------------------------------------------------- Ollama
def as_ollama(fields):
    fields = {k: v for k, v in fields.items()}
    fields["num_predict"] = fields.pop("max_tokens")
    return {"options": fields}


@test
def ollama_answers_are_chats(s):
    for fields in CASES:
        wanted = s.chat(**fields)
        choice, usage = wanted["choices"][0], wanted["usage"]
        for path, body in (("/api/chat", {"messages": USER}),
                           ("/api/generate", {"prompt": USER[0]["content"]})):
            body = {"model": "chat:latest", **body, **as_ollama(fields)}
            streamed = lines(good(s.one.ask(path, body)))  # stream is true where nothing is said
            whole = good(s.one.ask(path, {**body, "stream": False}))
            equal(whole.headers["content-type"], "application/json")
            whole = whole.json()
            expect(all(l["done"] is False for l in streamed[:-1]) and streamed[-1]["done"] is True, "done")
            def text(line):
                if path == "/api/generate":
                    return line["response"]
                equal(line["message"]["role"], "assistant")
                return line["message"]["content"]
            equal("".join(map(text, streamed)), choice["message"]["content"], fields)
            equal(text(whole), choice["message"]["content"], fields)
            for end in (whole, streamed[-1]):
                equal((end["done_reason"], end["prompt_eval_count"], end["eval_count"]),
                      (choice["finish_reason"], usage["prompt_tokens"], usage["completion_tokens"]), fields)
                equal((end["model"], end["rapt"]["hash"]), ("chat", wanted["rapt"]["hash"]), fields)
                expect(end["total_duration"] >= end["prompt_eval_duration"] + end["eval_duration"] > 0 and
                       all(isinstance(v, int) for k, v in end.items() if k.endswith("duration")), end)
                datetime.datetime.fromisoformat(end["created_at"])


@test
def ollama_generate_raw_and_with_a_system(s):
    wanted = good(s.one.ask("/v1/completions", {"prompt": "The model", "max_tokens": 20, "seed": 3})).json()
    raw = {"model": "chat", "prompt": "The model", "raw": True, "stream": False,
           "options": {"num_predict": 20, "seed": 3}}
    mine = good(s.one.ask("/api/generate", raw)).json()
    equal((mine["response"], mine["rapt"]["hash"]), (wanted["choices"][0]["text"], wanted["rapt"]["hash"]))
    messages = [{"role": "system", "content": "Be short."}, *USER]
    wanted = s.chat(messages, seed=3, max_tokens=9)
    mine = good(s.one.ask("/api/generate", {"model": "chat", "prompt": USER[0]["content"], "stream": False,
                                            "system": "Be short.",
                                            "options": {"num_predict": 9, "seed": 3}})).json()
    equal(mine["rapt"]["hash"], wanted["rapt"]["hash"])
    for path, told in (("/api/chat", {"message": {"role": "assistant", "content": ""}}),
                       ("/api/generate", {"response": ""})):
        for keep, reason in ((None, "load"), (0, "unload"), ("5m", "load")):
            reply = good(s.one.ask(path, {"model": "chat", "keep_alive": keep})).json()
            equal({k: v for k, v in reply.items() if k != "created_at"},
                  {"model": "chat", **told, "done": True, "done_reason": reason})


@test
def ollama_logprobs_are_those_of_chats(s):
    wanted = s.chat(seed=4, max_tokens=12, logprobs=True, top_logprobs=2)["choices"][0]["logprobs"]["content"]
    body = {"model": "chat", "messages": USER, "logprobs": True, "top_logprobs": 2,
            "options": {"seed": 4, "num_predict": 12}}
    streamed = lines(good(s.one.ask("/api/chat", body)))
    equal([e for l in streamed for e in l.get("logprobs", [])], wanted)
    equal(good(s.one.ask("/api/chat", {**body, "stream": False})).json()["logprobs"], wanted)
    own = good(s.one.ask("/v1/responses", {"input": USER, "seed": 4, "max_output_tokens": 12,
                                           "include": ["message.output_text.logprobs"],
                                           "top_logprobs": 2})).json()
    equal(own["output"][0]["content"][0]["logprobs"], wanted)


@test
def ollama_says_what_the_models_are(s):
    tags = good(s.two.ask("/api/tags")).json()["models"]
    running = good(s.two.ask("/api/ps")).json()["models"]
    equal([m["name"] for m in tags], ["chat", "embed"])
    for m, r in zip(tags, running):
        equal({k: m[k] for k in ("name", "model", "size", "digest", "details")},
              {k: r[k] for k in ("name", "model", "size", "digest", "details")})
        expect(re.fullmatch("[0-9a-f]{64}", m["digest"]) and m["size"] > 0, m)
        equal((m["details"]["format"], m["details"]["quantization_level"]), ("safetensors", "F32"))
        expect(re.fullmatch(r"[\d.]+[KMB]", m["details"]["parameter_size"]), m)
        datetime.datetime.fromisoformat(m["modified_at"])
        expect(datetime.datetime.fromisoformat(r["expires_at"]).year == 9999 and r["size_vram"] == 0, r)
    expect(tags[0]["digest"] != tags[1]["digest"], "two models with one digest")
    card = good(s.two.ask("/v1/models/chat")).json()["meta"]
    for name in ("chat", "chat:latest"):
        show = good(s.two.ask("/api/show", {"model": name})).json()
        family = show["details"]["family"]
        info = show["model_info"]
        equal((info["general.parameter_count"], info[f"{family}.context_length"],
               info[f"{family}.embedding_length"], info[f"{family}.block_count"],
               info[f"{family}.attention.head_count"], info[f"{family}.attention.head_count_kv"]),
              (card["n_params"], 8192, 64, 2, 4, 1))
        equal(info["general.architecture"], family)
        equal(show["template"], good(s.two.ask("/props")).json()["chat_template"])
        expect("completion" in show["capabilities"], show["capabilities"])
    equal(good(s.two.ask("/api/show", {"name": "embed"})).json()["capabilities"], ["embedding"])
    version = good(s.two.ask("/api/version")).json()["version"]
    expect(re.fullmatch(r"\d+\.\d+\.\d+", version), version)
    equal((s.two.ask("/", method="HEAD").status, s.two.ask("/api/tags", method="HEAD").status), (200, 200))


@test
def ollama_embeds(s):
    texts = ["a small cat", "ein Hund"]
    wanted = good(s.two.ask("/v1/embeddings", {"model": "embed", "input": texts})).json()
    mine = good(s.two.ask("/api/embed", {"model": "embed:latest", "input": texts, "truncate": True,
                                         "keep_alive": "5m", "options": {"num_ctx": 64}})).json()
    equal(mine["embeddings"], [d["embedding"] for d in wanted["data"]])
    equal((mine["model"], mine["prompt_eval_count"]), ("embed", wanted["usage"]["prompt_tokens"]))
    expect(mine["total_duration"] > 0, mine)
    short = good(s.two.ask("/api/embed", {"model": "embed", "input": texts[0], "dimensions": 8})).json()
    equal((len(short["embeddings"]), len(short["embeddings"][0])), (1, 8))


# ------------------------------------------------------------------------------------------------- responses
def as_response(fields):
    fields = {k: v for k, v in fields.items() if k not in ("stop", "top_k")}
    fields["max_output_tokens"] = fields.pop("max_tokens")
    return fields


def gather_response(all_events):
    """The response that the last event has, once its pieces were found to be the same."""
    equal([e["sequence_number"] for e in all_events], list(range(len(all_events))))
    equal([e["type"] for e in all_events[:2]], ["response.created", "response.in_progress"])
    equal(all_events[0]["response"]["output"], [])
    items, parts = [], {}
    for e in all_events[2:-1]:
        kind = e["type"].removeprefix("response.")
        if kind == "output_item.added":
            equal(e["output_index"], len(items))
            items.append(e["item"])
            equal(e["item"]["status"], "in_progress")
            continue
        equal(e["output_index"], len(items) - 1)
        if kind == "output_item.done":
            equal(e["item"]["id"], items[-1]["id"])
            items[-1] = e["item"]
            continue
        equal(e["item_id"], items[-1]["id"])
        text = parts.setdefault(e["item_id"], [])
        if kind.endswith(".delta"):
            text.append(e["delta"])
        elif kind == "function_call_arguments.done":
            equal(e["arguments"], "".join(text))
        elif kind in ("output_text.done", "reasoning_text.done"):
            equal((e["text"], e["content_index"]), ("".join(text), 0))
        elif kind == "content_part.done":
            equal(e["part"]["text"], "".join(text))
        else:
            equal((kind, e["part"]["text"]), ("content_part.added", ""))
    last = all_events[-1]["response"]
    equal(all_events[-1]["type"], "response." + last["status"])
    equal(last["output"], items)
    equal({e["response"]["id"] for e in all_events if "response" in e}, {last["id"]})
    return last


@test
def responses_are_chats(s):
    for fields in CASES:
        if "stop" in fields or "top_k" in fields:
            continue
        wanted = s.chat(**fields)
        choice, usage = wanted["choices"][0], wanted["usage"]
        for given in (USER, USER[0]["content"],
                      [{"type": "message", "role": "user",
                        "content": [{"type": "input_text", "text": USER[0]["content"]}]}]):
            body = {"model": "m", "input": given, **as_response(fields), "metadata": {"a": "b"}}
            whole = good(s.one.ask("/v1/responses", body)).json()
            streamed = gather_response(events(good(s.one.ask("/v1/responses", {**body, "stream": True}))))
            for mine in (whole, streamed):
                text = "".join(p["text"] for item in mine["output"] for p in item["content"])
                equal(text, choice["message"]["content"], fields)
                cut = choice["finish_reason"] == "length"
                equal((mine["status"], mine["incomplete_details"]),
                      ("incomplete", {"reason": "max_output_tokens"}) if cut else ("completed", None))
                u = mine["usage"]
                equal((u["input_tokens"], u["output_tokens"], u["total_tokens"]),
                      (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]))
                equal((mine["rapt"]["hash"], mine["object"], mine["store"], mine["metadata"]),
                      (wanted["rapt"]["hash"], "response", False, {"a": "b"}))
                expect(u["input_tokens_details"]["cached_tokens"] <= u["input_tokens"] and
                       u["output_tokens_details"]["reasoning_tokens"] == 0 and mine["created_at"] > 1e9, mine)
                for name, value in (("tools", []), ("tool_choice", "auto"), ("parallel_tool_calls", True)):
                    equal(mine[name], value)
    history = [{"role": "developer", "content": "Be short."}, {"role": "user", "content": "Hi"},
               {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
                "content": [{"type": "output_text", "text": "Hello", "annotations": []}]}, *USER]
    wanted = s.chat([{"role": "system", "content": "First."}, history[0], history[1],
                     {"role": "assistant", "content": "Hello"}, *USER], seed=1, max_tokens=5)
    mine = good(s.one.ask("/v1/responses", {"input": history, "instructions": "First.", "seed": 1,
                                            "max_output_tokens": 5})).json()
    equal((mine["rapt"]["hash"], mine["instructions"]), (wanted["rapt"]["hash"], "First."))
    equal(good(s.one.ask("/v1/responses/input_tokens", {"input": history, "instructions": "First."})).json(),
          {"input_tokens": wanted["usage"]["prompt_tokens"], "object": "response.input_tokens"})


# ----------------------------------------------------------------------------------------- tools and thoughts
def tool(name="weather"):
    return {"type": "function", "function": {"name": name, "description": "The weather.",
                                             "parameters": PARAMETERS}}


def check_calls(server):
    """One call of a function, in four APIs, as a whole and in pieces."""
    asked = {"messages": USER, "tools": [tool(), tool("other")], "seed": 3, "max_tokens": 300,
             "tool_choice": {"type": "function", "function": {"name": "weather"}}}
    wanted = good(server.ask("/v1/chat/completions", asked)).json()
    call = wanted["choices"][0]["message"]["tool_calls"][0]["function"]
    values = json.loads(call["arguments"])
    expect(call["name"] == "weather" and set(values) == {"city", "days"}, call)
    equal(wanted["choices"][0]["finish_reason"], "tool_calls")

    body = {"messages": USER, "seed": 3, "max_tokens": 300,
            "tools": [{"name": n, "description": "The weather.", "input_schema": PARAMETERS}
                      for n in ("weather", "other")],
            "tool_choice": {"type": "tool", "name": "weather"}}
    for mine in (good(server.ask("/v1/messages", body)).json(),
                 gather_messages(events(good(server.ask("/v1/messages", {**body, "stream": True}))))):
        equal(mine["stop_reason"], "tool_use")
        blocks = {b["type"]: b for b in mine["content"]}
        equal((blocks["tool_use"]["name"], blocks["tool_use"]["input"]), ("weather", values))
        equal(mine["rapt"]["hash"], wanted["rapt"]["hash"])

    body = {"input": USER, "seed": 3, "max_output_tokens": 300,
            "tools": [{"type": "function", "name": n, "description": "The weather.",
                       "parameters": PARAMETERS, "strict": True} for n in ("weather", "other")],
            "tool_choice": {"type": "function", "name": "weather"}}
    for mine in (good(server.ask("/v1/responses", body)).json(),
                 gather_response(events(good(server.ask("/v1/responses", {**body, "stream": True}))))):
        equal((mine["status"], mine["tools"][0]["name"], mine["rapt"]["hash"]),
              ("completed", "weather", wanted["rapt"]["hash"]))
        one = [i for i in mine["output"] if i["type"] == "function_call"][0]
        equal((one["name"], json.loads(one["arguments"]), one["status"]), ("weather", values, "completed"))
        expect(one["call_id"] and one["id"].startswith("fc_"), one)
    inside = 0  # of the arguments; where those end is a matter of the toy's tokens
    for less in range(10, 30, 4):
        cut = {**body, "max_output_tokens": wanted["usage"]["completion_tokens"] - less}
        whole = good(server.ask("/v1/responses", cut)).json()
        streamed = gather_response(events(good(server.ask("/v1/responses", {**cut, "stream": True}))))
        told = [[(i["type"], i["status"], i.get("arguments")) for i in mine["output"]]
                for mine in (whole, streamed)]
        equal(told[0], told[1], "whole, and as a stream")
        equal((whole["status"], streamed["status"]), ("incomplete", "incomplete"))
        for kind, status, given in told[0]:
            equal((kind, status), ("function_call", "completed" if given.endswith("}") else "incomplete"))
            inside += status == "incomplete" and given != ""
    expect(inside > 0, "never inside of the arguments")

    # Ollama has no tool_choice: what is said freely, with the function offered.
    free = good(server.ask("/v1/chat/completions", {"messages": USER, "seed": 3, "max_tokens": 30,
                                                    "tools": [tool()]})).json()
    body = {"model": "chat", "messages": USER, "tools": [tool()], "options": {"seed": 3, "num_predict": 30}}
    mine = lines(good(server.ask("/api/chat", body)))
    equal("".join(l["message"]["content"] for l in mine), free["choices"][0]["message"]["content"] or "")
    equal(mine[-1]["rapt"]["hash"], free["rapt"]["hash"])


def check_thoughts(server):
    """An answer whose prompt has begun a thought: the toy never ends it."""
    fields = {"seed": 3, "max_tokens": 20}
    wanted = good(server.ask("/v1/chat/completions", {
        "messages": USER, **fields, "chat_template_kwargs": {"enable_thinking": True}})).json()
    thought = wanted["choices"][0]["message"]["reasoning_content"]
    expect(thought and not wanted["choices"][0]["message"]["content"], wanted)
    body = {"messages": USER, **fields, "thinking": {"type": "enabled", "budget_tokens": 1024}}
    for mine in (good(server.ask("/v1/messages", body)).json(),
                 gather_messages(events(good(server.ask("/v1/messages", {**body, "stream": True}))))):
        equal(mine["content"], [{"type": "thinking", "thinking": thought, "signature": ""}])
    body = {"model": "chat", "messages": USER, "think": True, "options": {"seed": 3, "num_predict": 20}}
    for mine in ([good(server.ask("/api/chat", {**body, "stream": False})).json()],
                 lines(good(server.ask("/api/chat", body)))):
        equal("".join(l["message"].get("thinking", "") for l in mine), thought)
        equal((mine[-1]["message"]["content"], mine[-1]["rapt"]["hash"]), ("", wanted["rapt"]["hash"]))
    # /v1/responses has efforts for this, which are another variable of the template.
    wanted = good(server.ask("/v1/chat/completions", {"messages": USER, **fields,
                                                      "reasoning_effort": "high"})).json()
    thought = wanted["choices"][0]["message"]["reasoning_content"]
    body = {"input": USER, "seed": 3, "max_output_tokens": 20, "reasoning": {"effort": "high"}}
    for mine in (good(server.ask("/v1/responses", body)).json(),
                 gather_response(events(good(server.ask("/v1/responses", {**body, "stream": True}))))):
        equal([(i["type"], i["content"][0]["text"], i["status"]) for i in mine["output"]],
              [("reasoning", thought, "incomplete")])


@test
def functions_and_thoughts(s):
    with tempfile.TemporaryDirectory() as there:
        path = pathlib.Path(there, "template")
        path.write_text(TOOLS.replace("THOUGHT", "").replace("BEGIN", ""))
        with Server(s.args, "--chat-template", path) as server:
            check_calls(server)
        path.write_text(TOOLS.replace("THOUGHT", THOUGHT).replace("BEGIN", BEGIN))
        with Server(s.args, "--chat-template", path) as server:
            check_thoughts(server)
            # What was called and what came of it, told by three APIs: the same tokens.
            said = [*USER, {"role": "assistant", "content": "", "reasoning_content": "So it is.",
                            "tool_calls": [{"id": "c1", "type": "function", "function": {
                                "name": "weather", "arguments": "{\"city\": \"Rome\", \"days\": 2}"}}]},
                    {"role": "tool", "tool_call_id": "c1", "content": "warm"},
                    {"role": "user", "content": "?"}]
            n = good(server.ask("/v1/chat/completions/input_tokens", {
                "messages": said, "tools": [tool()]})).json()["input_tokens"]
            asked = {"tools": [{"name": "weather", "description": "The weather.",
                                "input_schema": PARAMETERS}],
                     "messages": [*USER, {"role": "assistant", "content": [
                         {"type": "thinking", "thinking": "So it is.", "signature": "x"},
                         {"type": "tool_use", "id": "c1", "name": "weather",
                          "input": {"city": "Rome", "days": 2}}]},
                         {"role": "user", "content": [
                             {"type": "tool_result", "tool_use_id": "c1", "content": [
                                 {"type": "text", "text": "warm"}]}, {"type": "text", "text": "?"}]}]}
            equal(good(server.ask("/v1/messages/count_tokens", asked)).json()["input_tokens"], n)
            asked = {"tools": [{"type": "function", "name": "weather", "description": "The weather.",
                                "parameters": PARAMETERS}],
                     "input": [*USER, {"type": "reasoning", "id": "rs_1", "summary": [],
                                       "content": [{"type": "reasoning_text", "text": "So it is."}]},
                               {"type": "function_call", "call_id": "c1", "name": "weather",
                                "arguments": "{\"city\": \"Rome\", \"days\": 2}"},
                               {"type": "function_call_output", "call_id": "c1", "output": "warm"},
                               {"role": "user", "content": "?"}]}
            equal(good(server.ask("/v1/responses/input_tokens", asked)).json()["input_tokens"], n)
            asked = {"model": "chat", "tools": [tool()], "stream": False, "options": {"num_predict": 0},
                     "messages": [*USER, {"role": "assistant", "content": "", "thinking": "So it is.",
                                          "tool_calls": [{"function": {"name": "weather", "arguments": {
                                              "city": "Rome", "days": 2}}}]},
                                  {"role": "tool", "tool_name": "weather", "content": "warm"},
                                  {"role": "user", "content": "?"}]}
            equal(good(server.ask("/api/chat", asked)).json()["prompt_eval_count"], n)
            show = good(server.ask("/api/show", {"model": "chat"})).json()["capabilities"]
            equal(show, ["completion", "embedding", "tools", "thinking"])


@test
def schemas(s):
    schema = {"type": "object", "properties": {"n": {"enum": [7, 12]}, "ok": {"type": "boolean"}},
              "required": ["n", "ok"], "additionalProperties": False}
    wanted = s.chat(seed=2, max_tokens=200, response_format={"type": "json_schema", "json_schema": {
        "name": "a", "schema": schema, "strict": True}})
    text = wanted["choices"][0]["message"]["content"]
    equal(set(json.loads(text)), {"n", "ok"})
    own = good(s.one.ask("/v1/responses", {"input": USER, "seed": 2, "max_output_tokens": 200, "text": {
        "format": {"type": "json_schema", "name": "a", "schema": schema, "strict": True}}})).json()
    equal(own["output"][0]["content"][0]["text"], text)
    own = good(s.one.ask("/v1/messages", {"messages": USER, "seed": 2, "max_tokens": 200, "output_config": {
        "format": {"type": "json_schema", "schema": schema}}})).json()
    equal(own["content"][0]["text"], text)
    own = good(s.one.ask("/api/chat", {"model": "chat", "messages": USER, "format": schema, "stream": False,
                                       "options": {"seed": 2, "num_predict": 200}})).json()
    equal(own["message"]["content"], text)
    bad = {"type": "object", "properties": {"n": {"type": "string", "format": 5}}}
    for path, body, name in (
        ("/v1/messages", {"messages": USER, "output_config": {
            "format": {"type": "json_schema", "schema": bad}}}, "output_config.format.schema"),
        ("/v1/responses", {"input": USER, "text": {"format": {"type": "json_schema", "name": "a",
                                                              "schema": bad}}}, "text.format"),
        ("/v1/messages", {"messages": USER, "tool_choice": {"type": "any"}, "tools": [
            {"name": "f", "input_schema": bad}]}, "tools[0].input_schema"),
        ("/api/chat", {"model": "m", "messages": USER, "format": bad}, "format")):
        reply = s.one.ask(path, body)
        equal(reply.status, 400, path)
        expect(name in reply.text() and "response_format" not in reply.text() and
               ".function" not in reply.text(), path, reply)


# ---------------------------------------------------------------------------------------------------- errors
def message_of(path, reply):
    """The words of an error, in the shape of the API that was asked."""
    body = reply.json()
    if path.startswith("/api/"):
        equal(list(body), ["error"])
        return body["error"]
    if "/messages" in path:
        equal((sorted(body), body["type"], sorted(body["error"])),
              (["error", "request_id", "type"], "error", ["message", "type"]))
        equal(body["error"]["type"], {400: "invalid_request_error", 401: "authentication_error",
                                      403: "permission_error", 404: "not_found_error",
                                      405: "invalid_request_error", 413: "request_too_large",
                                      415: "invalid_request_error",
                                      429: "rate_limit_error"}[reply.status])
        equal(body["request_id"], reply.headers.get("x-request-id", body["request_id"]))
        return body["error"]["message"]
    equal(sorted(body["error"]), ["code", "message", "param", "type"])
    return body["error"]["message"]


BODIES = {"/v1/messages": {"messages": USER, "max_tokens": 1},
          "/v1/messages/count_tokens": {"messages": USER},
          "/v1/responses": {"input": "a", "max_output_tokens": 1},
          "/api/chat": {"model": "chat", "messages": USER, "options": {"num_predict": 1}},
          "/api/generate": {"model": "chat", "prompt": "a", "options": {"num_predict": 1}},
          "/api/embed": {"model": "chat", "input": "a"}, "/api/show": {"model": "chat"}}
IMAGE = {"type": "image", "source": {"type": "url", "url": "http://127.0.0.1/x"}}
# What is wrong, and the field that the error names.
WRONG = [
    ("/v1/messages", {"messages": []}, "messages"), ("/v1/messages", {"messages": None}, "messages"),
    ("/v1/messages", {"max_tokens": -1}, "max_tokens"), ("/v1/messages", {"temperature": 3}, "temperature"),
    ("/v1/messages", {"stop_sequences": [""]}, "stop_sequences[0]"),
    ("/v1/messages", {"messages": [{"role": "user", "content": [IMAGE]}]}, "messages[0].content[0]"),
    ("/v1/messages", {"messages": [{"role": "tool", "content": "a"}]}, "messages[0].role"),
    ("/v1/messages", {"messages": [*USER, {"role": "assistant", "content": ""}]}, "messages[1].content"),
    ("/v1/messages", {"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]},
     "messages[0].content[0].tool_use_id"),
    ("/v1/messages", {"system": [{"type": "text"}]}, "system[0].text"),
    ("/v1/messages", {"tools": [{"type": "web_search_20250305", "name": "w"}]}, "tools[0].type"),
    ("/v1/messages", {"tools": [{"name": "no name", "input_schema": {}}]}, "tools[0].name"),
    ("/v1/messages", {"tool_choice": {"type": "tool", "name": "f"}}, "tool_choice"),
    ("/v1/messages", {"thinking": {"type": "maybe"}}, "thinking.type"),
    ("/v1/messages", {"mcp_servers": [{"url": "http://127.0.0.1/"}]}, "mcp_servers"),
    ("/v1/messages", {"rapt": {"nosuch": 1}}, "rapt.nosuch"),
    ("/v1/messages", {"rapt": {"look": ["live"]}, "stream": True}, "rapt.look"),
    ("/v1/messages/count_tokens", {"messages": 5}, "messages"),
    ("/v1/responses", {"input": []}, "input"), ("/v1/responses", {"input": 5}, "input"),
    ("/v1/responses", {"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
    ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
     "input[0].content[0]"),
    ("/v1/responses", {"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]},
     "input[0].call_id"),
    ("/v1/responses", {"previous_response_id": "resp_1"}, "previous_response_id"),
    ("/v1/responses", {"conversation": "c"}, "conversation"),
    ("/v1/responses", {"background": True}, "background"),
    ("/v1/responses", {"truncation": "auto"}, "truncation"),
    ("/v1/responses", {"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ("/v1/responses", {"tools": [{"type": "function", "name": "a b"}]}, "tools[0].name"),
    ("/v1/responses", {"max_output_tokens": "a"}, "max_output_tokens"),
    ("/v1/responses", {"text": {"format": {"type": "xml"}}}, "text.format.type"),
    ("/v1/responses", {"reasoning": {"effort": "huge"}}, "reasoning.effort"),
    ("/v1/responses", {"metadata": {"a": 5}}, "metadata.a"),
    ("/api/chat", {"model": None}, "model"),
    ("/api/chat", {"options": {"temperature": 5}}, "options.temperature"),
    ("/api/chat", {"options": {"stop": 5}}, "options.stop"), ("/api/chat", {"format": "xml"}, "format"),
    ("/api/chat", {"messages": [{"role": "user", "content": "a", "images": ["aGk="]}]}, "messages[0].images"),
    ("/api/chat", {"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ("/api/chat", {"messages": [{"role": "assistant", "tool_calls": [{"function": {
        "name": "f", "arguments": "{}"}}]}]}, "messages[0].tool_calls[0].function.arguments"),
    ("/api/chat", {"think": "a lot"}, "think"), ("/api/chat", {"think": True}, "think"),
    ("/api/chat", {"top_logprobs": 2}, "top_logprobs"),
    ("/api/chat", {"rapt": {"resume": True}}, "rapt.resume"),
    ("/api/generate", {"suffix": "b"}, "suffix"),
    ("/api/generate", {"template": "{{ .Prompt }}"}, "template"),
    ("/api/generate", {"context": [1, 2]}, "context"), ("/api/generate", {"images": ["aGk="]}, "images"),
    ("/api/generate", {"raw": True, "system": "a"}, "system"),
    ("/api/embed", {"input": []}, "input"), ("/api/embed", {"input": ["a", ""]}, "input"),
    ("/api/embed", {"dimensions": 65}, "dimensions"), ("/api/show", {"model": 5}, "model")]


@test
def errors_name_the_field_in_each_shape(s):
    for path, body in BODIES.items():
        good(s.one.ask(path, {**body, "nosuch": {"a": [1]}, "stream": None}))  # unknown, and null
    for path, change, field in WRONG:
        reply = s.one.ask(path, {**BODIES[path], **change})
        equal(reply.status, 400, f"{path} {change}: {reply}")
        expect(f"{field}" in message_of(path, reply), path, change, reply)
    for path, body in BODIES.items():
        for headers, status in (({"Content-Type": "text/plain"}, 415), ({"Host": "evil.example"}, 403),
                                ({"Origin": "http://evil.example"}, 403)):
            reply = s.one.ask(path, body, headers=headers)
            equal(reply.status, status)
            message_of(path, reply)
        reply = s.one.ask(path, b"{")
        equal(reply.status, 400)
        message_of(path, reply)
        reply = s.one.ask(path, method="PUT", body={})
        equal(reply.status, 405)
        message_of(path, reply)
        reply = s.two.ask(path, {**body, "model": "nosuch"})
        equal(reply.status, 404, path)
        expect("embed" in message_of(path, reply), reply)
    for path in BODIES:  # told by the length alone
        reply = s.one.ask(path, b"", headers={"Content-Length": str(3 << 20)})
        equal(reply.status, 413, path)
        expect(message_of(path, reply), reply)
    for path in ("/v1/messages/nosuch", "/api/nosuch", "/v1/responses/resp_1"):
        reply = s.one.ask(path)
        equal(reply.status, 404)
        message_of(path, reply)
    long = "a " * 9000
    for path, body in (("/v1/messages", {"messages": [{"role": "user", "content": long}]}),
                       ("/v1/responses", {"input": long}), ("/api/generate", {"model": "m", "prompt": long}),
                       ("/api/chat", {"model": "m", "truncate": True, "messages": [
                           {"role": "user", "content": long}]}),
                       ("/api/embed", {"model": "m", "input": long, "truncate": True})):
        reply = s.one.ask(path, body)
        equal(reply.status, 400, path)
        expect("8,192" in message_of(path, reply), f"no numbers: {reply}")


@test
def what_ollama_does_with_files_is_refused(s):
    blob = "/api/blobs/sha256:" + "0" * 64
    for method, path in (("POST", "/api/pull"), ("POST", "/api/push"), ("POST", "/api/create"),
                         ("POST", "/api/copy"), ("DELETE", "/api/delete"),
                         ("POST", blob), ("HEAD", blob)):
        reply = s.one.ask(path, {"model": "a"} if method != "HEAD" else None, method=method)
        equal(reply.status, 403, f"{method} {path}")
        if method != "HEAD":
            expect("started with" in message_of(path, reply), reply)


@test
def a_full_queue_and_a_wrong_key(s):
    with Server(s.args, "--queue", "1", "--parallel", "1", env={"RAPT_API_KEY": "a-key-for-this-test"}) as k:
        key = {"Authorization": "Bearer a-key-for-this-test"}
        for path, body in BODIES.items():
            reply = k.ask(path, body)
            equal(reply.status, 401, path)
            expect("key" in message_of(path, reply), reply)
            equal(reply.headers["www-authenticate"], "Bearer")
            equal(k.ask(path, body, headers={"x-api-key": "a-key-for-this-test"}).status, 200, path)
        asked, held = ("/v1/messages", "/v1/responses", "/api/chat", "/api/generate"), []
        try:
            for _ in range(20):  # one is written, one waits; in the meantime all others are refused
                while k.ask("/limits", headers=key).json()["queue"]["waiting"] < 1:
                    c = k.connect()
                    held.append(c)
                    c.sendall(message(k.host(), "/v1/completions", {"prompt": "a", "ignore_eos": True,
                                                                    "max_tokens": 8000}, headers=key))
                    time.sleep(0.02)
                replies = [k.ask(path, BODIES[path], headers=key) for path in asked]
                if all(r.status == 429 for r in replies):
                    break
            for path, reply in zip(asked, replies):
                equal(reply.status, 429, path)
                expect("busy" in message_of(path, reply), reply)
                expect(1 <= int(reply.headers["retry-after"]) <= 120, reply.headers)
        finally:
            for c in held:
                c.close()


@test
def streams_that_break_say_so(s):
    """An edit of a token that never came is known at the end: the error is the last event, in each shape."""
    for path, body in (("/v1/messages", {"messages": USER, "max_tokens": 3}),
                       ("/v1/responses", {"input": USER, "max_output_tokens": 3}),
                       ("/api/chat", {"model": "m", "messages": USER, "options": {"num_predict": 3}})):
        body["rapt"] = {"edits": ["resid_post.0@p4000:zero"]}
        reply = good(s.one.ask(path, {**body, "stream": True}))
        last = lines(reply)[-1] if path == "/api/chat" else events(reply)[-1]
        if path == "/v1/messages":
            equal((last["type"], last["error"]["type"]), ("error", "invalid_request_error"))
        elif path == "/v1/responses":
            equal((last["type"], last["param"], last["error"]["message"]),
                  ("error", "rapt.edits", last["message"]))
            expect(last["sequence_number"] > 0, last)
        else:
            equal(list(last), ["error"])
        expect("rapt.edits" in json.dumps(last), last)
        equal(s.one.ask(path, {**body, "stream": False}).status, 400)


@test
def streams_can_be_read_again(s):
    for path, body in (("/v1/messages", {"messages": USER, "max_tokens": 9}),
                       ("/v1/responses", {"input": USER, "max_output_tokens": 9})):
        reply = good(s.one.ask(path, {**body, "stream": True, "rapt": {"resume": True}}))
        again = good(s.one.ask("/v1/stream/" + reply.headers["rapt-stream"]))
        equal(again.body, reply.body)


@test
def the_document_has_them(s):
    doc = good(s.one.ask("/openapi.json")).json()
    for path in (*BODIES, "/api/tags", "/api/ps", "/api/version"):
        expect(path in doc["paths"], path)
    schema = doc["components"]["schemas"]["messages"]["properties"]
    expect({"max_tokens", "system", "tools", "thinking", "rapt"} <= set(schema), sorted(schema))
    before = s.one.metric("rapt_http_requests_total", route="/messages", status="200")
    good(s.one.ask("/v1/messages", BODIES["/v1/messages"]))
    equal(s.one.metric("rapt_http_requests_total", route="/messages", status="200"), before + 1)


def main():
    args = arguments(__doc__)
    servers = All(args)
    code = 1
    try:
        code = run_tests(args, servers)
    finally:
        if servers.stop():
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
