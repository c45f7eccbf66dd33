# SPDX-License-Identifier: Apache-2.0
"""The openai package against a server, run by clients_test.py in an environment that has it: openai_client.py
BASE_URL. What it makes of replies and streams must be what the bytes say."""
import asyncio
import json
import math
import sys
import urllib.request

import openai

BASE = sys.argv[1]
USER = [{"role": "user", "content": "Hello 你好"}]
ASKED = dict(model="rapt", messages=USER, max_tokens=16, seed=5)
done = 0


def raw(path, body):
    request = urllib.request.Request(BASE + path,
                                     json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)


def equal(got, wanted, what):
    global done
    done += 1
    if got != wanted:
        sys.exit(f"FAILED: {what}\n  got    {got!r}\n  wanted {wanted!r}")


def check_sync(client):
    wanted = raw("/chat/completions", ASKED)["choices"][0]["message"]["content"]
    reply = client.chat.completions.create(**ASKED)
    equal(reply.choices[0].message.content, wanted, "chat")
    equal(reply.model_extra["rapt"]["seed"], 5, "rapt.seed")
    several = client.chat.completions.create(**ASKED, n=3)
    equal([c.index for c in several.choices], [0, 1, 2], "n")
    equal(several.choices[0].message.content, wanted, "n = 3: the first")
    text = client.completions.create(model="rapt", prompt="The model", max_tokens=8, temperature=0)
    equal(text.choices[0].text, raw("/completions", {"prompt": "The model", "max_tokens": 8,
                                                     "temperature": 0})["choices"][0]["text"], "completions")
    probable = client.chat.completions.create(**ASKED, logprobs=True, top_logprobs=2)
    entries = probable.choices[0].logprobs.content
    equal(
        bytes(b for e in entries for b in e.bytes).decode(errors="replace"), wanted,
        "bytes of log-probabilities")
    equal([len(e.top_logprobs) for e in entries], [2] * len(entries), "top_logprobs")
    scored = client.completions.create(model="rapt", prompt="The model of", max_tokens=0, echo=True,
                                       logprobs=1)
    lists = scored.choices[0].logprobs
    equal(lists.token_logprobs[0], None, "the first token has no log-probability")
    equal(all(isinstance(x, float) and x <= 0 for x in lists.token_logprobs[1:]), True, "log-probabilities")
    equal(scored.choices[0].text, "The model of", "echo")
    extra = client.chat.completions.create(**ASKED, extra_body={"top_k": 1, "rapt": {"look": ["layers"]}})
    equal(len(extra.model_extra["rapt"]["look"]["layers"]), 2, "extra_body")


def check_stream(client):
    wanted = raw("/chat/completions", ASKED)["choices"][0]["message"]["content"]
    text, finish, usage = "", None, None
    for chunk in client.chat.completions.create(**ASKED, stream=True, stream_options={"include_usage": True}):
        if chunk.choices:
            text += chunk.choices[0].delta.content or ""
            finish = chunk.choices[0].finish_reason or finish
        usage = chunk.usage or usage
    equal((text, finish), (wanted, "length"), "stream")
    equal(usage.completion_tokens, 16, "usage of a stream")
    text = "".join(c.choices[0].text for c in client.completions.create(
        model="rapt", prompt="The model", max_tokens=8, temperature=0, stream=True))
    equal(text, raw("/completions", {"prompt": "The model", "max_tokens": 8,
                                     "temperature": 0})["choices"][0]["text"], "completions as a stream")
    if hasattr(client.chat.completions, "stream"):  # the helper that adds up; an end by a stop, since it
        # takes "length" for an error
        ended = {**ASKED, "logit_bias": {"511": 100}, "n": 2}
        with client.chat.completions.stream(**ended, extra_body={"min_tokens": 6}, logprobs=True) as events:
            for _ in events:
                pass
            final = events.get_final_completion()
        whole = raw("/chat/completions", {**ended, "min_tokens": 6})
        equal([c.message.content for c in final.choices], [c["message"]["content"] for c in whole["choices"]],
              "helper")
        equal([c.message.role for c in final.choices], ["assistant"] * 2, "roles of the helper")
        equal([len(c.logprobs.content) >= 6 for c in final.choices], [True] * 2,
              "log-probabilities of the helper")


async def check_async():
    async with openai.AsyncOpenAI(base_url=BASE, api_key="none") as client:
        async def ask(seed):
            reply = await client.chat.completions.create(**{**ASKED, "seed": seed})
            return reply.choices[0].message.content

        async def stream(seed):
            text = ""
            async for chunk in await client.chat.completions.create(**{**ASKED, "seed": seed}, stream=True):
                text += chunk.choices[0].delta.content or ""
            return text
        seeds = range(12)
        both = await asyncio.gather(*(ask(s) for s in seeds), *(stream(s) for s in seeds))
        wanted = [
            raw("/chat/completions", {**ASKED, "seed": s})["choices"][0]["message"]["content"] for s in seeds]
        equal(both, wanted * 2, "24 at once, half of them streams")


