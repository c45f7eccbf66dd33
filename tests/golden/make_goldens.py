# SPDX-License-Identifier: Apache-2.0
"""Makes the golden files beside this script: toy models of every preset, computed by the reference
implementations.

  python make_goldens.py              writes all files (15 s)
  python make_goldens.py llama3 bert  only these
  python make_goldens.py --names bert prints the names and shapes of a toy's weights

Needs torch and transformers; neither the build nor the tests do. Three checks stand behind every file:
  the reference in float32 agrees with itself in float64 (what is stored) to 2e-5;
  `plain` below, a forward written from the formulas that reads only the recipe, agrees with the reference to
  1e-9, so the recipe in the file says what the reference computes (where no library has the model, `plain` is
  the reference);
  every mutation of the recipe or the weights that fits the toy (`mutations`) moves the result by more
    than 1e-3.
How the weights come about and what the files hold: README.md.
"""
import contextlib
import copy
import json
import math
import pathlib
import re
import sys

import numpy as np
import torch
import torch.nn.functional as F
import transformers

HERE = pathlib.Path(__file__).resolve().parent
VOCAB, CONTEXT = 61, 32
LENGTHS = (24, 7, 1, 13)
transformers.logging.set_verbosity_error()


# -------------------------------------------------------------------------------------------- weights by rule
def draws(name, count):
    """Numbers in [-1, 1), multiples of 2^-23: FNV-1a of the name, then splitmix64 by element."""
    h = 14695981039346656037
    for byte in name.encode():
        h = (h ^ byte) * 1099511628211 % 2**64
    with np.errstate(over="ignore"):
        z = np.uint64(h) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(40)).astype(np.float64) * 2.0**-23 - 1


class Weights:
    """Values of a toy's weights by name, as float64 holding float32 values. `changed` replaces some
    (mutations)."""

    def __init__(self, toy, changed=None):
        self.gains, self.plus_one = toy.get("gains", {}), toy.get("plus_one", False)
        self.tied = toy["recipe"].get("head", {}).get("tied", False)
        self.changed, self.shapes = changed or {}, {}
        self.latent = toy.get("latent")

    def __call__(self, name, rows, cols):
        assert self.shapes.setdefault(name, (rows, cols)) == (rows, cols), name
        u = draws(name, rows * cols).reshape(rows, cols)
        last = name.split(".")[-1]
        if "norm" in name and last == "weight":
            value = 0.5 * u if self.plus_one else 1 + 0.5 * u
        elif last == "bias":
            value = 0.5 * u
        elif (name.startswith("embed.") or ".slots." in name
              or last in ("extra_logit", "scale", "buckets", "value")):
            value = u
        else:
            value = u * 1.7320508 / math.sqrt(cols) * 1.5
        for end, gain in self.gains.items():
            if name.endswith(end):
                value = value * gain
        value = torch.from_numpy(value.astype(np.float32).astype(np.float64))
        return self.changed[name](value) if name in self.changed else value

    def vector(self, name, cols):
        return self(name, 1, cols)[0]


# ------------------------------------------------------------------------------------------ the plain forward
ACTS = {
    "relu": F.relu,
    "relu2": lambda x: F.relu(x) ** 2,
    "gelu": lambda x: x * 0.5 * (1 + torch.erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + torch.exp(-x)),
    "sigmoid": lambda x: 1 / (1 + torch.exp(-x)),
    "ns_sigmoid": lambda x: 0.5 + 0.5 / (1 + torch.exp(-x)),
    "softplus": lambda x: torch.log1p(torch.exp(x)),
    "tanh": torch.tanh,
}


def norm(w, name, spec, x, cols=None):
    """Over the last axis. `cols`: the weight's size where it is laid over several axes (per-head weights)."""
    eps, shape = spec["eps"], x.shape[-1:] if cols is None else x.shape[-2:]
    cols = cols or x.shape[-1]
    if spec["kind"] == "layer":
        x = x - x.mean(-1, keepdim=True)
    square = (x * x).sum(-1, keepdim=True) if spec["kind"] == "l2" else (x * x).mean(-1, keepdim=True)
    y = x / torch.sqrt(square + eps)
    gain = spec.get("weight", "one")
    if gain != "none":
        g = w.vector(name + ".weight", cols).reshape(shape)
        y = y * (g + 1 if gain == "plus_one" else g)
    return y + w.vector(name + ".bias", cols).reshape(shape) if spec.get("bias") else y


def linear(w, name, x, out, bias):
    y = x @ w(name + ".weight", out, x.shape[-1]).T
    return y + w.vector(name + ".bias", out) if bias else y


def rope_frequencies(r, head_dim, length):
    R = int(head_dim * r.get("part", 1))
    theta = r.get("theta", 10000.0)
    kind, r = next(iter(r["scaling"].items())) if "scaling" in r else ("none", {})
    factor = r.get("factor", 1.0)
    i = torch.arange(0, R, 2, dtype=torch.float64)
    magnitude = 1.0
    if kind == "dynamic" and length > r["original"]:
        theta *= (factor * length / r["original"] - (factor - 1)) ** (R / (R - 2))
    f = theta ** (-i / R)
    if kind == "linear":
        f = f / factor
    if kind == "llama3":
        wave = 2 * math.pi / f
        long_wave, short_wave = r["original"] / r.get("low_freq",
                                                      1.0), r["original"] / r.get("high_freq", 4.0)
        s = (r["original"] / wave - r.get("low_freq", 1.0)) / (r.get("high_freq", 4.0) -
                                                               r.get("low_freq", 1.0))
        f = torch.where(wave > long_wave, f / factor,
                        torch.where(wave < short_wave, f, (1 - s) * f / factor + s * f))
    if kind == "yarn":
        def channel(turns):  # where a wave makes so many turns in the original context
            return R * math.log(r["original"] / (turns * 2 * math.pi)) / (2 * math.log(theta))
        low, high = channel(r.get("beta_fast", 32)), channel(r.get("beta_slow", 1))
        if r.get("truncate", True):
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, R - 1)
        ramp = ((i / 2 - low) / max(high - low, 0.001)).clamp(0, 1)
        f = f / factor * ramp + f * (1 - ramp)
        def grow(m):
            return 0.1 * m * math.log(factor) + 1 if factor > 1 else 1.0
        both = r.get("mscale", 0) and r.get("mscale_all_dim", 0)
        magnitude = r.get("attention_factor", 0) or (grow(r["mscale"]) / grow(r["mscale_all_dim"])
                                                     if both else grow(1))
    if kind == "longrope":
        f = f / torch.tensor(r["long_factor"] if length > r["original"] else r["short_factor"],
                             dtype=torch.float64)
        stretch = r["max_context"] / r["original"]
        magnitude = (r.get("attention_factor", 0)
                     or (math.sqrt(1 + math.log(stretch) / math.log(r["original"])) if stretch > 1 else 1.0))
    return f, magnitude


def rope(r, x):
    """x [T,H,D], rows at positions 0, 1, ..."""
    f, magnitude = rope_frequencies(r, x.shape[-1], x.shape[0])
    angle = torch.arange(x.shape[0], dtype=torch.float64)[:, None, None] * f
    cos, sin = angle.cos() * magnitude, angle.sin() * magnitude
    n = len(f)
    y = x.clone()
    a, b = ((slice(0, 2 * n, 2), slice(1, 2 * n, 2)) if r.get("layout", "halves") == "pairs"
            else (slice(0, n), slice(n, 2 * n)))
    y[..., a] = x[..., a] * cos - x[..., b] * sin
    y[..., b] = x[..., b] * cos + x[..., a] * sin
    return y


def bucket(relative, count, furthest, both):
    """T5: half of the buckets are exact distances, the rest grow logarithmically up to `furthest`."""
    base = 0
    if both:
        count //= 2
        base, relative = (count if relative > 0 else 0), abs(relative)
    else:
        relative = max(-relative, 0)
    exact = count // 2
    if relative < exact:
        return base + relative
    return base + min(exact + int(math.log(relative / exact) / math.log(furthest / exact) * (count - exact)),
                      count - 1)


def gates(w, p, a, at, x, source):
    """x [T,n,D] times or plus act(source W) for every gate at this place."""
    for g in a.get("gate", []):
        if g["at"] != at:
            continue
        T, n, D = x.shape
        width = ((1 if g.get("heads", "own") == "shared" else n)
                 * (D if g.get("grain", "element") == "element" else 1))
        if g.get("from", "input") == "constant":
            value = w.vector(f"{p}.gate_{at}.value", width)[None]
        else:
            value = linear(w, f"{p}.gate_{at}", source, width, False)
        value = ACTS[g.get("act", "sigmoid")](value)
        value = value.reshape(value.shape[0], 1 if g.get("heads", "own") == "shared" else n, -1)
        x = x + value if g.get("op", "mul") == "add" else x * value
    return x


def biases(a):
    """The letters of the projections that have one, whichever way the recipe says it."""
    return "qkvo" if a.get("bias") == "all" else "".join(a.get("bias", ""))


