# SPDX-License-Identifier: Apache-2.0
"""Makes the files in adapters/ beside this script: LoRA adapters of toys of families/, and what PEFT computes
with them.

  python make_adapters.py                 writes all files
  python make_adapters.py llama gpt2      only these

Needs torch, transformers, peft, safetensors; neither the build nor the tests do. Stored: the toy's name,
adapter_config.json as PEFT saves it, the names and shapes of the saved tensors with the rule of their values
(README.md), the toy's token ids, and some rows of the logits with the adapter on. Refused: float32 and
float64 more than 5e-5 of the largest logit apart, an adapter that moves the logits by less than 0.5.
"""
import json
import math
import pathlib
import sys
import tempfile

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict

import make_families as families
from make_families import HERE, doubles, load, load_double, make_folder, result, values

CASES = {
    "llama": dict(toy="smollm2", r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM"),
    "gpt2": dict(toy="gpt2", r=3, lora_alpha=4, use_rslora=True, fan_in_fan_out=True,
                 target_modules=["c_attn", "c_proj", "c_fc"], task_type="CAUSAL_LM"),
    "qwen2": dict(toy="qwen2", r=2, lora_alpha=3, rank_pattern={"q_proj": 5, "layers.1.mlp.down_proj": 3},
                  alpha_pattern={"q_proj": 4, "layers.1.mlp.down_proj": 1.5},
                  target_modules=["q_proj", "k_proj", "v_proj", "down_proj", "lm_head"],
                  task_type="CAUSAL_LM"),
    "phi3": dict(toy="phi3", r=4, lora_alpha=4, target_modules=["qkv_proj", "gate_up_proj", "o_proj"],
                 task_type="CAUSAL_LM"),
    "gemma3": dict(toy="gemma3", r=3, lora_alpha=6, layers_to_transform=[0, 2, 5], layers_pattern="layers",
                   target_modules=["q_proj", "v_proj", "gate_proj"], task_type="CAUSAL_LM"),
    "t5": dict(toy="t5", r=2, lora_alpha=2, target_modules=["q", "k", "v", "o", "wi", "wo"],
               task_type="SEQ_2_SEQ_LM"),
    "bert": dict(toy="bert", r=4, lora_alpha=4, target_modules=["query", "value", "intermediate.dense"],
                 task_type=None),
}
NOISE = ("auto_mapping", "base_model_name_or_path", "revision", "peft_version", "parent_library")


def adapted(model, config, state):
    """The model with the adapter: its names, or with the values of `state`."""
    out = get_peft_model(model, LoraConfig(**config)).eval()
    if state:
        report = set_peft_model_state_dict(out, {n: torch.from_numpy(values(n, s, scale, offset))
                                                 for n, s, scale, offset in state})
        assert not report.unexpected_keys, report
        assert not [x for x in report.missing_keys if "lora" in x], report
    return out


def rule(name, shape):
    """A [r,K] as other matrices are drawn, B [N,r] smaller."""
    fan = math.sqrt(shape[1])
    return (1.5 * 1.7320508 / fan if ".lora_A." in name else 0.6 / fan), 0.0


def make(name, case):
    config = {k: v for k, v in case.items() if k != "toy"}
    t = families.TOYS[case["toy"]]
    toy = json.loads((HERE / "families" / f"{case['toy']}.json").read_text())
    with tempfile.TemporaryDirectory() as temp:
        folder = pathlib.Path(temp) / "toy"
        folder.mkdir()
        tensors = make_folder(t, folder)
        plain = load(t, folder)
        base_state = plain.state_dict()
        first = adapted(load(t, folder), config, None)
        # PEFT also saves the output matrix itself beside factors of it: the toy's.
        whole = {n: x for n, x in get_peft_model_state_dict(first).items() if ".lora_" not in n}
        saved = sorted((n, list(x.shape)) for n, x in get_peft_model_state_dict(first).items()
                       if ".lora_" in n)
        state = [[n, shape, *rule(n, shape)] for n, shape in saved]
        first.save_pretrained(pathlib.Path(temp) / "adapter", safe_serialization=True)
        stored = json.loads((pathlib.Path(temp) / "adapter" / "adapter_config.json").read_text())
        stored = {k: sorted(v) if k == "target_modules" and isinstance(v, list) else v
                  for k, v in sorted(stored.items()) if k not in NOISE}
        types, sources = toy.get("types"), toy.get("source_sequences")

        def results(model):
            return [result(model, s, types[i] if types else None, sources[i] if sources else None)
                    for i, s in enumerate(toy["sequences"])]

        without = results(plain)
        single = results(adapted(load(t, folder), config, state))
        with doubles():
            expected = results(adapted(load_double(t, folder, tensors, base_state), config, state))
        assert expected[0].dtype == torch.float64
        f32 = max(float((a.double() - b).abs().max()) for a, b in zip(single, expected))
        largest = float(torch.cat(expected).abs().max())
        moved = min(float((a.double() - b).abs().max()) for a, b in zip(without, expected))
        said = f"{name}: float32 {f32:.2g} off, largest {largest:.3g}, moved by {moved:.3g} at least"
        assert f32 <= 5e-5 * max(1, largest) and moved >= 0.5, said
    import peft
    import transformers
    file = {"name": name, "source": f"peft {peft.__version__}, transformers {transformers.__version__}",
            "toy": case["toy"], "config": stored, "sequences": toy["sequences"]}
    if types:
        file["types"] = types
    if sources:
        file["source_sequences"] = sources
    file["rows"] = toy["rows"]
    if whole:
        assert all(n.endswith(".base_layer.weight") for n in whole), whole
        file["copies"] = sorted(whole)
    lines = [f" {json.dumps(k)}: {json.dumps(v)}" for k, v in file.items()]
    text = "{\n" + ",\n".join(lines)
    text += ',\n "tensors": [\n' + ",\n".join("  " + json.dumps(x) for x in state) + "]"
    rows = ["  [" + ",\n   ".join(",".join(f"{v:.7g}" for v in row) for row in y[r].tolist()) + "]"
            for y, r in zip(expected, toy["rows"])]
    text += ',\n "logits": [\n' + ",\n".join(rows) + "]\n}\n"
    json.loads(text)
    (HERE / "adapters" / f"{name}.json").write_text(text)
    print(f"{said}; {len(text)} bytes", flush=True)


def main():
    torch.set_num_threads(1)
    families.define()
    for name in sys.argv[1:] or CASES:
        make(name, CASES[name])


if __name__ == "__main__":
    main()
