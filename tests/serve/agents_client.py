# SPDX-License-Identifier: Apache-2.0
"""OpenAI's agents package against a server, run by clients_test.py --long in an environment that has it:
agents_client.py BASE_URL. Its runner calls /v1/responses until an answer comes: first a function, whose
result goes back, then the answer, held to a schema; whole and as a stream. Then the same over chats."""
import asyncio
import sys
from typing import Literal

from agents import (Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner,
                    function_tool, set_tracing_disabled)
from openai import AsyncOpenAI
from pydantic import BaseModel, ConfigDict

BASE = sys.argv[1]
done, asked = 0, []


def equal(got, wanted, what):
    global done
    done += 1
    if got != wanted:
        sys.exit(f"FAILED: {what}\n  got    {got!r}\n  wanted {wanted!r}")


class Advice(BaseModel):
    model_config = ConfigDict(extra="forbid")
    take: Literal["umbrella", "hat"]
    sure: bool


@function_tool
def weather(city: Literal["Bonn", "Köln"], days: Literal[1, 2]) -> str:
    """Weather of a city."""
    asked.append((city, days))
    return f"rain in {city} for {days} days"


def agent_of(model):
    return Agent(name="adviser", instructions="Ask for the weather, then say what to take.", model=model,
                 tools=[weather], output_type=Advice,
                 model_settings=ModelSettings(tool_choice="required", parallel_tool_calls=False,
                                              max_tokens=300, extra_body={"seed": 5}))


def check(result, before, what):
    equal(isinstance(result.final_output, Advice), True, f"{what}: the answer is of its type")
    kinds = [type(i).__name__ for i in result.new_items if "Reasoning" not in type(i).__name__]
    equal(kinds[:2], ["ToolCallItem", "ToolCallOutputItem"], f"{what}: a call and its result")
    equal(len(asked) > before, True, f"{what}: the function ran")


async def main():
    client = AsyncOpenAI(base_url=BASE, api_key="none", max_retries=0)
    for kind in (OpenAIResponsesModel, OpenAIChatCompletionsModel):
        agent, before = agent_of(kind(model="rapt", openai_client=client)), len(asked)
        check(await Runner.run(agent, "What do I take along?", max_turns=8), before, kind.__name__)
        before = len(asked)
        stream = Runner.run_streamed(agent, "What do I take along?", max_turns=8)
        events = [e async for e in stream.stream_events()]
        equal(len(events) > 5, True, "events of a stream")
        check(stream, before, f"{kind.__name__}, streamed")


set_tracing_disabled(True)
asyncio.run(main())
print(f"openai-agents: {done} checks, {len(asked)} calls of a function")
