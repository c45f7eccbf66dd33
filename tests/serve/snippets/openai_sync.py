# SPDX-License-Identifier: Apache-2.0
from openai import OpenAI

client = OpenAI(base_url="http://127.0.0.1:8642/v1", api_key="none")
reply = client.chat.completions.create(
    model="rapt", messages=[{"role": "user", "content": "Hello"}], max_tokens=20, temperature=0)
print(reply.choices[0].message.content)
