#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes use/optimizer.json: what torch.optim does to the weights of a toy in twelve steps, in float64.

    python make_optimizer.py > use/optimizer.json

Neither starting weights nor gradients are stored: rapt/use/optimizer_test.cc computes them by the rule of
README.md from the weight's name; gradients of step s from "NAME gradient s", times `gradient_size` and, in
every third step, times 10. The rates of the steps are in `factors`. Clipping is
torch.nn.utils.clip_grad_norm_ over all weights, averages are torch.optim.swa_utils'. Muon has no reference in
float64: torch's own works in bfloat16. Here it is written out, and the file is refused unless torch's agrees
as far as bfloat16 goes.
"""
import json
import math
import sys

import numpy as np
import torch

# The toy of the test: width 6, 2 heads, feed-forward width 9, vocabulary 5, one layer. Vectors do not decay.
WEIGHTS = {
    "embed.tokens": (5, 6), "decoder.0.self.q.weight": (6, 6), "decoder.0.ffn.up.weight": (9, 6),
    "decoder.0.ffn.down.weight": (6, 9),
    "decoder.0.ffn.up.bias": (1, 9), "decoder.norm.weight": (1, 6),
}
FACTORS = [0.25, 0.5, 1, 1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2]
CASES = {
    "adamw": dict(kind="adamw", rate=0.05, beta1=0.9, beta2=0.95, eps=1e-8, decay=0.1, clip=1.0),
    "adamw unclipped": dict(kind="adamw", rate=0.01, beta1=0.8, beta2=0.999, eps=1e-6, decay=0.0, clip=0.0),
    "adam": dict(kind="adam", rate=0.02, beta1=0.9, beta2=0.98, eps=1e-9, decay=0.05, clip=2.0),
    "sgd": dict(kind="sgd", rate=0.1, momentum=0.0, decay=0.01, clip=0.0),
    "sgd momentum": dict(kind="sgd", rate=0.05, momentum=0.9, decay=0.01, clip=3.0),
    "sgd nesterov": dict(kind="sgd", rate=0.05, momentum=0.8, nesterov=True, decay=0.02, clip=3.0),
    "adamw averaged": dict(kind="adamw", rate=0.05, beta1=0.9, beta2=0.95, eps=1e-8, decay=0.1,
                           clip=1.0, ema=0.8),
    "muon": dict(kind="muon", rate=0.01, muon_rate=0.02, momentum=0.95, beta1=0.9, beta2=0.95, eps=1e-8,
                 decay=0.1, clip=1.0),
}
GRADIENT_SIZE = 0.5


def drawn(name, count):
    h = 14695981039346656037
    for byte in name.encode():
        h = (h ^ byte) * 1099511628211 % 2**64
    with np.errstate(over="ignore"):
        z = np.uint64(h) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(40)).astype(np.float64) * 2.0**-23 - 1


def gradient(name, step):
    size = GRADIENT_SIZE * (10 if step % 3 == 2 else 1)
    return torch.tensor(drawn(f"{name} gradient {step}", math.prod(WEIGHTS[name])) *
                        size).reshape(WEIGHTS[name])


def is_muon(name):
    return name.startswith("decoder.") and WEIGHTS[name][0] > 1


def orthogonal(u):
    x = u.T if u.shape[0] > u.shape[1] else u
    x = x / max(float(x.norm()), 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x - 4.7750 * a @ x + 2.0315 * a @ a @ x
    return x.T if u.shape[0] > u.shape[1] else x


class Muon:
    def __init__(self, weights, o):
        self.weights, self.o, self.buffer = weights, o, [torch.zeros_like(w) for w in weights]

    def step(self, factor):
        rate, f = self.o["muon_rate"] * factor, self.o["momentum"]
        for w, b in zip(self.weights, self.buffer):
            b.mul_(f).add_((1 - f) * w.grad)
            u = f * b + (1 - f) * w.grad
            w.mul_(1 - rate * self.o["decay"]).sub_(rate * math.sqrt(max(1, w.shape[0] / w.shape[1])) *
                                                    orthogonal(u))


def run(o, muon=Muon):
    weights = {n: torch.tensor(drawn(n, math.prod(s))).reshape(s).requires_grad_()
               for n, s in WEIGHTS.items()}
    chosen = [n for n in weights if o["kind"] == "muon" and is_muon(n)]
    rest = [n for n in weights if n not in chosen]
    groups = [{"params": [weights[n] for n in rest if WEIGHTS[n][0] > 1], "weight_decay": o["decay"]},
              {"params": [weights[n] for n in rest if WEIGHTS[n][0] == 1], "weight_decay": 0.0}]
    adam = dict(lr=o["rate"], betas=(o.get("beta1"), o.get("beta2")), eps=o.get("eps"))
    if o["kind"] in ("adamw", "muon"):
        optimizer = torch.optim.AdamW(groups, **adam)
    elif o["kind"] == "adam":
        optimizer = torch.optim.Adam(groups, **adam)
    else:
        optimizer = torch.optim.SGD(groups, lr=o["rate"], momentum=o["momentum"],
                                    nesterov=o.get("nesterov", False))
    orthogonaliser = muon([weights[n] for n in chosen], o) if chosen else None
    holder = torch.nn.ParameterList([torch.nn.Parameter(w) for w in weights.values()])
    averaged = torch.optim.swa_utils.AveragedModel(holder,
                                                   multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(
                                                       o.get("ema", 0.5)))
    norms, results = [], []
    for step, factor in enumerate(FACTORS):
        for n, w in weights.items():
            w.grad = gradient(n, step)
        norms.append(float(torch.nn.utils.clip_grad_norm_(weights.values(),
                                                          o["clip"] if o["clip"] > 0 else float("inf"))))
        for g in optimizer.param_groups:
            g["lr"] = o["rate"] * factor
        optimizer.step()
        with torch.no_grad():
            if orthogonaliser:
                orthogonaliser.step(factor)
            for p, w in zip(holder, weights.values()):
                p.copy_(w)
        averaged.update_parameters(holder)
        if step in (0, len(FACTORS) - 1):
            results.append([float(x) for w in weights.values() for x in w.detach().flatten()])
    if "ema" in o:
        results.append([float(x) for w in averaged.module for x in w.detach().flatten()])
    return norms, results


class TorchMuon:
    def __init__(self, weights, o):
        self.o = o
        self.inner = torch.optim.Muon(weights, lr=o["muon_rate"], weight_decay=o["decay"],
                                      momentum=o["momentum"], nesterov=True)

    def step(self, factor):
        self.inner.param_groups[0]["lr"] = self.o["muon_rate"] * factor
        self.inner.step()


def main():
    ours, theirs = run(CASES["muon"])[1][-1], run(CASES["muon"], TorchMuon)[1][-1]
    apart, moved = max(abs(a - b) for a, b in zip(ours, theirs)), CASES["muon"]["muon_rate"] * sum(FACTORS)
    print(f"Muon here and torch's (bfloat16): {apart:.1e} apart after a way of up to {moved:.2f}",
          file=sys.stderr)
    if apart > 0.01 * moved:
        sys.exit("Muon as written here is not torch's")
    out = {"source": f"torch {torch.__version__}, float64",
           "weights": {n: list(s) for n, s in WEIGHTS.items()}, "factors": FACTORS,
           "gradient_size": GRADIENT_SIZE, "cases": []}
    for name, o in CASES.items():
        norms, results = run(o)
        case = {"name": name, "options": o, "norms": [float(f"{x:.12g}") for x in norms]}
        for key, values in zip(("first", "last", "average"), results):
            case[key] = [float(f"{x:.10g}") for x in values]
        out["cases"].append(case)
    text = json.dumps(out)
    for cut in ('"weights"', '"factors"', '"gradient_size"', '"cases"', '{"name"', '"norms"', '"first"',
                '"last"', '"average"'):
        text = text.replace(", " + cut, ",\n" + cut)
    print(text)


main()
