# SPDX-License-Identifier: Apache-2.0
"""Tensors inside the toys of families/, as transformers computes them in float64: forward hooks on its
modules, and the inputs of its softmax.

    python make_inside.py            writes use/inside.json

Of every tensor its shape, its sum, the sum of its magnitudes and some values; of hidden scores (masked keys)
nothing. `lens` is the name TransformerLens has for the same tensor, where it has one. Edits are hooks that
change what a module reads or gives; the last row of the logits is stored. tests/inside_test.cc compares.
"""
import json
import pathlib
import sys
import tempfile

import numpy as np
import torch
import transformers as T

import make_families as F

HERE = pathlib.Path(__file__).parent
LENGTH, SAMPLES, L = 9, 5, 1  # tokens, values stored of a tensor, the layer looked at


class Watch:
    """Everything one pass shows: inputs and outputs of modules by name, softmax inputs and outputs, rotated
    queries and keys in order."""

    def __init__(self, model, edits=()):
        self.model, self.edits = model, dict(edits)
        self.into, self.out, self.softmax, self.rotated = {}, {}, [], []

    def run(self, tokens, source):
        handles = []
        for name, module in self.model.named_modules():
            handles.append(module.register_forward_pre_hook(lambda m, a, k, n=name: self.before(n, a, k),
                                                            with_kwargs=True))
            handles.append(module.register_forward_hook(lambda m, a, k, y, n=name: self.after(n, y),
                                                        with_kwargs=True))
        code = sys.modules[type(self.model).__module__]
        softmax, rotate = torch.nn.functional.softmax, getattr(code, "apply_rotary_pos_emb", None)

        def seen_softmax(x, *args, **more):
            y = softmax(x, *args, **more)
            self.softmax.append((x[0], y[0]))
            return y

        def seen_rotate(*args, **more):
            q, k = rotate(*args, **more)
            self.rotated.append((q[0].transpose(0, 1), k[0].transpose(0, 1)))
            return q, k

        torch.nn.functional.softmax = seen_softmax
        if rotate:
            code.apply_rotary_pos_emb = seen_rotate
        try:
            return F.result(self.model, tokens, None, source)
        finally:
            torch.nn.functional.softmax = softmax
            if rotate:
                code.apply_rotary_pos_emb = rotate
            for h in handles:
                h.remove()

    def before(self, name, args, more):
        if ("in", name) in self.edits:
            args = (self.edits["in", name](args[0][0])[None],) + args[1:]
        x = args[0] if args else more.get("hidden_states", more.get("input_ids"))
        if torch.is_tensor(x):
            self.into[name] = x[0]
        return args, more

    def after(self, name, y):
        first = y[0] if isinstance(y, tuple) else y
        if ("out", name) in self.edits:
            first = self.edits["out", name](first[0])[None]
            y = (first,) + y[1:] if isinstance(y, tuple) else first
        if torch.is_tensor(first):
            self.out[name] = first[0]
        return y


def heads(x, d):
    return x.reshape(x.shape[0], -1, d)


