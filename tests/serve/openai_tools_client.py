# SPDX-License-Identifier: Apache-2.0
"""The openai package's tools and structured outputs against a server, run by clients_test.py in an
environment that has it: openai_tools_client.py BASE_URL. The answers are a toy's: what they say means
nothing, their form is what is looked at."""
import json
import sys
from typing import Literal, Optional

import openai
from pydantic import BaseModel, Field

BASE = sys.argv[1]
ASKED = dict(model="rapt", messages=[{"role": "user", "content": "Hello"}], max_tokens=250)
done = 0


def equal(got, wanted, what):
    global done
    done += 1
    if got != wanted:
        sys.exit(f"FAILED: {what}\n  got    {got!r}\n  wanted {wanted!r}")


class City(BaseModel):
    """Weather of a city."""
    name: Literal["Bonn", "Paris"]
    days: int = Field(ge=1, le=9)


class Step(BaseModel):
    mood: Literal["glad", "sad"]
    note: Optional[Literal["short", "long"]]


class Plan(BaseModel):
    title: str = Field(max_length=8)
    steps: list[Step] = Field(max_length=3)
    best: Step
    share: float = Field(ge=0, le=1)


def weather(name, days):
    return f"{name}: rain for {days} days"


def check_calls(client):
    tools = [openai.pydantic_function_tool(City, name="weather")]
    for seed in range(3):
        asked = dict(**ASKED, tools=tools, tool_choice="required", parallel_tool_calls=False, seed=seed)
        whole = client.chat.completions.create(**asked).choices[0]
        equal((whole.finish_reason, whole.message.content), ("tool_calls", None), "a call")
        call = whole.message.tool_calls[0]
        City.model_validate_json(call.function.arguments)
        parsed = client.chat.completions.parse(**asked).choices[0].message.tool_calls[0].function
        equal(parsed.parsed_arguments, City.model_validate_json(call.function.arguments), "parse()")
        with client.chat.completions.stream(**asked) as events:
            deltas = "".join(e.arguments_delta for e in events
                             if e.type == "tool_calls.function.arguments.delta")
            final = events.get_final_completion().choices[0]
        equal(deltas, call.function.arguments, "deltas of the helper")
        equal((final.finish_reason, final.message.tool_calls[0].function.name), ("tool_calls", "weather"),
              "the helper's end")
        equal(final.message.tool_calls[0].function.parsed_arguments, parsed.parsed_arguments,
              "the helper's arguments")
        ids, names = [], []
        for chunk in client.chat.completions.create(**asked, stream=True):
            for d in (chunk.choices[0].delta.tool_calls or []) if chunk.choices else []:
                ids += [d.id] if d.id else []
                names += [d.function.name] if d.function.name else []
        equal((len(ids), names), (1, ["weather"]), "id and name come once")


def check_loop(client):
    """Ask, call, tell the result, answer: what agents do."""
    messages = list(ASKED["messages"])
    tools = [openai.pydantic_function_tool(City, name="weather"),
             {"type": "function", "function": {"name": "now", "description": "The time."}}]
    for name in ("weather", "now"):
        choice = client.chat.completions.create(
            **{**ASKED, "messages": messages}, tools=tools, seed=1, parallel_tool_calls=False,
            tool_choice={"type": "function", "function": {"name": name}}).choices[0]
        call = choice.message.tool_calls[0]
        equal(call.function.name, name, "the function that was named")
        given = json.loads(call.function.arguments)
        messages += [choice.message, {"role": "tool", "tool_call_id": call.id,
                                      "content": weather(**given) if name == "weather" else "noon"}]
        equal(sorted(given), ["days", "name"] if name == "weather" else [], "arguments")
    last = client.chat.completions.create(**{**ASKED, "messages": messages, "max_tokens": 8}, tools=tools,
                                          tool_choice="none").choices[0]
    equal((last.message.tool_calls, isinstance(last.message.content, str)), (None, True), "the answer")


def check_formats(client):
    for seed in range(3):
        asked = dict(**ASKED, seed=seed)
        plan = client.chat.completions.parse(**asked, response_format=Plan).choices[0].message
        equal(plan.parsed, Plan.model_validate_json(plan.content), "parse()")
        with client.chat.completions.stream(**asked, response_format=Plan) as events:
            for _ in events:
                pass
            final = events.get_final_completion().choices[0].message
        equal(final.parsed, plan.parsed, "the helper")
    several = client.chat.completions.parse(**ASKED, n=3, seed=9, response_format=Step)
    equal([type(c.message.parsed) for c in several.choices], [Step] * 3, "n = 3")
    try:
        client.chat.completions.create(**ASKED, response_format={
            "type": "json_schema", "json_schema": {"name": "x", "schema": {"not": {}}}})
    except openai.BadRequestError as e:
        equal((e.code, e.param), ("unsupported_parameter", "response_format.json_schema.schema.not"),
              "a refusal")
    else:
        sys.exit("FAILED: a schema with 'not' was taken")


with openai.OpenAI(base_url=BASE, api_key="none", max_retries=0) as sync:
    check_calls(sync)
    check_loop(sync)
    check_formats(sync)
print(f"openai {openai.__version__}, tools: {done} checks")
