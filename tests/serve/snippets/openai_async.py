# SPDX-License-Identifier: Apache-2.0
import asyncio

from openai import AsyncOpenAI

client = AsyncOpenAI(base_url="http://127.0.0.1:8642/v1", api_key="none")


async def ask(text):
    reply = await client.chat.completions.create(
        model="rapt", messages=[{"role": "user", "content": text}], max_tokens=20, temperature=0)
    return reply.choices[0].message.content


async def main():
    for answer in await asyncio.gather(ask("Hello"), ask("Good morning")):
        print(answer)

asyncio.run(main())
