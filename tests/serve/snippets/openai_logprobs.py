# SPDX-License-Identifier: Apache-2.0
from openai import OpenAI

client = OpenAI(base_url="http://127.0.0.1:8642/v1", api_key="none")
reply = client.completions.create(
    model="rapt", prompt="The sky is blue", max_tokens=0, echo=True, logprobs=1)
lists = reply.choices[0].logprobs
for token, logprob in zip(lists.tokens, lists.token_logprobs):
    print(f"{token!r} {logprob}")
