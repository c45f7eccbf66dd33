# SPDX-License-Identifier: Apache-2.0
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it fetches a list of prices
from litellm import completion  # noqa: E402

reply = completion(model="openai/rapt", api_base="http://127.0.0.1:8642/v1", api_key="none",
                   messages=[{"role": "user", "content": "Hello"}], max_tokens=20, temperature=0)
print(reply.choices[0].message.content)