def check_embeddings(client):
    texts = ["a small cat", "ein Hund"]
    wanted = [d["embedding"] for d in raw("/embeddings", {"model": "rapt", "input": texts})["data"]]
    for form in ({}, {"encoding_format": "float"}):  # by default it asks for base64
        reply = client.embeddings.create(model="rapt", input=texts, **form)
        for d, w in zip(reply.data, wanted):
            equal(max(abs(a - b) for a, b in zip(d.embedding, w)) < 1e-6, True, f"embeddings {form}")
            equal(len(d.embedding), len(w), "width")
    short = client.embeddings.create(model="rapt", input="a", dimensions=8).data[0].embedding
    equal((len(short), abs(math.fsum(x * x for x in short) - 1) < 1e-5), (8, True), "dimensions")


def check_rest(client):
    models = [m.id for m in client.models.list()]
    equal(models, ["chat"], "models")
    equal(client.models.retrieve("chat").id, "chat", "one model")
    for body, kind in ((dict(temperature=9), openai.BadRequestError), (dict(max_tokens=10**9),
                                                                       openai.BadRequestError)):
        try:
            client.chat.completions.create(**{**ASKED, **body})
        except kind as e:
            equal((isinstance(e.code, str), isinstance(e.param, str), e.status_code), (True, True, 400),
                  "an error")
        else:
            sys.exit(f"FAILED: {body} was taken")
    try:
        client.models.retrieve("nosuch")
    except openai.NotFoundError as e:
        equal(e.code, "model_not_found", "not found")
    reply = client.chat.completions.with_raw_response.create(**ASKED, extra_headers={"x-request-id": "mine"})
    equal(reply.headers["x-request-id"], "mine", "x-request-id")


def check_responses(client):
    chat = raw("/chat/completions", ASKED)
    wanted, usage = chat["choices"][0]["message"]["content"], chat["usage"]
    asked = dict(model="rapt", input=USER, max_output_tokens=16, extra_body={"seed": 5})
    reply = client.responses.create(**asked)
    equal((reply.output_text, reply.status, reply.incomplete_details.reason),
          (wanted, "incomplete", "max_output_tokens"), "responses")
    equal((reply.usage.input_tokens, reply.usage.output_tokens),
          (usage["prompt_tokens"], usage["completion_tokens"]), "usage of a response")
    text = "".join(e.delta for e in client.responses.create(**asked, stream=True)
                   if e.type == "response.output_text.delta")
    equal(text, wanted, "responses as a stream")
    if not hasattr(client.responses, "stream"):  # the helper came with 1.73
        return
    with client.responses.stream(**asked) as events:
        kinds = [e.type for e in events]
    equal((kinds[0], kinds[-1]), ("response.created", "response.incomplete"), "the helper's events")
    schema = {"type": "object", "properties": {"n": {"type": "boolean"}}, "required": ["n"],
              "additionalProperties": False}
    form = {"type": "json_schema", "name": "a", "schema": schema, "strict": True}
    tool = {"type": "function", "name": "count", "description": "d", "parameters": schema, "strict": True}
    asked = dict(model="rapt", input=USER, extra_body={"seed": 5}, max_output_tokens=300)
    with client.responses.stream(**asked, text={"format": form}) as events:
        for _ in events:
            pass
        final = events.get_final_response()
    equal((final.status, list(json.loads(final.output_text))), ("completed", ["n"]),
          "a schema, by the helper")
    with client.responses.stream(**asked, tools=[tool], tool_choice="required") as events:
        for _ in events:
            pass
        final = events.get_final_response()
    equal((final.output[-1].type, final.output[-1].name, list(json.loads(final.output[-1].arguments))),
          ("function_call", "count", ["n"]), "a function, by the helper")
    try:
        import pydantic
    except ImportError:
        return

    class Count(pydantic.BaseModel):
        n: bool
    parsed = client.responses.parse(**asked, text_format=Count).output_parsed
    equal(isinstance(parsed, Count), True, "responses.parse")


with openai.OpenAI(base_url=BASE, api_key="none", max_retries=0) as sync:
    check_sync(sync)
    if hasattr(sync, "responses"):  # since 1.66
        check_responses(sync)
    check_stream(sync)
    asyncio.run(check_async())
    check_embeddings(sync)
    check_rest(sync)
print(f"openai {openai.__version__}: {done} checks")