def gpt2(w, c):
    p, d, C = f"transformer.h.{L}.", c.n_embd // c.n_head, c.n_embd
    qkv = w.out[p + "attn.c_attn"]
    x, m = w.into[p + "ln_1"], w.into[p + "ln_2"]
    return {
        "embeddings hook_embed": w.out["transformer.wte"],
        "pos_embeddings hook_pos_embed": w.out["transformer.wpe"],
        "full_embeddings": w.into["transformer.h.0"],
        f"resid_pre.{L} blocks.{L}.hook_resid_pre": w.into[f"transformer.h.{L}"],
        f"attn_normalized.{L} blocks.{L}.ln1.hook_normalized": centred(x, 1e-5),
        f"attn_norm_scale.{L} blocks.{L}.ln1.hook_scale": scale_of(x, 1e-5, True),
        f"attn_in.{L} blocks.{L}.attn.hook_in": w.out[p + "ln_1"],
        **{f"{n}.{L} blocks.{L}.attn.hook_{h}": heads(qkv[:, i * C:(i + 1) * C], d)
           for i, (n, h) in enumerate([("q", "q"), ("k", "k"), ("value", "v")])},
        f"attn_scores.{L} blocks.{L}.attn.hook_attn_scores": w.softmax[L][0],
        f"attn_weights.{L} pattern{L}": w.softmax[L][1],
        f"z.{L} blocks.{L}.attn.hook_z": heads(w.into[p + "attn.c_proj"], d),
        f"attn_out.{L} blocks.{L}.attn.hook_out": w.out[p + "attn.c_proj"],
        f"attn_out_post.{L} blocks.{L}.hook_attn_out": w.out[p + "attn.c_proj"],
        f"resid_mid.{L} blocks.{L}.hook_resid_mid": m,
        f"mlp_normalized.{L} normalized{L}ln2": centred(m, 1e-5),
        f"mlp_in.{L} blocks.{L}.mlp.hook_in": w.out[p + "ln_2"],
        f"mlp_pre.{L} blocks.{L}.mlp.hook_pre": w.out[p + "mlp.c_fc"],
        f"mlp_act.{L} blocks.{L}.mlp.hook_post": w.into[p + "mlp.c_proj"],
        f"mlp_out.{L} blocks.{L}.hook_mlp_out": w.out[p + "mlp"],
        f"resid_post.{L} blocks.{L}.hook_resid_post": w.out[f"transformer.h.{L}"],
        "resid_post.-1 blocks.-1.hook_resid_post": w.into["transformer.ln_f"],
        "final_norm ln_final.hook_out": w.out["transformer.ln_f"],
        "final_normalized ln_final.hook_normalized": centred(w.into["transformer.ln_f"], 1e-5),
        "lm_head unembed.hook_out": w.out["lm_head"], "logits": w.out["lm_head"],
    }


def scale_of(x, eps, layer):
    x = x - x.mean(-1, keepdim=True) if layer else x
    return ((x * x).mean(-1, keepdim=True) + eps).sqrt()


def centred(x, eps):
    return (x - x.mean(-1, keepdim=True)) / scale_of(x, eps, True)


def llama(w, c):
    """Llama and its relatives: with QK-norm, with a norm on each side."""
    p, d, eps = f"model.layers.{L}.", c.head_dim, c.rms_norm_eps
    sandwich = p + "pre_feedforward_layernorm" in w.out
    before_mlp = p + ("pre_feedforward_layernorm" if sandwich else "post_attention_layernorm")
    x = w.into[p + "input_layernorm"]
    found = {
        "embeddings embed.hook_out": w.into["model.layers.0"],  # Gemma multiplies them behind its table
        f"resid_pre.{L} blocks.{L}.hook_in": w.into[p[:-1]],
        f"attn_normalized.{L} blocks.{L}.ln1.hook_normalized": x / scale_of(x, eps, False),
        f"attn_norm_scale.{L} scale{L}ln1": scale_of(x, eps, False),
        f"attn_in.{L} blocks.{L}.ln1.hook_out": w.out[p + "input_layernorm"],
        f"q.{L} blocks.{L}.attn.hook_q": heads(w.out[p + "self_attn.q_proj"], d),
        f"k.{L} k{L}": heads(w.out[p + "self_attn.k_proj"], d),
        f"value.{L} v{L}": heads(w.out[p + "self_attn.v_proj"], d),
        f"rot_q.{L} blocks.{L}.attn.hook_rot_q": w.rotated[L][0],
        f"rot_k.{L} blocks.{L}.attn.hook_rot_k": w.rotated[L][1],
        f"attn_scores.{L} blocks.{L}.attn.hook_attn_scores": w.softmax[L][0],
        f"attn_weights.{L} blocks.{L}.attn.hook_pattern": w.softmax[L][1],
        f"z.{L} z{L}": heads(w.into[p + "self_attn.o_proj"], d),
        f"attn_out.{L} blocks.{L}.attn.hook_out": w.out[p + "self_attn.o_proj"],
        f"attn_out_post.{L} blocks.{L}.hook_attn_out": w.out[
            p + ("post_attention_layernorm" if sandwich else "self_attn.o_proj")],
        f"resid_mid.{L} blocks.{L}.hook_resid_mid": w.into[before_mlp],
        f"mlp_in.{L} blocks.{L}.mlp.hook_in": w.out[before_mlp],
        f"mlp_pre.{L} blocks.{L}.mlp.hook_pre": w.out[p + "mlp.gate_proj"],
        f"mlp_pre_linear.{L} blocks.{L}.mlp.hook_pre_linear": w.out[p + "mlp.up_proj"],
        f"mlp_act.{L} blocks.{L}.mlp.hook_post": w.into[p + "mlp.down_proj"],
        f"mlp_out.{L} blocks.{L}.mlp.hook_out": w.out[p + "mlp"],
        f"mlp_out_post.{L} blocks.{L}.hook_mlp_out": w.out[p +
                                                           ("post_feedforward_layernorm"
                                                            if sandwich else "mlp")],
        f"resid_post.{L} blocks.{L}.hook_out": w.out[p[:-1]],
        "final_norm ln_final.hook_out": w.out["model.norm"],
        "lm_head unembed.hook_out": w.out["lm_head"],
    }
    if p + "self_attn.q_norm" in w.out:
        for x in "qk":
            found[f"{x}_norm_in.{L} blocks.{L}.attn.{x}_norm.hook_in"] = heads(
                w.out[p + f"self_attn.{x}_proj"], d)
            found[f"{x}_norm_out.{L} blocks.{L}.attn.{x}_norm.hook_out"] = w.out[p + f"self_attn.{x}_norm"]
    return found


