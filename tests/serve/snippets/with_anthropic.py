# SPDX-License-Identifier: Apache-2.0
from anthropic import Anthropic

client = Anthropic(base_url="http://127.0.0.1:8642", api_key="none")
asked = {"model": "rapt", "max_tokens": 20, "messages": [{"role": "user", "content": "Hello"}],
         "extra_body": {"temperature": 0}}  # anthropic 2.10 has no argument for it
print(client.messages.create(**asked).content[0].text)
with client.messages.stream(**asked) as stream:
    for text in stream.text_stream:
        print(text, end="", flush=True)
print()
