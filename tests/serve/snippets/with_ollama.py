# SPDX-License-Identifier: Apache-2.0
from ollama import Client

client = Client(host="http://127.0.0.1:8642")
asked = {"model": "rapt", "messages": [{"role": "user", "content": "Hello"}],
         "options": {"num_predict": 20, "temperature": 0}}
print(client.chat(**asked).message.content)
for part in client.chat(**asked, stream=True):
    print(part.message.content, end="", flush=True)
print()