def bert(w, c):
    p, d = f"bert.encoder.layer.{L}.", c.hidden_size // c.num_attention_heads
    return {
        "embeddings hook_embed": w.out["bert.embeddings.word_embeddings"],
        "pos_embeddings hook_pos_embed": w.out["bert.embeddings.position_embeddings"],
        "full_embeddings hook_full_embed": w.out["bert.embeddings"],
        f"resid_pre.{L} blocks.{L}.hook_resid_pre": w.into[p[:-1]],
        f"attn_in.{L} blocks.{L}.attn.hook_in": w.into[p + "attention.self.query"],
        **{f"{n}.{L} blocks.{L}.attn.hook_{n[0]}": heads(w.out[p + "attention.self." + m], d)
           for n, m in (("q", "query"), ("k", "key"), ("value", "value"))},
        f"attn_scores.{L}": w.softmax[L][0],
        f"attn_weights.{L} blocks.{L}.attn.hook_pattern": w.softmax[L][1],
        f"z.{L} blocks.{L}.attn.hook_z": heads(w.out[p + "attention.self"], d),
        f"attn_out.{L} blocks.{L}.hook_attn_out": w.out[p + "attention.output.dense"],
        f"resid_mid_sum.{L} blocks.{L}.ln1.hook_in": w.into[p + "attention.output.LayerNorm"],
        f"attn_normalized.{L} blocks.{L}.ln1.hook_normalized": centred(
            w.into[p + "attention.output.LayerNorm"], c.layer_norm_eps),
        f"resid_mid.{L} blocks.{L}.ln1.hook_out": w.out[p + "attention.output.LayerNorm"],
        f"mlp_in.{L} blocks.{L}.mlp.hook_in": w.into[p + "intermediate.dense"],
        f"mlp_pre.{L} blocks.{L}.mlp.in.hook_out": w.out[p + "intermediate.dense"],
        f"mlp_act.{L} post{L}": w.into[p + "output.dense"],
        f"mlp_out.{L} blocks.{L}.hook_mlp_out": w.out[p + "output.dense"],
        f"resid_post_sum.{L} blocks.{L}.ln2.hook_in": w.into[p + "output.LayerNorm"],
        f"resid_post.{L} blocks.{L}.hook_normalized_resid_post": w.out[p[:-1]],
        "lm_head unembed.hook_out": w.out["cls.predictions.decoder"],
    }


