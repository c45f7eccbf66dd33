# SPDX-License-Identifier: Apache-2.0
curl -s http://127.0.0.1:8642/v1/chat/completions -H 'Content-Type: application/json' \
  -d '{"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 20, "temperature": 0}'
