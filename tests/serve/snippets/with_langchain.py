# SPDX-License-Identifier: Apache-2.0
from langchain_openai import ChatOpenAI

model = ChatOpenAI(base_url="http://127.0.0.1:8642/v1", api_key="none", model="rapt", temperature=0,
                   max_completion_tokens=20)
print(model.invoke("Hello").content)
print("".join(chunk.content for chunk in model.stream("Hello")))