def attend_latent(w, p, a, x):
    """Keys and values of every head made of one latent per token; the last channels of a key turn and are the
    same for all heads. Causal, without other options."""
    T, H, D, V, l = x.shape[0], a["heads"], a["head_dim"], a["v_dim"], a["latent"]
    R, r = l["rank"], l["rope_dim"]
    n, small = D - r, {"kind": "rms", "eps": 1e-6}
    q = linear(w, p + ".q", x, H * D, False).reshape(T, H, D)
    both = linear(w, p + ".kv_a", x, R + r, False)
    c = norm(w, p + ".kv_a_norm", small, both[:, :R])
    k = torch.stack([c @ w(f"{p}.k.heads.{h}.weight", R, n) for h in range(H)], 1)
    v = torch.stack([c @ w(f"{p}.v.heads.{h}.weight", V, R).T for h in range(H)], 1)
    spec = a.get("pos", {}).get("rope")
    turn = (lambda y: rope(spec, y)) if spec else (lambda y: y)
    q = torch.cat([q[..., :n], turn(q[..., n:])], -1)
    k = torch.cat([k, turn(both[:, None, R:]).expand(T, H, r)], -1)
    scale = D**-0.5
    if yarn := (spec or {}).get("scaling", {}).get("yarn"):
        scale *= (0.1 * yarn["mscale_all_dim"] * math.log(yarn["factor"]) + 1) ** 2
    score = torch.einsum("thd,shd->hts", q, k) * a.get("scale", scale)
    score = score.masked_fill(torch.arange(T)[None] > torch.arange(T)[:, None], -math.inf)
    z = torch.einsum("hts,shd->thd", torch.softmax(score, -1), v)
    return linear(w, p + ".o", z.reshape(T, H * V), x.shape[1], False)


