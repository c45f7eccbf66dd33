# SPDX-License-Identifier: Apache-2.0
# The model and step of bench/train.cc in PyTorch: a process that answers lines "MODE SECONDS" (MODE: eager or
# compiled, f32; eager-bf16 or compiled-bf16: forward and loss under torch.autocast) with one JSON object.
# Attention is F.scaled_dot_product_attention; AdamW is the fused or the foreach one, whichever is
# faster here.
#   train_peer.py MODEL BATCH LENGTH THREADS
import json
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

SHAPES = {"gpt2-char": dict(layers=4, heads=4, width=128, context=64, vocab=65, bias=False),
          "gpt2": dict(layers=12, heads=12, width=768, context=1024, vocab=50304, bias=True)}


class Block(nn.Module):
    def __init__(self, heads, width, bias):
        super().__init__()
        self.heads = heads
        self.norm_1 = nn.LayerNorm(width, bias=bias)
        self.qkv = nn.Linear(width, 3 * width, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)
        self.norm_2 = nn.LayerNorm(width, bias=bias)
        self.up = nn.Linear(width, 4 * width, bias=bias)
        self.down = nn.Linear(4 * width, width, bias=bias)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2)
                   for t in self.qkv(self.norm_1(x)).split(C, dim=2))
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(z.transpose(1, 2).reshape(B, T, C))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class Gpt(nn.Module):
    def __init__(self, layers, heads, width, context, vocab, bias):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(heads, width, bias) for _ in range(layers))
        self.norm = nn.LayerNorm(width, bias=bias)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02 / ((2 * layers) ** 0.5 if ".out." in name
                                               or ".down." in name else 1))
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)  # tied
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def optimizer(model, **kind):
    groups = [{"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), **kind)


def faster_optimizer(model, loss):
    """Two steps of each kind; the one with the better second step stays."""
    best = None
    for kind in ({"fused": True}, {"foreach": True}):
        trial = optimizer(model, **kind)
        for _ in range(2):
            loss().backward()
            start = time.perf_counter()
            trial.step()
            seconds = time.perf_counter() - start
            trial.zero_grad(set_to_none=True)
        if best is None or seconds < best[0]:
            best = (seconds, trial, next(iter(kind)))
    return best[1:]


def main():
    name, batch, length, threads = sys.argv[1], *map(int, sys.argv[2:5])
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = Gpt(**SHAPES[name])
    compiled = torch.compile(model)

    def autocast(f):
        def call(*args):
            with torch.autocast("cpu", torch.bfloat16):
                return f(*args)
        return call

    modes = {"eager": model, "compiled": compiled, "eager-bf16": autocast(model),
             "compiled-bf16": autocast(torch.compile(model))}
    data = torch.randint(0, SHAPES[name]["vocab"], (16, batch, length + 1))
    opt, kind = faster_optimizer(model, lambda: model(data[0, :, :-1], data[0, :, 1:]))
    count = 0

    def step(f):
        nonlocal count
        rows = data[count % 16]
        count += 1
        loss = f(rows[:, :-1], rows[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        return loss

    print(f"PyTorch {torch.__version__}, AdamW {kind}", flush=True)
    warm = set()
    for line in sys.stdin:
        mode, seconds = line.split()
        f = modes[mode]
        if mode not in warm:
            warm.add(mode)
            step(f)
            step(f)
        times, end = [], time.perf_counter() + float(seconds)
        while len(times) < 2 or time.perf_counter() < end:
            start = time.perf_counter()
            loss = step(f)
            times.append(time.perf_counter() - start)
        times.sort()
        tokens = batch * length
        print(json.dumps({"steps": len(times), "best": tokens / times[0],
                          "median": tokens / times[len(times) // 2], "loss": loss.item()}),
              flush=True)


if __name__ == "__main__":
    main()
