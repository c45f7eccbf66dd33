# SPDX-License-Identifier: Apache-2.0
"""Adapters (LoRA) for the embedded model, made of drawn numbers."""
import json
import struct

import numpy as np

RANK, ALPHA = 3, 6.0
# Matrices by the names of a Hugging Face folder, and what they are called here.
CHANGED = {f"model.layers.{i}.{name}": f"decoder.{i}.{own}"
           for i in (0, 3, 5) for name, own in (("self_attn.v_proj", "self.v.weight"),
                                                ("mlp.down_proj", "ffn.down.weight"))}


def write_adapter(folder, shapes, seed, changed=CHANGED):
    """A folder as PEFT saves it; and {matrix: what it adds}. shapes: of a model's weights."""
    draw, tensors, adds = np.random.default_rng(seed), {}, {}
    for name, own in changed.items():
        rows, width = shapes[own]
        a = draw.normal(0, 0.4 / width ** 0.5, (RANK, width)).astype(np.float32)
        b = draw.normal(0, 0.4, (rows, RANK)).astype(np.float32)
        tensors[f"base_model.model.{name}.lora_A.weight"] = a
        tensors[f"base_model.model.{name}.lora_B.weight"] = b
        adds[own] = ALPHA / RANK * b.astype(np.float64) @ a
    head, data = {}, b""
    for name, x in tensors.items():
        place = [len(data), len(data) + x.nbytes]
        head[name] = {"dtype": "F32", "shape": list(x.shape), "data_offsets": place}
        data += x.tobytes()
    words = json.dumps(head).encode()
    folder.mkdir()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(words)) + words + data)
    (folder / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "target_modules": ["v_proj", "down_proj"]}))
    return adds
