# SPDX-License-Identifier: Apache-2.0
"""Toys of tests/golden/families as folders that Hugging Face would save; weights by their tensors' names (the
rule is in tests/golden/README.md). And the golden values that tests of looking inside share."""
import json
import pathlib
import struct

import numpy as np

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden"


def draws(name, count):
    h = 14695981039346656037
    for byte in name.encode():
        h = (h ^ byte) * 1099511628211 % 2**64
    with np.errstate(over="ignore"):
        z = np.uint64(h) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(40)).astype(np.float64) * 2.0**-23 - 1


def direction(width):
    return draws("direction", width).astype(np.float32)


def write(name, folder):
    """The folder of a toy, made in `folder`."""
    toy = json.loads((GOLDEN / "families" / f"{name}.json").read_text())
    out = pathlib.Path(folder) / name
    out.mkdir()
    (out / "config.json").write_text(json.dumps(toy["config"]))
    header, data, at = {}, [], 0
    for tensor, shape, scale, offset in toy["tensors"]:
        values = (offset + scale * draws(tensor, int(np.prod(shape, dtype=int)))).astype("<f4").tobytes()
        header[tensor] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + len(values)]}
        data.append(values)
        at += len(values)
    words = json.dumps(header).encode()
    with open(out / "model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(words)) + words + b"".join(data))
    return out


def cases(file):
    return json.loads((GOLDEN / "use" / file).read_text())["cases"]


def check(x, want, where, tolerance=1e-4):
    """An array against what is stored of it."""
    assert list(x.shape) == want["shape"], where
    assert not np.isnan(x).any(), where
    seen = x[np.isfinite(x)].astype(np.float64)
    reach = want["magnitude"]
    assert abs(seen.sum() - want["sum"]) <= 1e-5 * (reach + 10), where
    assert abs(np.abs(seen).sum() - reach) <= 1e-5 * (reach + 10), where
    for i, value in zip(want["at"], want["values"]):
        assert abs(float(x.reshape(-1)[i]) - value) <= tolerance * max(1, abs(value)), f"{where} element {i}"


def near(x, want, where, tolerance=1e-4):
    """A row of logits: within `tolerance` of the largest of them."""
    want = np.asarray(want)
    assert np.abs(x - want).max() <= tolerance * max(1, np.abs(want).max()), where