def t5(w, c):
    # The decoder's softmaxes: self, cross, self, cross.
    d, found, order = c.d_kv, {}, {"encoder": L, "decoder": c.num_layers + 2 * L}
    for stack in order:
        p, cross = f"{stack}.block.{L}.", stack == "decoder"
        ffn = p + f"layer.{2 if cross else 1}."
        found |= {
            f"{stack}.embeddings": w.out["shared" if "shared" in w.out else stack + ".embed_tokens"]
            if not cross else w.into["decoder.block.0"],
            f"{stack}.resid_pre.{L} {stack}.{L}.hook_resid_pre": w.into[p + "layer.0"],
            f"{stack}.attn_in.{L} {stack}.{L}.attn.hook_in": w.out[p + "layer.0.layer_norm"],
            f"{stack}.q.{L} {stack}.{L}.attn.hook_q": heads(w.out[p + "layer.0.SelfAttention.q"], d),
            f"{stack}.attn_scores.{L} {stack}.{L}.attn.hook_attn_scores": w.softmax[order[stack]][0],
            f"{stack}.attn_weights.{L} {stack}_blocks.{L}.attn.hook_pattern": w.softmax[order[stack]][1],
            f"{stack}.z.{L} {stack}.{L}.attn.hook_z": heads(w.into[p + "layer.0.SelfAttention.o"], d),
            f"{stack}.attn_out.{L} {stack}.{L}.hook_attn_out": w.out[p + "layer.0.SelfAttention.o"],
            f"{stack}.resid_mid.{L} {stack}.{L}.hook_resid_mid": w.into[p + "layer.1"],
            f"{stack}.mlp_in.{L} {stack}.{L}.ln{3 if cross else 2}.hook_out": w.out[ffn + "layer_norm"],
            f"{stack}.mlp_pre.{L} {stack}.{L}.mlp.hook_pre": w.out[ffn + "DenseReluDense.wi"],
            f"{stack}.mlp_out.{L} {stack}.{L}.hook_mlp_out": w.out[ffn + "DenseReluDense.wo"],
            f"{stack}.resid_post.{L} {stack}.{L}.hook_resid_post": w.out[p[:-1]],
            f"{stack}.final_norm": w.out[stack + ".final_layer_norm"],
        }
    p = f"decoder.block.{L}.layer.1."
    return found | {
        f"decoder.cross_attn_in.{L} decoder.{L}.cross_attn.hook_in": w.out[p + "layer_norm"],
        f"decoder.cross_q.{L} decoder.{L}.cross_attn.hook_q": heads(w.out[p + "EncDecAttention.q"], d),
        f"decoder.cross_k.{L} decoder.{L}.cross_attn.hook_k": heads(w.out[p + "EncDecAttention.k"], d),
        f"decoder.cross_value.{L} decoder.{L}.cross_attn.hook_v": heads(w.out[p + "EncDecAttention.v"], d),
        f"decoder.cross_attn_scores.{L}": w.softmax[order["decoder"] + 1][0],
        f"decoder.cross_attn_weights.{L} decoder.{L}.cross_attn.hook_pattern": w.softmax[
            order["decoder"] + 1][1],
        f"decoder.cross_z.{L} decoder.{L}.cross_attn.hook_z": heads(w.into[p + "EncDecAttention.o"], d),
        f"decoder.cross_attn_out.{L} decoder.{L}.hook_cross_attn_out": w.out[p + "EncDecAttention.o"],
        f"decoder.resid_mid_cross.{L} decoder.{L}.hook_resid_mid_cross": w.into[f"decoder.block.{L}.layer.2"],
        "lm_head unembed.hook_out": w.out["lm_head"],
    }


