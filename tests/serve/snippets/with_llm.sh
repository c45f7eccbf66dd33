# SPDX-License-Identifier: Apache-2.0
# llm finds its models in a file of its own folder
mkdir -p "$(dirname "$(llm logs path)")"
cat > "$(dirname "$(llm logs path)")/extra-openai-models.yaml" <<'YAML'
- model_id: rapt
  model_name: rapt
  api_base: http://127.0.0.1:8642/v1
YAML
llm --key none -m rapt -o max_tokens 20 -o temperature 0 'Hello'
