# SPDX-License-Identifier: Apache-2.0
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it fetches a list of prices
from langchain_ollama import ChatOllama  # noqa: E402
from litellm import completion  # noqa: E402

model = ChatOllama(base_url="http://127.0.0.1:8642", model="rapt", temperature=0, num_predict=20)
print(model.invoke("Hello").content, end="\x1e\n")
print("".join(chunk.content for chunk in model.stream("Hello")), end="\x1e\n")
reply = completion(model="ollama_chat/rapt", api_base="http://127.0.0.1:8642", max_tokens=20, temperature=0,
                   messages=[{"role": "user", "content": "Hello"}])
print(reply.choices[0].message.content, end="\x1e\n")
