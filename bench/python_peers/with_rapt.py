# SPDX-License-Identifier: Apache-2.0
"""The tasks of bench/python-peers in rapt, as docs/python.md would have them written."""
import tempfile

import numpy as np
import rapt


class Tasks:
    def __init__(self, folder, task):
        self.model = rapt.load(folder)

    def answer(self, prompt):
        return str(self.model.generate(prompt, max_tokens=64, temperature=0))

    def stop(self, prompt):
        got = []
        for piece in self.model.stream(prompt, max_tokens=1000, temperature=0):
            got.append(piece)
            if len(got) == 10:
                break
        return "".join(got)

    def batch(self, prompts):
        return [str(a) for a in self.model.batch(prompts, max_tokens=32, temperature=0)]

    def score(self, text):
        return self.model.score(text).mean

    def hidden(self, text):
        _, cache = self.model.run_with_cache(text, ["resid_post.*"])
        return [float(np.linalg.norm(x)) for x in cache["resid_post.*"][:-1]]

    def entropy(self, text):
        return self.model.attention(text).stats["entropy"].mean(-1).tolist()

    def edit(self, prompt):
        return str(self.model.edited("L5H3:zero").generate(prompt, max_tokens=32, temperature=0))

    def lens(self, text):
        return [row[-1][0] for row in self.model.lens(text, last=1).words[1:]]

    def embed(self, texts):
        E = self.model.embed(texts, pool="mean", normalize=True)
        return (E @ E.T).tolist()

    def train(self, text):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write(text)
            file.flush()
            trainer = rapt.Trainer(rapt.Recipe("llama2", width=128, layers=4, heads=4, ffn=512, context=64),
                                   file.name, vocab="characters", length=64, batch=12, steps=100, rate=1e-3)
            for step in trainer:
                pass
        return step.loss
