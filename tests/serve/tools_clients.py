# SPDX-License-Identifier: Apache-2.0
"""instructor, LangChain's tools and an agent loop against a server, run by clients_test.py --long in an
environment that has them: tools_clients.py BASE_URL."""
import sys
from typing import Literal

import instructor
import openai
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, ConfigDict, Field

BASE = sys.argv[1]
done = 0


def equal(got, wanted, what):
    global done
    done += 1
    if got != wanted:
        sys.exit(f"FAILED: {what}\n  got    {got!r}\n  wanted {wanted!r}")


class Person(BaseModel):
    model_config = ConfigDict(extra="forbid")  # a toy would go on with members of its own
    name: Literal["Ann", "Bo"]
    age: int = Field(ge=0, le=120)


@tool
def weather(city: Literal["Bonn", "Paris"]) -> str:
    """Weather of a city."""
    return f"rain in {city}"


@tool
def double(number: Literal[1, 2, 40]) -> int:
    """Twice a number."""
    return 2 * number


plain = openai.OpenAI(base_url=BASE, api_key="none", max_retries=0)
for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
    client = instructor.from_openai(plain, mode=mode)
    person = client.chat.completions.create(model="rapt", response_model=Person, max_retries=0,
                                            max_tokens=200, messages=[{"role": "user", "content": "Who?"}])
    equal((isinstance(person, Person), 0 <= person.age <= 120), (True, True), f"instructor, {mode}")

model = ChatOpenAI(base_url=BASE, api_key="none", model="rapt", max_retries=0, max_tokens=200, seed=3)
for method in ("json_schema", "function_calling"):
    person = model.with_structured_output(Person, method=method).invoke("Who?")
    equal(isinstance(person, Person), True, f"with_structured_output, {method}")

# An agent: the model calls until it has called both, every result goes back to it, then it answers.
talk, called = [HumanMessage("Go on")], []
tools = {t.name: t for t in (weather, double)}
for turn in range(12):
    left = [t for n, t in tools.items() if n not in called]
    if not left:
        break
    answer = model.bind_tools(left, tool_choice="any", strict=True,
                              parallel_tool_calls=False).invoke(talk)
    equal(len(answer.tool_calls) == 1 and not answer.invalid_tool_calls, True, "one call")
    talk.append(answer)
    for call in answer.tool_calls:
        result = tools[call["name"]].invoke(call["args"])
        called.append(call["name"])
        talk.append(ToolMessage(str(result), tool_call_id=call["id"]))
equal(sorted(called), ["double", "weather"], "both tools")
streamed = None
for chunk in model.bind_tools(list(tools.values()), tool_choice="weather", strict=True).stream(talk):
    streamed = chunk if streamed is None else streamed + chunk
equal([c["name"] for c in streamed.tool_calls], ["weather"], "a stream of chunks")
last = model.invoke(talk)
equal((bool(last.content), last.tool_calls), (True, []), "the answer")
print(f"instructor, langchain tools, an agent: {done} checks")
