# SPDX-License-Identifier: Apache-2.0
"""What TransformerLens (transformer_lens 4, its TransformerBridge) says of two toys of families/.

    python make_attribution.py              writes use/attribution.json

Edits of attention patterns and scores (hooks; the last row of the logits is stored), direct logit attribution
(decompose_resid and stack_head_results through the frozen scale of the final norm, weights folded by its
compatibility mode), activation patching sweeps (transformer_lens.patching), and gradients (backward hooks).
The toys' weights come from their tensors' names (README.md). tests/attribution_test.cc compares.
"""
import functools
import json
import os
import pathlib
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["WANDB_MODE"] = "disabled"

import torch
import transformers
import transformer_lens
from transformer_lens import TransformerBridge, patching

import make_families as F

HERE = pathlib.Path(__file__).parent
LENGTH, L = 9, 1  # tokens; the layer whose attention is edited
RIGHT, WRONG = 7, 40  # of the logit difference


def words(folder):
    """TransformerLens wants a tokenizer (it reads it twice, from its folder); token ids are given here."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    t = Tokenizer(models.WordLevel({f"<{i}>": i for i in range(F.VOCAB)}, unk_token="<0>"))
    t.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    transformers.PreTrainedTokenizerFast(tokenizer_object=t, pad_token="<0>", bos_token="<1>",
                                         eos_token="<2>").save_pretrained(folder)
    return transformers.AutoTokenizer.from_pretrained(folder)


def bridge(t, folder):
    model = F.load(t, folder)
    lens = TransformerBridge.boot_transformers(str(folder), hf_model=model, tokenizer=words(folder),
                                               device="cpu")
    lens.eval()
    return lens


def number(v):
    return float(f"{float(v):.7g}")


def numbers(x):
    return [numbers(y) for y in x] if isinstance(x, list) else number(x)


def hook(name):
    return f"blocks.{L}.attn.hook_{name}"


def edits(lens, tokens, other):
    """(text, hooks): =other stands for the same point of another text."""
    _, clean = lens.run_with_cache(torch.tensor([other]))

    def zero(x, hook):
        x[:, 3, -1, 0] = 0
        return x

    def double(x, hook):
        x[:, 0] = x[:, 0] * 2
        return x

    def freeze(x, hook):
        x[:, 2] = clean[hook.name][:, 2]
        return x

    def freeze_all(x, hook):
        return clean[hook.name].clone()

    def half(x, hook):
        x[:, 1, 4, 2:5] = 0.25
        return x

    def masked(x, hook):
        x[:, 3, -1, 0] = -torch.inf
        return x

    def blind(x, hook):  # nobody but position 0 sees the first token
        x[:, :, 1:, 0] = -torch.inf
        return x

    def raised(x, hook):
        x[:, 1, 5:9, 3] += 1.5
        return x

    def flat(x, hook):
        x[:, 2, -1, :] = 0
        return x

    return [
        (f"attn_weights.{L}@3@-1@k0:zero", hook("pattern"), zero),
        (f"attn_weights.{L}@h0:scale=2", hook("pattern"), double),
        (f"attn_weights.{L}@h2:replace=other", hook("pattern"), freeze),
        (f"blocks.{L}.attn.hook_pattern:replace=other", hook("pattern"), freeze_all),
        (f"attn_weights.{L}@1@4@k2..4:replace=0.25", hook("pattern"), half),
        (f"attn_scores.{L}@3@-1@k0:mask", hook("attn_scores"), masked),
        (f"attn_scores.{L}@p1..8@k0:mask", hook("attn_scores"), blind),
        (f"attn_scores.{L}@1@5..8@k3:add=1.5", hook("attn_scores"), raised),
        (f"attn_scores.{L}@2@-1:zero", hook("attn_scores"), flat),
    ]


def metric(logits):
    return logits[0, -1, RIGHT] - logits[0, -1, WRONG]


def sweeps(lens, clean_ids, corrupted_ids):
    clean_logits, clean = lens.run_with_cache(torch.tensor([clean_ids]))
    corrupted = torch.tensor([corrupted_ids])
    found = {"clean": number(metric(clean_logits)), "corrupted": number(metric(lens(corrupted)))}
    for name, sweep in (("resid_pre", patching.get_act_patch_resid_pre),
                        ("attn_out", patching.get_act_patch_attn_out),
                        ("ffn_out", patching.get_act_patch_mlp_out),
                        ("heads", patching.get_act_patch_attn_head_out_all_pos)):
        found[name] = numbers(sweep(lens, corrupted, clean, metric).tolist())
    return found


def gradients(lens, tokens):
    """d (logit difference of the last row) / d activation, as shape, sum of squares and some numbers."""
    names = [("resid_pre.0", "blocks.0.hook_resid_pre"), (f"z.{L}", hook("z")), (f"q.{L}", hook("q")),
             (f"attn_out.{L}", f"blocks.{L}.hook_attn_out"), (f"mlp_out.{L}", f"blocks.{L}.hook_mlp_out"),
             (f"resid_post.{L}", f"blocks.{L}.hook_resid_post")]
    found = {}

    def keep(name, grad, hook):
        found[name] = grad[0] if isinstance(grad, tuple) else grad

    with lens.hooks(bwd_hooks=[(h, functools.partial(keep, n)) for n, h in names]):
        metric(lens(torch.tensor([tokens]))).backward()
    out = []
    for name, _ in names:
        g = found[name][0]
        flat = g.reshape(-1)
        at = [int((i + 0.5) * flat.numel() / 8) for i in range(8)]
        out.append({"point": name, "shape": list(g.shape), "squares": number((flat * flat).sum()), "at": at,
                    "values": [number(flat[i]) for i in at]})
    return out


def attribution(t, folder, tokens):
    """Parts of the logit difference at the last position: embeddings, attention and feed-forward, heads."""
    lens = bridge(t, folder)
    lens.enable_compatibility_mode(disable_warnings=True, center_writing_weights=False, center_unembed=False,
                                   fold_value_biases=False)
    logits, cache = lens.run_with_cache(torch.tensor([tokens]))
    W = lens.unembed.W_U if hasattr(lens.unembed, "W_U") else lens.W_U
    way = W[:, RIGHT] - W[:, WRONG]
    stack, labels = cache.decompose_resid(layer=-1, pos_slice=-1, return_labels=True)
    scaled = cache.apply_ln_to_stack(stack, layer=-1, pos_slice=-1)
    heads, head_labels = cache.stack_head_results(layer=-1, pos_slice=-1, return_labels=True)
    scaled_heads = cache.apply_ln_to_stack(heads, layer=-1, pos_slice=-1)
    found = {"logit": number(metric(logits)),
             "parts": {n: number(x[0] @ way) for n, x in zip(labels, scaled)},
             "heads": {n: number(x[0] @ way) for n, x in zip(head_labels, scaled_heads)}}
    return found


def main():
    torch.set_num_threads(1)
    F.define()
    cases = []
    for name in ("gpt2", "llama3.1"):
        t = F.TOYS[name]
        with tempfile.TemporaryDirectory() as temp:
            folder = pathlib.Path(temp) / name
            folder.mkdir()
            F.make_folder(t, folder)
            tokens, other = F.ids(f"{name} lens", LENGTH), F.ids(f"{name} lens other", LENGTH)
            lens = bridge(t, folder)
            with torch.no_grad():
                plain = lens(torch.tensor([tokens]))[0, -1]
                case = {"toy": name, "tokens": tokens, "other": other, "right": RIGHT, "wrong": WRONG,
                        "edits": []}
                for text, where, change in edits(lens, tokens, other):
                    got = lens.run_with_hooks(torch.tensor([tokens]), fwd_hooks=[(where, change)])[0, -1]
                    moved = float((got - plain).abs().max())
                    assert moved > 1e-3, f"{name}: {text} moves the last row by {moved} only"
                    case["edits"].append({"edit": text, "logits": numbers(got.tolist())})
                case["patching"] = sweeps(lens, other, tokens)
            case["gradients"] = gradients(lens, tokens)
            with torch.no_grad():
                case["attribution"] = attribution(t, folder, tokens)
            cases.append(case)
    lines = []
    for c in cases:
        lines.append(" {\n" + ",\n".join(
            f'  "{k}": ' + (json.dumps(v) if k not in ("edits", "gradients") else "[\n   " +
                            ",\n   ".join(json.dumps(x, separators=(",", ":")) for x in v) + "]")
            for k, v in c.items()) + "}")
    source = f"transformer_lens {transformer_lens_version()}, transformers {transformers.__version__}"
    text = f'{{"source": "{source}", "cases": [\n' + ",\n".join(lines) + "]}\n"
    (HERE / "use" / "attribution.json").write_text(text)
    print(len(text), "bytes")


def transformer_lens_version():
    import importlib.metadata
    return importlib.metadata.version("transformer_lens")


if __name__ == "__main__":
    main()
