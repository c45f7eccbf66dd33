#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How the files here were made, by the program of version 0.1 (commit a8840c3): make.sh RAPT FOLDER. Scalar kernels: their bits
# are the same on every machine.
#   text.txt            what was learned from
#   run/step-6/         a state of a training in the middle of its twelve steps
#   model/              the folder of its end: what a resumed run must reach, bit for bit
#   bytes.gguf          another small model, as f16
#   recipes.json        every preset, as `rapt show --json` wrote it
#   logits.npy, logits-gguf.npy   what the two models said to the tokens 1 … 8
set -euo pipefail
rapt=$(realpath "$1") out=$2
export RAPT_ISA=scalar RAPT_THREADS=1
mkdir -p "$out"
cd "$out"
python3 - >text.txt <<'P'
parts = "the cat sat on a mat.|a dog ran far,|and the small cat saw it go:|who was it?|it was the dog.".split("|")
x, text = 12345, ""
for i in range(60):
    x = (x * 1103515245 + 12345) % 2**31
    text += parts[(x >> 16) % len(parts)] + ("\n" if i % 3 == 2 else " ")
print(text, end="")
P
small=(--set width=16 --set heads=2 --set kv_heads=1 --set layers=2 --set ffn=32 --set context=32)
"$rapt" train llama3 "${small[@]}" --set dropout=0.1 --data text.txt --out all --vocab characters --length 16 --batch 4 --steps 12 \
  --save-every 6 --set train.save_minutes=0 --set train.health_every=4 --rate 0.01 --warmup 3 --seed 5 --eval-batches 2 -q
mkdir run
mv all/step-6 run/
mv all/model model
"$rapt" train llama3 "${small[@]}" --data text.txt --out bytes --vocab bytes --length 16 --batch 2 --steps 2 --rate 0.01 --seed 6 \
  --eval-batches 1 -q
"$rapt" convert bytes/model bytes.gguf --type f16 -q
"$rapt" logits model --ids "1 2 3 4 5 6 7 8" --out logits.npy -q
"$rapt" logits bytes.gguf --ids "1 2 3 4 5 6 7 8" --out logits-gguf.npy -q
rm -rf all bytes
{
  first='{'
  for name in $("$rapt" show --json | python3 -c 'import json, sys; print(*(p["name"] for p in json.load(sys.stdin)))'); do
    printf '%s"%s": ' "$first" "$name"
    "$rapt" show "$name" --json
    first=,
  done
  echo '}'
} | python3 -c 'import json, sys; print("{\n" + ",\n".join(json.dumps(k) + ": " + json.dumps(v, separators=(",", ":")) for k, v in json.load(sys.stdin).items()) + "\n}")' >recipes.json
