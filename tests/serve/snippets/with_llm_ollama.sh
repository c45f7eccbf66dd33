# SPDX-License-Identifier: Apache-2.0
export OLLAMA_HOST=http://127.0.0.1:8642
llm -m chat -o num_predict 20 -o temperature 0 --no-log Hello
