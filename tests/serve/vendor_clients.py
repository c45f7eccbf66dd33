# SPDX-License-Identifier: Apache-2.0
"""The packages anthropic and ollama against a server, run by clients_test.py in an environment that has them:
vendor_clients.py ORIGIN PACKAGE. What they make of replies and streams must be what a chat of the same prompt
and seed says."""
import asyncio
import json
import sys
import urllib.request

ORIGIN, PACKAGE = sys.argv[1:]
USER = [{"role": "user", "content": "Hello 你好"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]},
                                           "days": {"enum": [1, 2, 3]}},
          "required": ["city", "days"], "additionalProperties": False}
done = 0


def raw(path, body):
    request = urllib.request.Request(ORIGIN + path,
                                     json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)


def equal(got, wanted, what):
    global done
    done += 1
    if got != wanted:
        sys.exit(f"FAILED: {what}\n  got    {got!r}\n  wanted {wanted!r}")


def chat(**more):
    return raw("/v1/chat/completions", {"messages": USER, "seed": 5, "max_tokens": 16, **more})


FORCED = chat(max_tokens=300, tool_choice="required", tools=[
    {"type": "function", "function": {"name": "weather", "description": "d", "parameters": SCHEMA}}])


def check_anthropic():
    import anthropic
    wanted = chat()
    text, usage = wanted["choices"][0]["message"]["content"], wanted["usage"]
    asked = dict(model="rapt", max_tokens=16, messages=USER)
    seed = {"extra_body": {"seed": 5}}
    tools = dict(tools=[{"name": "weather", "description": "d", "input_schema": SCHEMA}],
                 tool_choice={"type": "any"})
    arguments = json.loads(FORCED["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"])
    with anthropic.Anthropic(base_url=ORIGIN, api_key="none", max_retries=0) as client:
        reply = client.messages.create(**asked, **seed)
        equal(reply.content[0].text, text, "messages")
        equal((reply.stop_reason, reply.usage.output_tokens),
              ("max_tokens", usage["completion_tokens"]), "the end")
        equal(reply.usage.input_tokens + reply.usage.cache_read_input_tokens, usage["prompt_tokens"], "usage")
        equal(reply.model_extra["rapt"]["hash"], wanted["rapt"]["hash"], "rapt.hash")
        with client.messages.stream(**asked, **seed) as stream:
            equal("".join(stream.text_stream), text, "the stream's text")
            final = stream.get_final_message()
        equal((final.content[0].text, final.stop_reason, final.usage.output_tokens),
              (text, "max_tokens", usage["completion_tokens"]), "the helper's message")
        equal(client.messages.count_tokens(model="rapt", messages=USER).input_tokens, usage["prompt_tokens"],
              "count_tokens")

        asked["max_tokens"] = 300
        reply = client.messages.create(**asked, **tools, **seed)
        equal((reply.stop_reason, reply.content[-1].name, reply.content[-1].input),
              ("tool_use", "weather", arguments), "tools")
        with client.messages.stream(**asked, **tools, **seed) as stream:
            for _ in stream:
                pass
            final = stream.get_final_message()
        equal((final.stop_reason, final.content[-1].type, final.content[-1].input),
              ("tool_use", "tool_use", arguments), "tools in a stream")
        answered = [*USER, {"role": "assistant", "content": final.content},
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": final.content[-1].id,
                                                  "content": "warm"}]}]
        reply = client.messages.create(model="rapt", max_tokens=5, messages=answered)
        equal(reply.type, "message", "a result of a tool")

        for body, kind in ((dict(extra_body={"temperature": 9}), anthropic.BadRequestError),
                           (dict(messages=[{"role": "user", "content": "a " * 9000}]),
                            anthropic.BadRequestError)):
            try:
                client.messages.create(**{**asked, **body})
            except kind as e:
                equal((e.status_code, e.body["type"], e.body["error"]["type"]),
                      (400, "error", "invalid_request_error"), "an error")
            else:
                sys.exit(f"FAILED: {body} was taken")

    async def stream():
        async with anthropic.AsyncAnthropic(base_url=ORIGIN, api_key="none") as client:
            async with client.messages.stream(model="rapt", max_tokens=16, messages=USER, **seed) as s:
                return "".join([piece async for piece in s.text_stream])
    equal(asyncio.run(stream()), text, "the asynchronous client")
    return anthropic.__version__


def check_ollama():
    import importlib.metadata

    import ollama
    wanted = chat()
    text, usage = wanted["choices"][0]["message"]["content"], wanted["usage"]
    client = ollama.Client(host=ORIGIN)
    options = {"seed": 5, "num_predict": 16}
    reply = client.chat(model="chat", messages=USER, options=options)
    equal((reply.message.content, reply.done_reason, reply.eval_count, reply.prompt_eval_count),
          (text, "length", usage["completion_tokens"], usage["prompt_tokens"]), "chat")
    pieces = list(client.chat(model="chat", messages=USER, options=options, stream=True))
    equal("".join(p.message.content for p in pieces), text, "chat as a stream")
    equal([p.done for p in pieces], [False] * (len(pieces) - 1) + [True], "done")
    equal(client.generate(model="chat", prompt=USER[0]["content"], options=options).response, text,
          "generate")
    equal("".join(p.response for p in client.generate(model="chat", prompt=USER[0]["content"],
                                                      options=options, stream=True)), text, "its stream")
    equal(client.generate(model="chat").done_reason, "load", "a model that is loaded")
    text = chat(max_tokens=200, response_format={"type": "json_schema", "json_schema": {
        "name": "a", "schema": SCHEMA}})["choices"][0]["message"]["content"]
    reply = client.chat(model="chat", messages=USER, format=SCHEMA, options={"seed": 5, "num_predict": 200})
    equal(reply.message.content, text, "a schema")
    vectors = client.embed(model="chat", input=["a small cat", "ein Hund"]).embeddings
    equal([list(v) for v in vectors], [d["embedding"] for d in raw(
        "/v1/embeddings", {"input": ["a small cat", "ein Hund"]})["data"]], "embeddings")
    equal([m.model for m in client.list().models], ["chat"], "list")
    equal([(m.model, m.context_length) for m in client.ps().models], [("chat", 8192)], "ps")
    show = client.show("chat")
    equal((show.details.quantization_level, show.modelinfo[f"{show.details.family}.context_length"],
           "completion" in show.capabilities), ("F32", 8192, True), "show")
    for call, status in ((lambda: client.pull("chat"), 403), (lambda: client.delete("chat"), 403),
                         (lambda: client.chat("chat", USER, options={"temperature": 9}), 400)):
        try:
            call()
        except ollama.ResponseError as e:
            equal((e.status_code, bool(e.error)), (status, True), "an error")
        else:
            sys.exit("FAILED: it was taken")

    async def stream():
        got = ""
        async for p in await ollama.AsyncClient(host=ORIGIN).chat("chat", USER, options=options, stream=True):
            got += p.message.content
        return got
    equal(asyncio.run(stream()), wanted["choices"][0]["message"]["content"], "the asynchronous client")
    return importlib.metadata.version("ollama")


version = {"anthropic": check_anthropic, "ollama": check_ollama}[PACKAGE]()
print(f"{PACKAGE} {version}: {done} checks")
