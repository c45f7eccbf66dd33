# SPDX-License-Identifier: Apache-2.0
"""What tests of training share: a tiny model, a text, and the bits of weights."""
import hashlib
import pathlib
import random

import rapt

TINY = dict(width=32, layers=2, heads=2, ffn=48, context=32)


def recipe(name="gpt-char", **more):
    return rapt.Recipe(name, {**TINY, **more})


def text(count=4000, seed=1):
    """Words drawn anew, one line of them."""
    r = random.Random(seed)
    words = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "red", "dog", "run."]
    return " ".join(r.choice(words) for _ in range(count // 4))


def options(**more):
    return {**dict(steps=12, batch=4, length=16, vocab="characters", rate=1e-2, warmup=2, seed=3,
                   health_every=5, eval_batches=2), **more}


def bits(weights):
    """The sum of all weights' bytes, by name."""
    h = hashlib.sha256()
    for name in sorted(weights):
        h.update(name.encode() + bytes(memoryview(weights[name]).cast("B")))
    return h.hexdigest()


def file_bits(folder):
    return hashlib.sha256((pathlib.Path(folder) / "model/model.safetensors").read_bytes()).hexdigest()
