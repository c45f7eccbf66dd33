# SPDX-License-Identifier: Apache-2.0
"""What the same statistics cost in transformers, beside bench/inspect: attention has to be "eager" for its
weights to be seen.

  DIR/bin/python bench/inspect_peer.py FOLDER TEXT [--prompt 512,4096] [--rounds 3] [--threads 2]

FOLDER is a Hugging Face folder (rapt convert MODEL.gguf FOLDER). Nobody looks (SDPA) against eager attention
with a hook on every layer that reduces its weights to entropy, first, self, previous, distance and strongest
weight of each row; in turns, medians. One line of JSON per prompt."""
import argparse
import json
import resource
import time

import torch
import transformers

args = argparse.ArgumentParser()
args.add_argument("model")
args.add_argument("text")
args.add_argument("--prompt", default="512,4096")
args.add_argument("--rounds", type=int, default=3)
args.add_argument("--threads", type=int, default=2)
args = args.parse_args()
torch.set_num_threads(args.threads)
transformers.logging.set_verbosity_error()

tokenizer = transformers.AutoTokenizer.from_pretrained(args.model)
ids = tokenizer(open(args.text, encoding="utf-8").read()[:400_000], return_tensors="pt").input_ids


def load(attention):
    return transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32,
                                                             attn_implementation=attention).eval()


def look(module, inputs, output):
    p = output[1][0]  # [heads, queries, keys]
    n = p.shape[-1]
    place = torch.arange(n, dtype=p.dtype)
    figures = [torch.special.entr(p).sum(-1), p[..., 0], p.diagonal(dim1=-2, dim2=-1),
               p.diagonal(-1, dim1=-2, dim2=-1),
               place - p @ place, p[..., 1:].amax(-1)]
    seen.append([f.mean(-1) for f in figures])
    return output[0], None


plain, eager = load("sdpa"), load("eager")
for layer in eager.model.layers:
    layer.self_attn.register_forward_hook(look)


def seconds(model, prompt):
    start = time.perf_counter()
    with torch.inference_mode():
        model(prompt, logits_to_keep=1)
    return time.perf_counter() - start


for length in map(int, args.prompt.split(",")):
    prompt, taken = ids[:, :length], ([], [])
    for model in (plain, eager):
        seen = []
        seconds(model, prompt[:, :64])
    for _ in range(args.rounds):
        for i, model in enumerate((plain, eager)):
            seen = []
            taken[i].append(seconds(model, prompt))
    off, on = (sorted(t)[len(t) // 2] for t in taken)
    print(json.dumps({"peer": "transformers " + transformers.__version__, "prompt": length,
                      "off_s": round(off, 4), "on_s": round(on, 4),
                      "cost_percent": round(100 * (on / off - 1), 1),
                      "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}), flush=True)