# Where an edit bites: (prefix of names, module whose input is z, module that gives attn_out, the layer's
# module, head size).
def places(name, c):
    if name == "gpt2":
        return ("", "transformer.h.{}.attn.c_proj", "transformer.h.{}.attn.c_proj", "transformer.h.{}",
                c.n_embd // c.n_head)
    if name == "bert":
        return ("", "bert.encoder.layer.{}.attention.output.dense",
                "bert.encoder.layer.{}.attention.output.dense", "bert.encoder.layer.{}", 9)
    if name == "t5":
        o = "decoder.block.{}.layer.0.SelfAttention.o"
        return "decoder.", o, o, "decoder.block.{}", c.d_kv
    return ("", "model.layers.{}.self_attn.o_proj", "model.layers.{}.self_attn.o_proj", "model.layers.{}",
            c.head_dim)


def edits(name, c, other):
    """(text, hooks) of each edit; `other` is a watched pass over another text."""
    stack, z, out, layer, d = places(name, c)

    def slice_of(x, head, change):
        y = x.clone()
        y[:, head * d:(head + 1) * d] = change(x[:, head * d:(head + 1) * d])
        return y

    def row(x, i, value):
        y = x.clone()
        y[i] = value
        return y

    width = other.out[layer.format(0)].shape[-1]
    way = torch.from_numpy(F.draws("direction", width).astype(np.float32)).double()
    return [
        (f"{stack}z.1@2:zero", {("in", z.format(1)): lambda x: slice_of(x, 2, lambda v: v * 0)}),
        (f"{stack}z.0@h1:mean",
         {("in", z.format(0)): lambda x: slice_of(x, 1, lambda v: v.mean(0, keepdim=True).expand_as(v))}),
        (f"{stack}resid_post.0@-1:scale=0.5", {("out", layer.format(0)): lambda x: row(x, -1, 0.5 * x[-1])}),
        (f"{stack}z.0@h0@p3:add=0.25",
         {("in", z.format(0)): lambda x: row(x, 3, slice_of(x, 0, lambda v: v + 0.25)[3])}),
        (f"{stack}attn_out.0@4:replace=other",
         {("out", out.format(0)): lambda x: row(x, 4, other.out[out.format(0)][4])}),
        (f"{stack}resid_post.0:project_out=direction", {("out", layer.format(0)): lambda x: x -
                                                        (x @ way)[:, None] / (way @ way) * way}),
    ]


def stored(name, x):
    seen = x > -1e30
    flat, places_seen = x.reshape(-1), seen.reshape(-1).nonzero()[:, 0]
    at = sorted({int(places_seen[int((i + 0.5) * len(places_seen) / SAMPLES)]) for i in range(SAMPLES)})
    values = flat[places_seen]
    number = lambda v: float(f"{float(v):.7g}")
    words = name.split()
    return {"name": words[0], **({"lens": words[1]} if len(words) > 1 else {}), "shape": list(x.shape),
            "sum": number(values.sum()),
            "magnitude": number(values.abs().sum()), "at": at, "values": [number(flat[i]) for i in at]}


def main():
    torch.set_num_threads(1)
    F.define()
    cases = []
    for name, points in (("gpt2", gpt2), ("llama3.1", llama), ("bert", bert), ("t5", t5), ("gemma2", llama),
                         ("qwen3", llama)):
        t = F.TOYS[name]
        with tempfile.TemporaryDirectory() as temp:
            folder = pathlib.Path(temp) / name
            folder.mkdir()
            tensors = F.make_folder(t, folder)
            with F.doubles():
                model = F.load_double(t, folder, tensors)
                tokens, other_tokens = F.ids(f"{name} inside", LENGTH), F.ids(f"{name} inside other", LENGTH)
                source = F.ids(f"{name} inside source", LENGTH + 2) if name == "t5" else None
                watch, other = Watch(model), Watch(model)
                logits = watch.run(tokens, source)
                other.run(other_tokens, source)
                case = {"toy": name, "tokens": tokens, "other": other_tokens, "source": source or [],
                        "points": [stored(n, x) for n, x in points(watch, model.config).items()], "edits": []}
                for text, hooks in edits(name, model.config, other):
                    changed = Watch(model, hooks).run(tokens, source)
                    moved = float((changed[-1] - logits[-1]).abs().max())
                    assert moved > 1e-3, f"{name}: {text} moves the last row by {moved} only"
                    case["edits"].append({"edit": text,
                                          "logits": [float(f"{v:.7g}") for v in changed[-1].tolist()]})
                cases.append(case)
    parts = []
    for c in cases:
        lines = [f'  "{k}": ' + (json.dumps(v) if k not in ("points", "edits") else "[\n   " +
                                 ",\n   ".join(json.dumps(x, separators=(",", ":")) for x in v) + "]")
                 for k, v in c.items()]
        parts.append(" {\n" + ",\n".join(lines) + "}")
    text = f'{{"source": "transformers {T.__version__}", "cases": [\n' + ",\n".join(parts) + "]}\n"
    (HERE / "use" / "inside.json").write_text(text)
    print(len(text), "bytes")


if __name__ == "__main__":
    main()
