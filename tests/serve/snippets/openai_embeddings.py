# SPDX-License-Identifier: Apache-2.0
from openai import OpenAI

client = OpenAI(base_url="http://127.0.0.1:8642/v1", api_key="none")
reply = client.embeddings.create(model="rapt", input=["a small cat", "a kitten"])
print(len(reply.data), "vectors of", len(reply.data[0].embedding))
