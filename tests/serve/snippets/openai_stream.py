# SPDX-License-Identifier: Apache-2.0
from openai import OpenAI

client = OpenAI(base_url="http://127.0.0.1:8642/v1", api_key="none")
for chunk in client.chat.completions.create(
        model="rapt", messages=[{"role": "user", "content": "Hello"}], max_tokens=20, temperature=0,
        stream=True, stream_options={"include_usage": True}):
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
    else:
        print(f"\n{chunk.usage.completion_tokens} tokens")
