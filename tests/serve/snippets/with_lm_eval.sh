# SPDX-License-Identifier: Apache-2.0
# a task of your own in tasks/; no tokenizer is fetched: the server is asked
lm_eval run --model local-completions --include_path tasks --tasks toy --output_path results --log_samples \
  --model_args \
  model=rapt,base_url=http://127.0.0.1:8642/v1/completions,tokenizer_backend=remote,max_length=2048
