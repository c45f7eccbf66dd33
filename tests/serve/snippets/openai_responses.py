# SPDX-License-Identifier: Apache-2.0
from openai import OpenAI

client = OpenAI(base_url="http://127.0.0.1:8642/v1", api_key="none")
reply = client.responses.create(model="rapt", input="Hello", max_output_tokens=20, temperature=0)
print(reply.output_text)
