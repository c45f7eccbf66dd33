# SPDX-License-Identifier: Apache-2.0
"""What TransformerLens (transformer_lens 4, its TransformerBridge) caches of six toys of families/, and what
its hooks make of them.

    python make_hooks.py              writes use/hooks.json

Of every tensor of layer 1 and outside the layers its shape, its sum, the sum of its magnitudes and some
values; of hidden scores (masked keys) nothing. Hooks change values by functions that
tests/python/test_hooks.py has, too; the last row of the logits is stored. The toys' weights come from their
tensors' names (README.md).
"""
import json
import os
import pathlib
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["WANDB_MODE"] = "disabled"

import numpy as np
import torch
import transformers
from transformer_lens import TransformerBridge

import make_families as F

HERE = pathlib.Path(__file__).parent
TOYS = ("gpt2", "llama3.1", "gemma", "qwen3", "gpt-neox", "bert")
LENGTH, SAMPLES, L = 9, 5, 1  # tokens, values stored of a tensor, the layer looked at


def words(folder):
    """TransformerLens wants a tokenizer (it reads it twice, from its folder); token ids are given here."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    t = Tokenizer(models.WordLevel({f"<{i}>": i for i in range(F.VOCAB)}, unk_token="<0>"))
    t.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    transformers.PreTrainedTokenizerFast(tokenizer_object=t, pad_token="<0>", bos_token="<1>",
                                         eos_token="<2>").save_pretrained(folder)
    return transformers.AutoTokenizer.from_pretrained(folder)


def number(v):
    return float(f"{float(v):.7g}")


def stored(name, x):
    flat = x.reshape(-1)
    seen = (flat > -1e30).nonzero()[:, 0]
    at = sorted({int(seen[int((i + 0.5) * len(seen) / SAMPLES)]) for i in range(SAMPLES)})
    values = flat[seen].double()
    return {"name": name, "shape": list(x.shape), "sum": number(values.sum()),
            "magnitude": number(values.abs().sum()), "at": at, "values": [number(flat[i]) for i in at]}


def direction(width):
    return torch.from_numpy(F.draws("direction", width).astype(np.float32))


# Name of the function in the test, where, and the same function here: x[0] is what the test's function gets.
def halve_head(x, hook):
    x[0, :, 2] *= 0.5
    return x


def steer(x, hook):
    return x + direction(x.shape[-1])


def silence(x, hook):
    x[0, -1] = 0
    return x


def turn(x, hook):
    return -x


HOOKS = [{"halve_head": f"blocks.{L}.attn.hook_z"}, {"steer": "blocks.0.hook_out"},
         {"silence": f"blocks.{L}.hook_mlp_out"}, {"turn": "blocks.0.attn.hook_v"},
         {"steer": "blocks.0.hook_out", "halve_head": f"blocks.{L}.attn.hook_z"}]


def main():
    torch.set_num_threads(1)
    F.define()
    cases = []
    for name in TOYS:
        t = F.TOYS[name]
        with tempfile.TemporaryDirectory() as temp, torch.no_grad():
            folder = pathlib.Path(temp) / name
            folder.mkdir()
            F.make_folder(t, folder)
            lens = TransformerBridge.boot_transformers(str(folder), hf_model=F.load(t, folder),
                                                       tokenizer=words(folder), device="cpu")
            lens.eval()
            tokens = F.ids(f"{name} hooks", LENGTH)
            logits, cache = lens.run_with_cache(torch.tensor([tokens]))
            case = {"toy": name, "tokens": tokens, "logits": [number(v) for v in logits[0, -1]], "points": [],
                    "hooks": []}
            for point, x in cache.items():
                inside = point.startswith("blocks.")
                if x.is_floating_point() and (not inside or point.startswith(f"blocks.{L}.")):
                    case["points"].append(stored(point, x[0]))
            for places in HOOKS:
                got = lens.run_with_hooks(torch.tensor([tokens]), fwd_hooks=[
                    (where, globals()[function]) for function, where in places.items()])[0, -1]
                moved = float((got - logits[0, -1]).abs().max())
                assert moved > 1e-3, f"{name}: {places} moves the last row by {moved} only"
                case["hooks"].append({"functions": places, "logits": [number(v) for v in got]})
            cases.append(case)
    parts = []
    for c in cases:
        lines = [f'  "{k}": ' + (json.dumps(v) if k not in ("points", "hooks") else "[\n   " + ",\n   ".join(
            json.dumps(x, separators=(",", ":")) for x in v) + "]") for k, v in c.items()]
        parts.append(" {\n" + ",\n".join(lines) + "}")
    source = f"transformer_lens {lens_version()}, transformers {transformers.__version__}"
    (HERE / "use" / "hooks.json").write_text(
        f'{{"source": "{source}, float32",\n"cases": [\n' + ",\n".join(parts) + "]}\n")


def lens_version():
    from importlib.metadata import version
    return version("transformer_lens")


if __name__ == "__main__":
    main()