def attend(w, p, a, x, memory, buckets, cross, encoder):
    """x [T,C] looks at memory [S,C]."""
    T, S, H, C = x.shape[0], memory.shape[0], a["heads"], x.shape[1]
    K, D = a.get("kv_heads") or H, a.get("head_dim") or C // H
    b = biases(a)
    if "latent" in a:
        return attend_latent(w, p, a, x)
    q = linear(w, p + ".q", x, H * D, "q" in b).reshape(T, H, D)
    k = linear(w, p + ".k", memory, K * D, "k" in b).reshape(S, K, D)
    v = linear(w, p + ".v", memory, K * D, "v" in b).reshape(S, K, D)
    q, k, v = gates(w, p, a, "q", q, x), gates(w, p, a, "k", k, memory), gates(w, p, a, "v", v, memory)
    pos = a.get("pos", {})
    turn = (lambda y: rope(pos["rope"], y)) if "rope" in pos else (lambda y: y)

    def qk_norm(name, y):
        n = a.get("qk_norm")
        if not n:
            return y
        if n.get("span", "head") == "full":
            return norm(w, f"{p}.{name}", n["norm"], y.reshape(y.shape[0], -1)).reshape(y.shape)
        return norm(w, f"{p}.{name}", n["norm"], y, y.shape[1] * D
                    if n.get("weights", "shared") == "per_head" else None)

    if (a.get("qk_norm") or {}).get("at", "before_pos") == "before_pos":
        q, k = turn(qk_norm("q_norm", q)), turn(qk_norm("k_norm", k))
    else:
        q, k = qk_norm("q_norm", turn(q)), qk_norm("k_norm", turn(k))
    k, v = k.repeat_interleave(H // K, 1), v.repeat_interleave(H // K, 1)

    score = torch.einsum("thd,shd->hts", q, k) * a.get("scale", D**-0.5)
    if a.get("cap", 0):
        score = a["cap"] * torch.tanh(score / a["cap"])
    if "bucket" in pos:
        spec = pos["bucket"]
        table = w(buckets, spec["count"], H)
        at = torch.tensor([[bucket(j - i, spec["count"], spec["max"], encoder) for j in range(S)]
                           for i in range(T)])
        score = score + table[at].permute(2, 0, 1)
    i, j = torch.arange(T)[:, None], torch.arange(S)[None]
    if pos == "xl":
        u, far = (w.vector(f"{p}.{name}.bias", H * D).reshape(H, D) for name in ("content", "distance"))
        angles = (i - j)[..., None] * 10000.0 ** (-torch.arange(C // 2, dtype=torch.float64) / (C // 2))
        r = torch.cat([angles.sin(), angles.cos()], -1)                                          # [T,S,C]
        keys = (r @ w(p + ".distance.weight", K * D, C).T).reshape(T, S, K, D).repeat_interleave(H // K, 2)
        score = (torch.einsum("thd,shd->hts", q + u, k) +
                 torch.einsum("thd,tshd->hts", q + far, keys)) * a.get("scale", D**-0.5)
    if not cross and a.get("mask", "causal") == "causal":
        hidden = j > i
        if a.get("window", 0):
            hidden = hidden | (j <= i - a["window"])
        score = score.masked_fill(hidden, -math.inf)
    extra = a.get("extra", "none")
    if extra != "none":
        sink = (torch.zeros(H, dtype=torch.float64) if extra == "zero_logit"
                else w.vector(p + ".extra_logit", H))
        weight = torch.softmax(torch.cat([score, sink[:, None, None].expand(H, T, 1)], -1), -1)[..., :-1]
    else:
        weight = torch.softmax(score, -1)
    z = gates(w, p, a, "sdpa", torch.einsum("hts,shd->thd", weight, v), x)
    y = linear(w, p + ".o", z.reshape(T, H * D), C, "o" in b)
    return gates(w, p, a, "out", y[:, None], x)[:, 0]


def feed(w, p, f, x):
    C, width, act, bias = x.shape[-1], f.get("width") or 4 * x.shape[-1], ACTS[f["act"]], f.get("bias")
    up = linear(w, p + ".up", x, width, bias)
    hidden = act(linear(w, p + ".gate", x, width, bias)) * up if f.get("kind", "glu") == "glu" else act(up)
    return linear(w, p + ".down", hidden, C, bias)


def mixture(w, p, m, x):
    """Routers of Mixtral and Qwen: softmax over all experts, the best, renormalised or not."""
    E, k, T = m["experts"], m["used"], x.shape[0]
    score = torch.softmax(linear(w, p + ".router", x, E, False), -1)
    best = torch.topk(score, k, -1).indices
    used = torch.zeros_like(score).scatter(1, best, 1.0) * score
    if m.get("router", {}).get("renormalise", True):
        used = used / used.sum(-1, keepdim=True)
    y = sum(used[:, e : e + 1] * feed(w, f"{p}.experts.{e}", m, x) for e in range(E))
    if "shared" in m:
        shared = feed(w, p + ".shared", {**m, "width": m["shared"]["width"]}, x)
        y = y + (shared * torch.sigmoid(linear(w, p + ".shared_gate", x, 1, False))
                 if m["shared"].get("gated") else shared)
    assert y.shape[0] == T
    return y


def convolved(w, name, x, kernel):
    """Every channel by itself: the last rows, weighted."""
    taps = w(name, x.shape[1], kernel)
    padded = torch.cat([torch.zeros(kernel - 1, x.shape[1], dtype=x.dtype), x])
    return sum(padded[j : j + x.shape[0]] * taps[:, j] for j in range(kernel))


def delta(w, p, d, x):
    """The gated delta rule, row by row."""
    T, K, H, D = x.shape[0], d["key_heads"], d["value_heads"], d["key_dim"]
    V, kernel = d.get("value_dim") or D, d.get("conv", 4)

    def mixed(name, heads, width):
        y = convolved(w, f"{p}.{name}_conv", linear(w, f"{p}.{name}", x, heads * width, False), kernel)
        return ACTS[d.get("act", "silu")](y).reshape(T, heads, width)

    q, k, v = mixed("q", K, D), mixed("k", K, D), mixed("v", H, V)
    q, k = (y / torch.sqrt((y * y).sum(-1, keepdim=True) + 1e-6) for y in (q, k))
    q, k = (y.repeat_interleave(H // K, 1) for y in (q * D**-0.5, k))
    z, b, a = (linear(w, f"{p}.{n}", x, size, False) for n, size in (("z", H * V), ("b", H), ("a", H)))
    keep = torch.exp(-torch.exp(w.vector(p + ".a_log", H)) * F.softplus(a + w.vector(p + ".dt_bias", H)))
    beta, state, rows = torch.sigmoid(b), torch.zeros(H, D, V, dtype=x.dtype), []
    for t in range(T):
        state = state * keep[t][:, None, None]
        u = beta[t][:, None] * (v[t] - torch.einsum("hdv,hd->hv", state, k[t]))
        state = state + torch.einsum("hd,hv->hdv", k[t], u)
        rows.append(torch.einsum("hdv,hd->hv", state, q[t]))
    o = norm(w, p + ".norm", d["norm"], torch.stack(rows)) * ACTS["silu"](z).reshape(T, H, V)
    return linear(w, p + ".out", o.reshape(T, H * V), x.shape[1], False)


def short_conv(w, p, c, x):
    b, gate, u = (linear(w, f"{p}.{n}", x, x.shape[1], c.get("bias")) for n in "bcu")
    mixed = gate * convolved(w, p + ".mix", b * u, c["kernel"])
    return linear(w, p + ".out", mixed, x.shape[1], c.get("bias"))


def stack(w, which, s, x, memory=None):
    for i in range(s["layers"]):
        layer = s["kinds"][s.get("pattern", "L")[i % len(s.get("pattern", "L"))]]

        def branch(kind, part, h):
            p = f"{which}.{i}.{kind}"
            if "norm_in" in part:
                h = norm(w, p + ".norm_in", part["norm_in"], h)
            if kind == "ffn":
                y = feed(w, p, part, h)
            elif kind in ("moe", "delta", "conv"):
                y = {"moe": mixture, "delta": delta, "conv": short_conv}[kind](w, p, part, h)
            else:
                y = attend(w, p, part, h, memory if kind == "cross" else h, which + ".buckets",
                           kind == "cross", which == "encoder")
            return norm(w, p + ".norm_out", part["norm_out"], y) if "norm_out" in part else y

        if layer.get("parallel"):
            h = norm(w, f"{which}.{i}.norm_in", layer["norm_in"], x) if layer.get("norm_in") else x
            x = x + sum(branch(kind, part, h) for one in layer["parts"] for kind, part in one.items())
            continue
        for kind, part in (x for one in layer["parts"] for x in one.items()):
            x = x + branch(kind, part, x)
            if "norm_sum" in part:
                x = norm(w, f"{which}.{i}.{kind}.norm_sum", part["norm_sum"], x)
    return norm(w, which + ".norm", s["final_norm"], x) if s.get("final_norm") else x


def embed(w, recipe, tokens, types):
    e, C, T = recipe.get("embed", {}), recipe["width"], len(tokens)
    scale = e.get("scale", 1.0)
    x = w("embed.tokens", recipe["vocab"], C)[tokens] * (math.sqrt(C) if scale == "sqrt(width)" else scale)
    if e.get("pos") == "learned":
        x = x + w("embed.positions", recipe["context"], C)[:T]
    elif "pos" in e:
        half = torch.arange(C // 2, dtype=torch.float64)
        angle = torch.arange(T, dtype=torch.float64)[:, None] * 10000.0 ** (-2 * half / C)
        both = [angle.sin(), angle.cos()]
        x = x + (torch.cat(both, -1) if e["pos"]["sinusoid"]["layout"] == "halves"
                 else torch.stack(both, -1).reshape(T, C))
    if e.get("types", 0):
        x = x + w("embed.types", e["types"], C)[types or [0] * T]
    return norm(w, "embed.norm", e["norm"], x) if e.get("norm") else x


def plain(recipe, w, tokens, types=None, source=None):
    """One sequence -> logits [T,V] (the hidden state where there is no head), in float64."""
    memory = None
    if recipe.get("encoder"):
        memory = stack(w, "encoder", recipe["encoder"], embed(w, recipe, source or tokens, types))
    x = memory
    if recipe.get("decoder"):
        x = stack(w, "decoder", recipe["decoder"], embed(w, recipe, tokens, types), memory)
    h, C, V = recipe.get("head", {}), recipe["width"], recipe["vocab"]
    if h.get("kind", "vocab") == "none":
        return x
    if h.get("transform"):
        x = ACTS[h["transform"]["act"]](linear(w, "head.transform", x, C, True))
        x = norm(w, "head.norm", h["transform"]["norm"], x)
    x = x * h.get("scale", 1.0)
    y = x @ (w("embed.tokens", V, C) if h.get("tied") else w("head.weight", V, C)).T
    if h.get("bias"):
        y = y + w.vector("head.bias", V)
    return h["cap"] * torch.tanh(y / h["cap"]) if h.get("cap", 0) else y


# ---------------------------------------------------------------------------------------------------- recipes
def rms(eps, **more):
    return {"kind": "rms", "eps": eps, **more}


def layer_norm(eps, bias=True):
    return {"kind": "layer", "eps": eps, **({"bias": True} if bias else {})}


def roped(theta, **more):
    return {"rope": {"theta": theta, **more}}


def attention(heads, **more):
    return {"heads": heads, **{k: v for k, v in more.items() if v is not None}}


def mlp(act, width, bias=False):
    return {"kind": "mlp", "act": act, "width": width, **({"bias": True} if bias else {})}


def glu(act, width, bias=False):
    return {"kind": "glu", "act": act, "width": width, **({"bias": True} if bias else {})}


def block(attn, ffn, cross=None, **norms):
    """Parts in their order, each with the same norms (norm_in, norm_out, norm_sum)."""
    parts = {"self": attn, "cross": cross, "moe" if "experts" in ffn else "ffn": ffn}
    return {"parts": [{kind: {**norms, **part}} for kind, part in parts.items() if part]}


def stacked(layers, kinds, pattern="L", final_norm=None):
    kinds = kinds if "parts" not in kinds else {"L": kinds}
    return {"layers": layers, **({"pattern": pattern} if pattern != "L" else {}), "kinds": kinds,
            **({"final_norm": final_norm} if final_norm else {})}


def recipe_of(width, head, embed=None, context=CONTEXT, **stacks):
    return {"width": width, "vocab": VOCAB, "context": context, **({"embed": embed} if embed else {}),
            **stacks, **({"head": head} if head else {})}


def llama_like(width, layers, ffn, eps, head=None, norm_more=None, embed=None, act="silu", **attn):
    n = rms(eps, **(norm_more or {}))
    return recipe_of(width, head, embed,
                     decoder=stacked(layers, block(attention(**attn), glu(act, ffn), norm_in=n),
                                     final_norm=n))


# --------------------------------------------------------------------------------------------- the references
@contextlib.contextmanager
def doubles():
    """Inside, everything a library would do in float32 happens in float64: its upcasts, its tables, its
    default."""
    saved = torch.float32, torch.float, torch.Tensor.float, torch.FloatTensor
    torch.set_default_dtype(torch.float64)
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float, torch.FloatTensor = torch.Tensor.double, torch.DoubleTensor
    try:
        yield
    finally:
        torch.float32, torch.float, torch.Tensor.float, torch.FloatTensor = saved
        torch.set_default_dtype(saved[0])


LLAMA = {
    "model.embed_tokens": "embed.tokens", "model.norm": "decoder.norm", "lm_head": "head",
    "model.layers": "decoder",
    "self_attn.q_proj": "self.q", "self_attn.k_proj": "self.k", "self_attn.v_proj": "self.v",
    "self_attn.o_proj": "self.o",
    "self_attn.q_norm": "self.q_norm", "self_attn.k_norm": "self.k_norm",
    "mlp.gate_proj": "ffn.gate", "mlp.up_proj": "ffn.up", "mlp.down_proj": "ffn.down",
    "input_layernorm": "self.norm_in", "post_attention_layernorm": "ffn.norm_in",
}
MOE = LLAMA | {
    "post_attention_layernorm": "moe.norm_in", "mlp.gate": "moe.router",
    **{f"mlp.shared_expert.{x}_proj": f"moe.shared.{x}" for x in ("gate", "up", "down")},
    "mlp.shared_expert_gate": "moe.shared_gate",
}
LATENT = MOE | {
    "self_attn.kv_a_proj_with_mqa": "self.kv_a", "self_attn.kv_a_layernorm": "self.kv_a_norm",
    **{f"mlp.shared_experts.{x}_proj": f"moe.shared.{x}" for x in ("gate", "up", "down")},
}
GEMMA = LLAMA | {"post_attention_layernorm": "self.norm_out", "pre_feedforward_layernorm": "ffn.norm_in",
                 "post_feedforward_layernorm": "ffn.norm_out"}
OLMO2 = LLAMA | {"post_attention_layernorm": "self.norm_out", "post_feedforward_layernorm": "ffn.norm_out"}
GPT2 = {
    "transformer.wte": "embed.tokens", "transformer.wpe": "embed.positions",
    "transformer.ln_f": "decoder.norm",
    "transformer.h": "decoder", "ln_1": "self.norm_in", "ln_2": "ffn.norm_in", "lm_head": "head",
    "attn.c_attn": "self.qkv", "attn.c_proj": "self.o", "mlp.c_fc": "ffn.up", "mlp.c_proj": "ffn.down",
}
BERT = {
    "bert.embeddings.word_embeddings": "embed.tokens",
    "bert.embeddings.position_embeddings": "embed.positions",
    "bert.embeddings.token_type_embeddings": "embed.types", "bert.embeddings.LayerNorm": "embed.norm",
    "bert.encoder.layer": "encoder",
    "attention.self.query": "self.q", "attention.self.key": "self.k", "attention.self.value": "self.v",
    "attention.output.dense": "self.o", "attention.output.LayerNorm": "self.norm_sum",
    "intermediate.dense": "ffn.up", "output.dense": "ffn.down", "output.LayerNorm": "ffn.norm_sum",
    "cls.predictions.transform.dense": "head.transform", "cls.predictions.transform.LayerNorm": "head.norm",
    "cls.predictions.decoder": "head", "cls.predictions": "head",
}
T5 = {
    "shared": "embed.tokens", "encoder.embed_tokens": "embed.tokens", "decoder.embed_tokens": "embed.tokens",
    "lm_head": "head",
    "encoder.final_layer_norm": "encoder.norm", "decoder.final_layer_norm": "decoder.norm",
    "encoder.block": "encoder", "decoder.block": "decoder",
    "layer.0.layer_norm": "self.norm_in", "layer.1.layer_norm": "cross.norm_in",
    "layer.2.layer_norm": "ffn.norm_in",
    **{f"layer.0.SelfAttention.{x}": f"self.{x}" for x in "qkvo"},
    **{f"layer.1.EncDecAttention.{x}": f"cross.{x}" for x in "qkvo"},
    **{f"layer.{i}.DenseReluDense.{a}": f"ffn.{b}" for i in (1, 2)
       for a, b in (("wi", "up"), ("wi_0", "gate"), ("wi_1", "up"), ("wo", "down"))},
    "layer.0.SelfAttention.relative_attention_bias": "buckets",
}
MARIAN = {
    "model.shared": "embed.tokens", "model.encoder.embed_tokens": "embed.tokens",
    "model.decoder.embed_tokens": "embed.tokens",
    "lm_head": "head", "model.encoder.layers": "encoder", "model.decoder.layers": "decoder",
    **{f"self_attn.{x}_proj": f"self.{x}" for x in "qkv"}, "self_attn.out_proj": "self.o",
    "self_attn_layer_norm": "self.norm_sum",
    **{f"encoder_attn.{x}_proj": f"cross.{x}" for x in "qkv"}, "encoder_attn.out_proj": "cross.o",
    "encoder_attn_layer_norm": "cross.norm_sum", "fc1": "ffn.up", "fc2": "ffn.down",
    "final_layer_norm": "ffn.norm_sum",
}
TORCH = {
    "encoder.layers": "encoder", "decoder.layers": "decoder", "self_attn": "self", "multihead_attn": "cross",
    "self_attn.out_proj": "self.o", "multihead_attn.out_proj": "cross.o", "linear1": "ffn.up",
    "linear2": "ffn.down",
}


def our_name(key, table):
    """"model.layers.3.mlp.up_proj.weight" -> "decoder.3.ffn.up.weight"."""
    stem, suffix = key.rsplit(".", 1)
    m = re.fullmatch(r"(.*?)\.(\d+)\.(.*)", stem)
    if m and m[1] in table:
        stem = f"{table[m[1]]}.{m[2]}.{table[m[3]]}"
    else:
        stem = table[stem]
    return stem if stem.startswith("embed.") and stem != "embed.norm" else f"{stem}.{suffix}"


def values_for(key, shape, table, w):
    """The tensor a reference keeps under `key`, made of our weights."""
    if key == "final_logits_bias":
        return w("head.bias", *shape)
    if table is T5 and key.startswith("encoder.") and ".layer.1.layer_norm" in key:
        # The encoder has no cross-attention: its second part is the FFN.
        key = key.replace("layer.1.", "layer.2.")
    if "relative_attention_bias" in key:
        return w(key.split(".")[0] + ".buckets", *shape)
    if m := re.fullmatch(r"model\.layers\.(\d+)\.mlp\.experts\.(gate_up|down)_proj", key):
        # [E, 2F, C], gate above up, and [E, C, F]
        p, (E, rows, cols) = f"decoder.{m[1]}.moe.experts", shape
        names = ("gate", "up") if m[2] == "gate_up" else ("down",)
        return torch.stack([torch.cat([w(f"{p}.{e}.{x}.weight", rows // len(names), cols) for x in names])
                            for e in range(E)])
    if m := re.fullmatch(r"model\.layers\.(\d+)\.self_attn\.kv_b_proj\.weight", key):
        # Head by head: rows of its key matrix, whose transpose is ours, then those of its values.
        p, (n, v), R = f"decoder.{m[1]}.self", w.latent, shape[1]
        of = [(w(f"{p}.k.heads.{h}.weight", R, n).T, w(f"{p}.v.heads.{h}.weight", v, R))
              for h in range(shape[0] // (n + v))]
        return torch.cat([matrix for head in of for matrix in head])
    if table is LATENT and key == "model.layers.0.post_attention_layernorm.weight":  # that layer is dense
        return w.vector("decoder.0.ffn.norm_in.weight", shape[0])
    if table is TORCH:
        m = re.fullmatch(r"(\w+\.layers\.\d+)\.(norm\d)\.(\w+)", key)
        if m:  # norms are numbered in the order of the parts
            part = {"norm1": "self", "norm2": "cross" if "decoder" in key else "ffn", "norm3": "ffn"}[m[2]]
            which, _, i = m[1].split(".")
            return w.vector(f"{which}.{i}.{part}.norm_sum.{m[3]}", shape[0])
        m = re.fullmatch(r"(.*)\.in_proj_(weight|bias)", key)
        if m:  # q, k, v one above the other
            p = our_name(m[1] + ".x", table)[:-2]
            cut = shape[0] // 3
            return torch.cat([w(f"{p}.{x}.{m[2]}", cut, shape[1])
                              if m[2] == "weight" else w.vector(f"{p}.{x}.bias", cut) for x in "qkv"])
    name = our_name(key, table)
    if name == "head.weight" and w.tied:
        name = "embed.tokens"
    if ".qkv." in name:  # GPT-2: [in, 3 * out]
        n = shape[-1] // 3
        parts = [w(name.replace("qkv", x), n, shape[0]).T if len(shape) == 2
                 else w.vector(name.replace("qkv", x), n) for x in "qkv"]
        return torch.cat(parts, -1)
    if table is GPT2 and len(shape) == 2 and not name.startswith("embed."):
        return w(name, shape[1], shape[0]).T
    return w(name, *shape) if len(shape) == 2 else w.vector(name, shape[0])


def fill(model, table, w, skip=()):
    state = model.state_dict()
    new = {k: v if any(s in k for s in skip) else values_for(k, tuple(v.shape), table, w).to(v.dtype)
           for k, v in state.items()}
    model.load_state_dict(new, strict=True)
    return model.eval()


def hugging_face(cls, config, table, **options):
    """A reference: called with a toy's weights and one sequence. The model is made anew each time (dynamic
    RoPE keeps state)."""

    def logits(w, tokens, types, source):
        torch.manual_seed(0)
        model = cls(cls.config_class(attn_implementation="eager", vocab_size=VOCAB, **config))
        if options.get("untie"):
            model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.lm_head.weight))
        real = torch.get_default_dtype()
        assert all(p.dtype == real for p in model.parameters())
        if options.get("double_q"):
            filled = fill_next(model, w)
        elif options.get("lfm2"):
            filled = fill_lfm2(model, w)
        else:
            filled = fill(model, table, w, options.get("skip", ()))
        ids = torch.tensor([tokens])
        more = {}
        if types:
            more["token_type_ids"] = torch.tensor([types])
        with torch.no_grad():
            if source:
                y = filled(input_ids=torch.tensor([source]), decoder_input_ids=ids, use_cache=False,
                           **more).logits[0]
            else:
                y = filled(input_ids=ids, **more).logits[0]
        assert y.dtype == real
        return y

    logits.source = f"transformers {transformers.__version__} {cls.__name__}"
    return logits


def fill_next(model, w):
    """Qwen3-Next: q_proj holds, head by head, the query's rows and then the gate's."""
    config = model.config
    H, D = config.num_attention_heads, config.head_dim
    state = model.state_dict()
    for key, v in state.items():
        m = re.fullmatch(r"model\.layers\.(\d+)\.self_attn\.q_proj\.weight", key)
        if ".linear_attn." in key:
            state[key] = delta_values(key, v.shape, config, w).to(v.dtype)
        elif m:
            q, g = (w(f"decoder.{m[1]}.self.{x}.weight", H * D, v.shape[1]).reshape(H, D, -1)
                    for x in ("q", "gate_sdpa"))
            state[key] = torch.cat([q, g], 1).reshape(v.shape).to(v.dtype)
        else:
            table = MOE if config.num_experts > 0 and not config.mlp_only_layers else LLAMA
            if linear_layer(key, config) and ".input_layernorm." in key:
                table = table | {"input_layernorm": "delta.norm_in"}
            state[key] = values_for(key, tuple(v.shape), table, w).to(v.dtype)
    model.load_state_dict(state, strict=True)
    return model.eval()


def linear_layer(key, config):
    m = re.match(r"model\.layers\.(\d+)\.", key)
    return bool(m) and config.layer_types[int(m[1])] == "linear_attention"


def delta_values(key, shape, config, w):
    """Qwen3-Next: rows of q, k, v and z, and of b and a, stand key head by key head; one convolution."""
    i, which = re.fullmatch(r"model\.layers\.(\d+)\.linear_attn\.(.*)", key).groups()
    p, K, H = f"decoder.{i}.delta", config.linear_num_key_heads, config.linear_num_value_heads
    D, V, C = config.linear_key_head_dim, config.linear_value_head_dim, config.hidden_size
    sizes = {"q": K * D, "k": K * D, "v": H * V, "z": H * V, "b": H, "a": H}

    def grouped(names):
        heads = [w(f"{p}.{n}.weight", sizes[n], C).reshape(K, -1, C) for n in names]
        return torch.cat(heads, 1).reshape(-1, C)

    if which == "conv1d.weight":
        return torch.cat([w(f"{p}.{n}_conv", sizes[n], shape[2]) for n in "qkv"]).reshape(shape)
    if which in ("in_proj_qkvz.weight", "in_proj_ba.weight"):
        return grouped(which[8:-7])
    if which == "out_proj.weight":
        return w(p + ".out.weight", *shape)
    return w.vector(f"{p}.{which.lower()}", shape[0])  # A_log, dt_bias, norm.weight


def fill_lfm2(model, w):
    """LFM2: one matrix for b, c and u; the final norm is called embedding_norm."""
    table = LLAMA | {"model.embedding_norm": "decoder.norm", "self_attn.out_proj": "self.o",
                     "ffn_norm": "ffn.norm_in",
                     "self_attn.q_layernorm": "self.q_norm", "self_attn.k_layernorm": "self.k_norm",
                     "feed_forward.w1": "ffn.gate", "feed_forward.w3": "ffn.up",
                     "feed_forward.w2": "ffn.down", "conv.out_proj": "conv.out"}
    state = model.state_dict()
    for key, v in state.items():
        m = re.match(r"model\.layers\.(\d+)\.(.*)", key)
        p, C = f"decoder.{m[1]}.conv" if m else "", v.shape[-1]
        if m and m[2] == "conv.conv.weight":
            state[key] = w(p + ".mix", v.shape[0], v.shape[2]).reshape(v.shape).to(v.dtype)
        elif m and m[2] == "conv.in_proj.weight":
            state[key] = torch.cat([w(f"{p}.{n}.weight", C, C) for n in "bcu"]).to(v.dtype)
        else:
            conv = m and model.config.layer_types[int(m[1])] == "conv"
            own = table | {"operator_norm": "conv.norm_in" if conv else "self.norm_in"}
            state[key] = values_for(key, tuple(v.shape), own, w).to(v.dtype)
    model.load_state_dict(state, strict=True)
    return model.eval()


def torch_2017(width, heads, layers, ffn):
    def logits(w, tokens, types, source):
        made = dict(d_model=width, nhead=heads, dim_feedforward=ffn, dropout=0.0, batch_first=True,
                    norm_first=False, layer_norm_eps=1e-6)
        encoder = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(**made), layers[0],
                                              enable_nested_tensor=False)
        decoder = torch.nn.TransformerDecoder(torch.nn.TransformerDecoderLayer(**made), layers[1])
        model = fill(torch.nn.Transformer(width, heads, batch_first=True, custom_encoder=encoder,
                                          custom_decoder=decoder), TORCH, w)
        real = torch.get_default_dtype()
        table = w("embed.tokens", VOCAB, width)
        where = torch.arange(CONTEXT, dtype=torch.float64)[:,
                                                           None] / 10000 ** (torch.arange(
                                                               0, width, 2, dtype=torch.float64) / width)
        sinusoid = torch.zeros(CONTEXT, width, dtype=torch.float64)
        sinusoid[:, 0::2], sinusoid[:, 1::2] = where.sin(), where.cos()
        enter = [(table[s] * math.sqrt(width) + sinusoid[: len(s)]).to(real)[None] for s in (source, tokens)]
        mask = torch.nn.Transformer.generate_square_subsequent_mask(len(tokens), dtype=real)
        with torch.no_grad():
            return model(enter[0], enter[1], tgt_mask=mask, tgt_is_causal=True)[0] @ table.T.to(real)

    logits.source = (f"torch {torch.__version__.split('+')[0]} nn.Transformer (embedding, sinusoids and "
                     "output matrix by hand)")
    return logits


# --------------------------------------------------------------------------------------------------- the toys
TOYS = {}


def toy(name, recipe, reference=None, preset=None, **more):
    recipe = {"name": name, **recipe}
    TOYS[name] = {"name": name, "recipe": recipe, "reference": reference, "preset": preset, **more}


def define():
    T = transformers
    base = dict(max_position_embeddings=CONTEXT, num_hidden_layers=2, num_attention_heads=4)

    # GPT-2: LayerNorm with bias, all biases, learned positions, tanh GELU, tied. head_dim 9: odd.
    n = layer_norm(1e-5)
    toy("gpt2",
        recipe_of(36, {"tied": True}, {"pos": "learned"},
                  decoder=stacked(3, block(attention(4, bias="all"), mlp("gelu_tanh", 52, True), norm_in=n),
                                  final_norm=n)),
        hugging_face(T.GPT2LMHeadModel, dict(n_positions=CONTEXT, n_embd=36, n_layer=3, n_head=4, n_inner=52,
                                             bos_token_id=0, eos_token_id=0,
                                             embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0), GPT2), "gpt2")

    # nanoGPT: GPT-2 without biases, erf GELU. No library has it.
    n = layer_norm(1e-5, bias=False)
    toy("gpt-char",
        recipe_of(36, {"tied": True}, {"pos": "learned"},
                  decoder=stacked(2, block(attention(4), mlp("gelu", 52), norm_in=n), final_norm=n)),
        preset="gpt-char")

    # BERT: types, embedding norm, post-norm, erf GELU, the masked-word head.
    n = layer_norm(1e-12)
    toy("bert",
        recipe_of(36, {"tied": True, "bias": True, "transform": {"act": "gelu", "norm": n}},
                  {"pos": "learned", "types": 2, "norm": n},
                  encoder=stacked(2, block(attention(4, bias="all", mask="full"), mlp("gelu", 52, True),
                                           norm_sum=n))),
        hugging_face(T.BertForMaskedLM, dict(base, hidden_size=36, intermediate_size=52, type_vocab_size=2,
                                             pad_token_id=0), BERT),
        "bert", types=True)

    def llama(name, eps, theta, kv, scaling=None, ours=None, preset=None, context=CONTEXT, layers=2, **more):
        toy(name,
            {**llama_like(36, layers, 52, eps, heads=4, kv_heads=kv, head_dim=12,
                          pos=roped(theta, **({"scaling": ours} if ours else {}))), "context": context},
            hugging_face(T.LlamaForCausalLM,
                         dict(base, hidden_size=36, intermediate_size=52, num_key_value_heads=kv, head_dim=12,
                              rms_norm_eps=eps,
                              num_hidden_layers=layers, max_position_embeddings=context,
                              rope_parameters={"rope_type": "default", "rope_theta": theta,
                                               **(scaling or {})}), LLAMA), preset, **more)

    llama("llama1", 1e-6, 1e4, 4, preset="llama1")
    llama("llama2", 1e-5, 1e4, 4, preset="llama2")
    llama("llama3", 1e-5, 5e5, 2, preset="llama3", layers=3)
    llama("llama3.1", 1e-5, 5e5, 2,
          {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 64},
          {"llama3": {"factor": 8.0, "low_freq": 1.0, "high_freq": 4.0, "original": 64}}, preset="llama3.1")
    llama("rope-linear", 1e-5, 1e4, 2, {"rope_type": "linear", "factor": 4.0}, {"linear": {"factor": 4.0}})
    llama("rope-dynamic", 1e-5, 1e4, 2, {"rope_type": "dynamic", "factor": 2.5},
          {"dynamic": {"factor": 2.5, "original": 10}},
          context=10)
    llama("rope-yarn", 1e-5, 1e4, 2, {"rope_type": "yarn", "factor": 4.0,
                                      "original_max_position_embeddings": 512},
          {"yarn": {"factor": 4.0, "original": 512}})
    llama("rope-yarn-mscale", 1e-5, 1e4, 2,
          {"rope_type": "yarn", "factor": 6.0, "original_max_position_embeddings": 300, "beta_fast": 16.0,
           "beta_slow": 2.0,
           "truncate": False, "mscale": 1.4, "mscale_all_dim": 0.8},
          {"yarn": {"factor": 6.0, "original": 300, "beta_fast": 16.0, "beta_slow": 2.0, "truncate": False,
                    "mscale": 1.4,
                    "mscale_all_dim": 0.8}})
    short, long = [1.0, 1.05, 1.1, 1.3, 1.5, 2.0], [1.2, 1.9, 2.7, 4.0, 6.5, 9.0]
    llama("rope-longrope", 1e-5, 1e4, 2,
          {"rope_type": "longrope", "short_factor": short, "long_factor": long,
           "original_max_position_embeddings": 12},
          {"longrope": {"short_factor": short, "long_factor": long, "original": 12, "max_context": 48}},
          context=48)

    def qwen_like(cls, name, width, bias=None, window=None, more_config=None, preset=None, eps=1e-6,
                  theta=1e6, tied=False, **attn):
        toy(name,
            llama_like(width, 2, 50, eps, {"tied": True} if tied else None, heads=4, kv_heads=2, head_dim=10,
                       bias=bias, window=window, pos=roped(theta), **attn),
            hugging_face(cls, dict(base, hidden_size=width, intermediate_size=50, num_key_value_heads=2,
                                   head_dim=10, rms_norm_eps=eps,
                                   tie_word_embeddings=tied,
                                   rope_parameters={"rope_type": "default", "rope_theta": theta},
                                   **(more_config or {})), LLAMA), preset)

    qwen_like(T.MistralForCausalLM, "mistral", 35, window=8, more_config={"sliding_window": 8},
              preset="mistral", eps=1e-5, theta=1e4)
    qwen_like(T.Qwen2ForCausalLM, "qwen2", 35, bias="qkv", preset="qwen2", tied=True)
    qwen_like(T.Qwen3ForCausalLM, "qwen3", 33, preset="qwen3", tied=True, qk_norm={"norm": rms(1e-6)})

    def moe(cls, name, theirs, bias=None, eps=1e-6, theta=1e6, preset=None, ours=None, **attn):
        n = rms(eps)
        part = {"experts": 6, "used": 2, **glu("silu", 20), **(ours or {})}
        toy(name,
            recipe_of(33, None, decoder=stacked(
                2, block(attention(4, kv_heads=2, head_dim=10, bias=bias, pos=roped(theta), **attn), part,
                         norm_in=n), final_norm=n)),
            hugging_face(cls, dict(base, hidden_size=33, num_key_value_heads=2, head_dim=10, rms_norm_eps=eps,
                                   tie_word_embeddings=False, num_experts_per_tok=2,
                                   experts_implementation="eager",
                                   rope_parameters={"rope_type": "default", "rope_theta": theta}, **theirs),
                         MOE),
            preset)

    moe(T.MixtralForCausalLM, "mixtral", eps=1e-5, preset="mixtral",
        theirs={"num_local_experts": 6, "intermediate_size": 20, "sliding_window": None})
    moe(T.Qwen3MoeForCausalLM, "qwen3-moe", preset="qwen3-moe", qk_norm={"norm": rms(1e-6)},
        theirs={"num_experts": 6, "moe_intermediate_size": 20, "norm_topk_prob": True})
    moe(T.Qwen2MoeForCausalLM, "qwen2-moe", bias="qkv",
        ours={"router": {"renormalise": False}, "shared": {"width": 14, "gated": True}},
        theirs={"num_experts": 6, "moe_intermediate_size": 20, "shared_expert_intermediate_size": 14,
                "norm_topk_prob": False})

    # DeepSeek V2 Lite: latent attention, the first layer dense. The trained context is short enough for YaRN
    # to bite.
    n = rms(1e-6)
    yarn = {"factor": 40.0, "original": 12, "mscale": 0.707, "mscale_all_dim": 0.707}
    made = attention(4, head_dim=14, v_dim=9, latent={"rank": 12, "rope_dim": 6},
                     pos={"rope": {"layout": "pairs", "scaling": {"yarn": yarn}}})
    routed = {"experts": 6, "used": 2, **glu("silu", 20), "router": {"renormalise": False},
              "shared": {"width": 20}}
    toy("deepseek-v2-lite",
        recipe_of(32, None, decoder=stacked(3, {"D": block(made, glu("silu", 50), norm_in=n),
                                                "L": block(copy.deepcopy(made), routed, norm_in=n)},
                                            "DLL", final_norm=n)),
        hugging_face(T.DeepseekV2ForCausalLM,
                     dict(base, num_hidden_layers=3, hidden_size=32, intermediate_size=50, q_lora_rank=None,
                          kv_lora_rank=12, qk_nope_head_dim=8, qk_rope_head_dim=6, v_head_dim=9,
                          rms_norm_eps=1e-6, tie_word_embeddings=False, first_k_dense_replace=1,
                          n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=20,
                          n_shared_experts=1, routed_scaling_factor=1.0, experts_implementation="eager",
                          rope_parameters={"rope_type": "yarn", "rope_theta": 1e4, "factor": 40.0,
                                           "mscale": 0.707, "mscale_all_dim": 0.707,
                                           "original_max_position_embeddings": 12}), LATENT),
        "deepseek-v2-lite", latent=(8, 9))

    # Gemma 2: sandwich norms stored minus one, embedding times sqrt(width), caps, windows on even layers,
    # tanh GeGLU.
    g = rms(1e-6, weight="plus_one")
    gemma = dict(hidden_size=36, intermediate_size=52, num_attention_heads=4, head_dim=12,
                 max_position_embeddings=CONTEXT, rms_norm_eps=1e-6,
                 sliding_window=8, query_pre_attn_scalar=20, pad_token_id=0,
                 hidden_activation="gelu_pytorch_tanh", tie_word_embeddings=True)

    def gemma_kinds(local, full, **common):
        def one(**more):
            return block(attention(4, head_dim=12, scale=20**-0.5, **common, **more), glu("gelu_tanh", 52),
                         norm_in=g, norm_out=g)
        return {"L": one(window=8, pos=local), "G": one(pos=full)}

    toy("gemma2",
        recipe_of(36, {"tied": True, "cap": 12.0}, {"scale": "sqrt(width)"},
                  decoder=stacked(3, gemma_kinds(roped(1e4), roped(1e4), kv_heads=2, cap=3.0), "LG", g)),
        hugging_face(T.Gemma2ForCausalLM, dict(gemma, num_hidden_layers=3, num_key_value_heads=2,
                                               attn_logit_softcapping=3.0,
                                               final_logit_softcapping=12.0,
                                               rope_parameters={"rope_type": "default", "rope_theta": 1e4}),
                     GEMMA), "gemma2", plus_one=True)

    # Gemma 3: five local layers, then a full one with its own theta; QK-norm. Above 1B the full layers' RoPE
    # is scaled.
    def gemma3(name, kv, theirs, ours, preset=None):
        toy(name,
            recipe_of(36, {"tied": True}, {"scale": "sqrt(width)"},
                      decoder=stacked(7, gemma_kinds(roped(1e4), roped(1e6, **ours), kv_heads=kv,
                                                     qk_norm={"norm": g}), "LLLLLG", g)),
            hugging_face(T.Gemma3ForCausalLM,
                         dict(gemma, num_hidden_layers=7, num_key_value_heads=kv,
                              layer_types=["full_attention" if i % 6 == 5 else "sliding_attention"
                                           for i in range(7)],
                              rope_parameters={"full_attention": {"rope_theta": 1e6, **theirs},
                                               "sliding_attention": {
                                                   "rope_type": "default", "rope_theta": 1e4}}), GEMMA),
            preset, plus_one=True)

    gemma3("gemma3", 1, {"rope_type": "default"}, {}, "gemma3")
    gemma3("gemma3-4b", 2, {"rope_type": "linear", "factor": 8.0}, {"scaling": {"linear": {"factor": 8.0}}})

    # OLMo 2: norms on the branches' results only, QK-norm over the whole projection. The 32B shares
    # key heads.
    def olmo2(name, kv, preset=None):
        n = rms(1e-6)
        attn = attention(4, kv_heads=kv, head_dim=10, qk_norm={"norm": n, "span": "full"}, pos=roped(5e5))
        toy(name, recipe_of(35, None, decoder=stacked(2, block(attn, glu("silu", 50), norm_out=n),
                                                      final_norm=n)),
            hugging_face(T.Olmo2ForCausalLM,
                         dict(base, hidden_size=35, intermediate_size=50, num_key_value_heads=kv, head_dim=10,
                              rms_norm_eps=1e-6,
                              rope_parameters={"rope_type": "default", "rope_theta": 5e5}), OLMO2), preset)

    olmo2("olmo2", 4, "olmo2")
    olmo2("olmo2-32b", 2)

    # T5: scale 1, one bucket table per stack, heads * head_dim != width, decoder output times width^-0.5
    # where tied.
    n = rms(1e-6)

    def t5(name, ffn, head, preset, hf_ffn, tie, **more):
        buckets = {"bucket": {"count": 8, "max": 20}}

        def attn(**own):
            return attention(4, head_dim=7, scale=1.0, **own)
        toy(name,
            recipe_of(35, head,
                      encoder=stacked(2, block(attn(pos=buckets, mask="full"), ffn, norm_in=n), final_norm=n),
                      decoder=stacked(3, block(attn(pos=buckets), ffn, attn(), norm_in=n), final_norm=n)),
            hugging_face(T.T5ForConditionalGeneration,
                         dict(d_model=35, d_kv=7, d_ff=50, num_layers=2, num_decoder_layers=3, num_heads=4,
                              relative_attention_num_buckets=8,
                              relative_attention_max_distance=20, dropout_rate=0.0, feed_forward_proj=hf_ffn,
                              tie_word_embeddings=tie,
                              decoder_start_token_id=0), T5, untie=not tie), preset, pairs=True, **more)

    t5("t5", mlp("relu", 50), {"tied": True, "scale": 35**-0.5}, "t5", "relu", True,
       gains={"embed.tokens": 3.0, ".q.weight": 0.4})
    t5("t5-v1.1", glu("gelu_tanh", 50), None, None, "gated-gelu", False, gains={".q.weight": 0.4})

    # Marian: post-norm, sinusoids in halves, embedding times sqrt(width), swish, a bias on the logits.
    def encoder_decoder(act, layout, head, eps):
        ln = layer_norm(eps)

        def attn(**own):
            return attention(4, bias="all", **own)
        return recipe_of(36, head, {"scale": "sqrt(width)", "pos": {"sinusoid": {"layout": layout}}},
                         encoder=stacked(2, block(attn(mask="full"), mlp(act, 52, True), norm_sum=ln)),
                         decoder=stacked(2, block(attn(), mlp(act, 52, True), attn(), norm_sum=ln)))

    toy("marian", encoder_decoder("silu", "halves", {"tied": True, "bias": True}, 1e-5),
        hugging_face(T.MarianMTModel,
                     dict(d_model=36, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                          decoder_attention_heads=4,
                          encoder_ffn_dim=52, decoder_ffn_dim=52, activation_function="swish",
                          scale_embedding=True, pad_token_id=0,
                          eos_token_id=1, forced_eos_token_id=1, decoder_start_token_id=0,
                          max_position_embeddings=CONTEXT,
                          dropout=0.0), MARIAN, skip=("embed_positions",)), "marian", pairs=True)
    toy("transformer-2017", encoder_decoder("relu", "pairs", {"tied": True}, 1e-6),
        torch_2017(36, 4, (2, 2), 52), "transformer-2017", pairs=True)

    # PaLM: parallel, one LayerNorm without bias, one key head, tied, logits times width^-0.5.
    n = layer_norm(1e-6, bias=False)
    palm = block(attention(4, kv_heads=1, head_dim=10, pos=roped(1e4)), glu("silu", 50))
    toy("palm", recipe_of(34, {"tied": True, "scale": 34**-0.5},
                          decoder=stacked(2, {"parallel": True, "norm_in": n, **palm}, final_norm=n)),
        preset="palm", gains={"embed.tokens": 3.0})

    # Gopher: RMSNorm, relative positions of Transformer-XL, tied. No library has it.
    n = rms(1e-6)
    toy("gopher", recipe_of(36, {"tied": True}, decoder=stacked(
        2, block(attention(4, pos="xl"), mlp("gelu", 52), norm_in=n), final_norm=n)), preset="gopher")

    # ViT-22B: parallel encoder block, LayerNorm without bias also on queries and keys, biases on the output
    # and in the MLP.
    n = layer_norm(1e-6, bias=False)
    vit = block(attention(4, head_dim=9, mask="full", bias={"o": True}, qk_norm={"norm": n}),
                mlp("gelu", 52, True))
    toy("vit-22b", recipe_of(35, {"kind": "none"}, {"pos": "learned"},
                             encoder=stacked(2, {"parallel": True, "norm_in": n, **vit}, final_norm=n)),
        preset="vit-22b")

    # Gated attention: every place, and the variants of the paper.
    def gated(name, gate, preset=None, **attn):
        if name.startswith("qwen3"):
            r = llama_like(33, 2, 50, 1e-6, {"tied": True}, heads=4, kv_heads=2, head_dim=10, pos=roped(1e6),
                           qk_norm={"norm": rms(1e-6)}, gate=gate)
        else:
            r = llama_like(36, 2, 52, 1e-5, heads=4, kv_heads=2, head_dim=12, pos=roped(5e5),
                           gate=gate, **attn)
        toy(name, r, preset=preset, few=True)

    for family in ("llama3", "qwen3"):
        for variant, gate in {"g1": {"at": "sdpa"}, "g2": {"at": "v"}, "g3": {"at": "k"}, "g4": {"at": "q"},
                              "g5": {"at": "out"},
                              "g1-head": {"at": "sdpa", "grain": "head"},
                              "g2-head": {"at": "v", "grain": "head"},
                              "g1-shared": {"at": "sdpa", "heads": "shared"},
                              "g1-silu": {"at": "sdpa", "act": "silu"},
                              "g1-add-silu": {"at": "sdpa", "act": "silu", "op": "add"},
                              "g1-ns": {"at": "sdpa", "act": "ns_sigmoid"},
                              "g1-const": {"at": "sdpa", "from": "constant"}}.items():
            gated(f"{family}-gate-{variant}", [gate], f"{family}-gate-{variant}")
    gated("llama3-gate-many", [{"at": "q", "act": "tanh"}, {"at": "k", "grain": "head", "act": "softplus"},
                               {"at": "sdpa", "heads": "shared", "grain": "head"},
                               {"at": "out", "act": "silu", "op": "add"}],
          extra="learned_logit", window=8)

    # The shipped form of the same: Qwen3-Next's full-attention layer (norms stored minus one, half of each
    # head turned).
    n = rms(1e-6, weight="plus_one")
    toy("qwen3-next-full",
        llama_like(35, 2, 50, 1e-6, norm_more={"weight": "plus_one"}, heads=4, kv_heads=2, head_dim=12,
                   qk_norm={"norm": n},
                   pos=roped(1e4, part=0.5), gate=[{"at": "sdpa"}]),
        hugging_face(T.Qwen3NextForCausalLM,
                     dict(base, hidden_size=35, intermediate_size=50, num_key_value_heads=2, head_dim=12,
                          rms_norm_eps=1e-6,
                          layer_types=["full_attention"] * 2, mlp_only_layers=[0, 1],
                          rope_parameters={"rope_type": "default", "rope_theta": 1e4,
                                           "partial_rotary_factor": 0.5}), None, double_q=True),
        plus_one=True)

    # Qwen3-Next: three layers of four with a state, experts everywhere.
    def rule(**more):
        return {"key_heads": 2, "value_heads": 4, "key_dim": 8, **more}

    def part(**parts):
        return {"parts": [{kind: p} for kind, p in parts.items()]}

    mixed = {"experts": 6, "used": 2, **glu("silu", 20), "shared": {"width": 20, "gated": True}, "norm_in": n}
    seen = attention(4, kv_heads=2, head_dim=16, qk_norm={"norm": n}, pos=roped(1e7, part=0.25),
                     gate=[{"at": "sdpa"}], norm_in=n)
    toy("qwen3-next",
        recipe_of(35, None, decoder=stacked(4, {
            "S": part(delta={**rule(norm=rms(1e-6)), "norm_in": n}, moe={**mixed}),
            "L": part(self=seen, moe={**mixed})}, "SSSL", n)),
        hugging_face(T.Qwen3NextForCausalLM,
                     dict(base, num_hidden_layers=4, hidden_size=35, num_key_value_heads=2, head_dim=16,
                          rms_norm_eps=1e-6, layer_types=["linear_attention"] * 3 + ["full_attention"],
                          linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8,
                          linear_value_head_dim=8, num_experts=6, num_experts_per_tok=2,
                          moe_intermediate_size=20, shared_expert_intermediate_size=20,
                          norm_topk_prob=True, mlp_only_layers=[],
                          experts_implementation="eager", tie_word_embeddings=False,
                          rope_parameters={"rope_type": "default", "rope_theta": 1e7,
                                           "partial_rotary_factor": 0.25}), None, double_q=True),
        "qwen3-next", plus_one=True)

    # The same rule small and without experts. No library has it.
    n = rms(1e-6)
    dense = {**glu("silu", 40), "norm_in": n}
    toy("delta-char",
        recipe_of(36, {"tied": True}, decoder=stacked(4, {
            "S": part(delta={**rule(norm=n), "norm_in": n}, ffn={**dense}),
            "L": part(self=attention(4, head_dim=16, qk_norm={"norm": n}, pos=roped(1e4, part=0.25),
                                     gate=[{"at": "sdpa"}], norm_in=n), ffn={**dense})}, "SSSL", n)),
        preset="delta-char", gains={"embed.tokens": 1.2})

    # LFM2: short convolutions, a norm on each head of q and k, tied.
    n = rms(1e-5)
    dense, letters = {**glu("silu", 40), "norm_in": n}, "CCLCCLCCLCLCLCL"
    toy("lfm2",
        recipe_of(40, {"tied": True}, decoder=stacked(16, {
            "C": part(conv={"kernel": 3, "norm_in": n}, ffn={**dense}),
            "L": part(self=attention(4, kv_heads=2, qk_norm={"norm": n}, pos=roped(1e6), norm_in=n),
                      ffn={**dense})}, letters, n)),
        hugging_face(T.Lfm2ForCausalLM,
                     dict(base, num_hidden_layers=16, hidden_size=40, intermediate_size=40,
                          num_key_value_heads=2, norm_eps=1e-5, block_auto_adjust_ff_dim=False,
                          conv_L_cache=3, conv_bias=False,
                          layer_types=["conv" if x == "C" else "full_attention"
                                       for x in (letters + letters)[:16]],
                          tie_word_embeddings=True,
                          rope_parameters={"rope_type": "default", "rope_theta": 1e6}), None, lfm2=True),
        "lfm2", gains={"embed.tokens": 0.35})


# -------------------------------------------------------------------------------------------------- mutations
def mutations(t):
    """(what, recipe, changed weights) for everything that fits this toy and must show."""
    found = []

    def on_recipe(what, change):
        r = copy.deepcopy(t["recipe"])
        if change(r):
            found.append((what, r, {}))

    def parts(r):
        for which in ("encoder", "decoder"):
            for layer in r.get(which, {}).get("kinds", {}).values():
                yield from (part for one in layer["parts"] for part in one.values())

    def attns(r):
        return [p for p in parts(r) if "heads" in p]

    def each(of, change):
        """Applies a change where it fits; says whether it did anywhere."""
        return lambda r: any([bool(change(x)) for x in of(r)])

    def ropes(r):
        return [a["pos"]["rope"] for a in attns(r) if "rope" in a.get("pos", {})]

    def norms(r):
        places = (list(parts(r)) + [r.get("embed", {})]
                  + [l for s in ("encoder", "decoder") for l in r.get(s, {}).get("kinds", {}).values()])
        found_norms = [p[k] for p in places for k in ("norm_in", "norm_out", "norm_sum", "norm") if p.get(k)]
        found_norms += [r[s]["final_norm"] for s in ("encoder", "decoder") if r.get(s, {}).get("final_norm")]
        return found_norms + [a["qk_norm"]["norm"] for a in attns(r) if a.get("qk_norm")]

    def pop(x, key):
        return x.pop(key, None) is not None

    def put(x, key, value):
        x[key] = value
        return True

    on_recipe("RoPE layout", each(ropes, lambda x: put(
        x, "layout", "halves" if x.get("layout") == "pairs" else "pairs")))
    on_recipe("RoPE dropped", each(attns, lambda a: "rope" in a.get("pos", {}) and pop(a, "pos")))
    on_recipe("RoPE scaling dropped", each(ropes, lambda x: pop(x, "scaling")))
    on_recipe("RoPE part", each(ropes, lambda x: pop(x, "part")))
    on_recipe("scale + 2 %", each(attns, lambda a: put(
        a, "scale", 1.02 * a.get("scale", (a.get("head_dim")
                                           or t["recipe"]["width"] // a["heads"]) ** -0.5))))
    on_recipe("pre to post", each(parts, lambda p: "norm_in" in p and "norm_out" not in p
                                  and put(p, "norm_sum", p.pop("norm_in"))))
    on_recipe("post to pre", each(parts, lambda p: "norm_sum" in p and put(p, "norm_in", p.pop("norm_sum"))))
    on_recipe("in to out", each(parts, lambda p: "norm_in" in p and "norm_out" not in p
                                and put(p, "norm_out", p.pop("norm_in"))))
    on_recipe("out to in", each(parts, lambda p: "norm_out" in p and "norm_in" not in p
                                and put(p, "norm_in", p.pop("norm_out"))))
    on_recipe("sandwich to pre", each(parts, lambda p: "norm_in" in p and pop(p, "norm_out")))
    on_recipe("final norm dropped", lambda r: any([pop(r[s], "final_norm") for s in ("encoder", "decoder")
                                                   if s in r]))
    on_recipe("embedding norm dropped", lambda r: pop(r.get("embed", {}), "norm"))
    on_recipe("plus_one dropped", each(norms, lambda n: n.get("weight") == "plus_one" and pop(n, "weight")))
    on_recipe("layer to rms", each(norms, lambda n: n["kind"] == "layer" and put(n, "kind", "rms")))
    on_recipe("norm bias dropped", each(norms, lambda n: pop(n, "bias")))
    on_recipe("window + 1", each(attns, lambda a: a.get("window") and put(a, "window", a["window"] + 1)))
    on_recipe("window - 1", each(attns, lambda a: a.get("window") and put(a, "window", a["window"] - 1)))
    on_recipe("attention cap dropped", each(attns, lambda a: pop(a, "cap")))
    on_recipe("logit cap dropped", lambda r: pop(r.get("head", {}), "cap"))
    on_recipe("QK-norm dropped", each(attns, lambda a: pop(a, "qk_norm")))
    on_recipe("QK-norm after RoPE", each(attns, lambda a: a.get("qk_norm") and "rope" in a.get("pos", {})
                                         and put(a["qk_norm"], "at", "after_pos")))
    on_recipe("gate dropped", each(attns, lambda a: pop(a, "gate")))
    on_recipe("extra logit dropped", each(attns, lambda a: pop(a, "extra")))
    on_recipe("distances dropped", each(attns, lambda a: a.get("pos") == "xl" and pop(a, "pos")))
    on_recipe("buckets dropped", each(attns, lambda a: "bucket" in a.get("pos", {}) and pop(a, "pos")))
    on_recipe("embedding scale dropped", lambda r: pop(r.get("embed", {}), "scale"))
    on_recipe("sinusoid layout", lambda r: "sinusoid" in r.get("embed", {}).get("pos", "") and put(
        r["embed"]["pos"]["sinusoid"], "layout", {"pairs": "halves", "halves": "pairs"}[
            r["embed"]["pos"]["sinusoid"]["layout"]]))
    on_recipe("head transform dropped", lambda r: pop(r.get("head", {}), "transform"))
    on_recipe("activation", each(lambda r: [p for p in parts(r) if "act" in p], lambda f: put(f, "act", {
        "gelu": "gelu_tanh", "gelu_tanh": "gelu", "silu": "gelu", "relu": "silu"}[f["act"]])))

    def zero(value):
        return value * 0

    which = "decoder" if "decoder" in t["recipe"] else "encoder"
    first = next(kind for kind in ({k: v for one in layer["parts"] for k, v in one.items()}
                                   for layer in t["recipe"][which]["kinds"].values()) if "self" in kind)
    attn = first["self"]
    heads, kv = attn["heads"], attn.get("kv_heads") or attn["heads"]
    for x in biases(attn):
        if x != "k" or "rope" in attn.get("pos", {}):  # plain softmax attention does not see the key's bias
            found.append((x + " bias zero", t["recipe"], {f"{which}.0.self.{x}.bias": zero}))
    def routers(r):
        return [p for p in parts(r) if "experts" in p]

    on_recipe("one expert less", each(routers, lambda m: put(m, "used", m["used"] - 1)))
    on_recipe("renormalise", each(routers, lambda m: put(m, "router", {
        "renormalise": not m.get("router", {}).get("renormalise", True)})))
    rules = lambda r: [p for p in parts(r) if "key_heads" in p]  # noqa: E731
    for weight, what in (("a_log", "rates"), ("dt_bias", "shifts of rates")):
        if rules(t["recipe"]):
            found.append((what, t["recipe"], {f"{which}.0.delta.{weight}": lambda value: value + 0.1}))
    if rules(t["recipe"]):
        found.append(("rows of a convolution in reverse", t["recipe"], {
            f"{which}.0.delta.v_conv": lambda value: value.flip(1)}))
    if any("kernel" in p for p in parts(t["recipe"])):
        found.append(("rows in reverse", t["recipe"], {f"{which}.0.conv.mix": lambda value: value.flip(1)}))
    on_recipe("shared expert dropped", each(routers, lambda m: pop(m, "shared")))
    on_recipe("shared expert's gate dropped",
              each(routers, lambda m: "shared" in m and pop(m["shared"], "gated")))
    if first.get("ffn", {}).get("bias"):
        found.append(("up bias zero", t["recipe"], {f"{which}.0.ffn.up.bias": zero}))
    if t["recipe"].get("head", {}).get("bias"):
        found.append(("head bias zero", t["recipe"], {"head.bias": zero}))
    letters = t["recipe"][which].get("pattern", "L")
    at = next(i for i, x in enumerate(letters)
              if any("self" in one for one in t["recipe"][which]["kinds"][x]["parts"]))
    if 1 < kv < heads:
        def swap(value):
            return value.reshape(kv, -1, value.shape[1]).flip(0).reshape(value.shape)
        found.append(("key heads in reverse", t["recipe"],
                      {f"{which}.{at}.self.{x}.weight": swap for x in "kv"}))
    return found


# ------------------------------------------------------------------------------------------- making the files
def tokens_for(t):
    """Sequences of several lengths; sources of other lengths for encoder-decoders."""
    def ids(name, length, below):
        return [int(x) for x in np.floor((draws(name, length) + 1) / 2 * below)]
    sequences = [ids(f"{t['name']} tokens {i}", n, VOCAB) for i, n in enumerate(LENGTHS)]
    types = [ids(f"{t['name']} types {i}", n, 2) for i, n in enumerate(LENGTHS)] if t.get("types") else None
    sources = ([ids(f"{t['name']} source {i}", n, VOCAB) for i, n in enumerate((11, 22, 5, 1))]
               if t.get("pairs") else None)
    return sequences, types, sources


def run(t, forward):
    sequences, types, sources = tokens_for(t)
    return [forward(s, types[i] if types else None, sources[i] if sources else None)
            for i, s in enumerate(sequences)]


def apart(a, b):
    return max(float((x - y).abs().max()) for x, y in zip(a, b))


def make(t):
    name, recipe, reference = t["name"], t["recipe"], t["reference"]
    w = Weights(t)
    expected = mine = run(t, lambda *s: plain(recipe, w, *s))
    f32 = gap = 0.0
    if reference:
        other = Weights(t)
        with doubles():
            expected = run(t, lambda *s: reference(other, *s))
        single = run(t, lambda *s: reference(other, *s))
        assert single[0].dtype == torch.float32 and expected[0].dtype == torch.float64
        f32, gap = apart([x.double() for x in single], expected), apart(mine, expected)
        assert f32 <= 2e-5, f"{name}: float32 and float64 differ by {f32}"
        assert gap <= 1e-9, f"{name}: the recipe read plainly and {reference.source} differ by {gap}"
        # A reference that has no such tensor may leave out nothing: both read the same weights.
        assert other.shapes == {k: v for k, v in w.shapes.items()
                                if k in other.shapes}, f"{name}: shapes differ"
        missing = set(w.shapes) - set(other.shapes)
        assert not missing, f"{name}: the reference does not read {missing}"
        assert set(other.shapes) <= set(
            w.shapes), f"{name}: the recipe does not read {set(other.shapes) - set(w.shapes)}"
    spread = float(torch.cat(expected).std())
    chosen = [[n - 1] if t.get("few") and n < 20
              else sorted({0, 1, n // 3, n // 2, n - 2, n - 1} & set(range(n))) for n in LENGTHS]
    stored = [y[rows] for y, rows in zip(expected, chosen)]
    assert spread >= 1, f"{name}: the logits' standard deviation is {spread}"
    weakest = (math.inf, "")
    for what, changed_recipe, changed in mutations(t):
        other = Weights(t, changed)
        got = run(t, lambda *s: plain(changed_recipe, other, *s))
        moved = apart([y[rows] for y, rows in zip(got, chosen)], stored)
        weakest = min(weakest, (moved, what))
        assert moved > 1e-3, f"{name}: mutation '{what}' moves the result by {moved} only"

    sequences, types, sources = tokens_for(t)
    file = {"name": name, "source": reference.source if reference else "plain forward of make_goldens.py"}
    if t["preset"]:
        file["preset"] = t["preset"]
    file |= {"recipe": recipe, "gains": t.get("gains", {}), "plus_one": t.get("plus_one", False),
             "parameters": sum(r * c for r, c in w.shapes.values()), "sequences": sequences}
    if sources:
        file["source_sequences"] = sources
    if types:
        file["types"] = types
    file["rows"] = chosen
    lines = [f" {json.dumps(k)}: {json.dumps(v)}" for k, v in file.items()]
    per_sequence = []
    for y in stored:
        per_sequence.append("  [" + ",\n   ".join(",".join(f"{v:.7g}" for v in row) for row in y.tolist()) +
                            "]")
    text = "{\n" + ",\n".join(lines) + ',\n "logits": [\n' + ",\n".join(per_sequence) + "]\n}\n"
    assert json.loads(text)["recipe"] == recipe
    path = HERE / f"{name}.json"
    path.write_text(text)
    print(
        f"{name:28} {len(text):6} bytes  std {spread:5.2f}  f32 {f32:7.1e}  plain {gap:7.1e}  "
        f"{len(mutations(t)):2} mutations, "
          f"weakest {weakest[0]:.3f} ({weakest[1]})")
    return len(text)


def main():
    torch.set_num_threads(1)
    define()
    names = sys.argv[1:]
    if names[:1] == ["--names"]:
        w = Weights(TOYS[names[1]])
        run(TOYS[names[1]], lambda *s: plain(TOYS[names[1]]["recipe"], w, *s))
        print("\n".join(f"{k} [{r}, {c}]" for k, (r, c) in w.shapes.items()))
        return
    total = sum(make(TOYS[n]) for n in names or TOYS)
    print(f"{total} bytes in all")


if __name__ == "__main__":
    main()
