# SPDX-License-Identifier: Apache-2.0
"""The tasks of bench/python-peers in llama-cpp-python, as its documentation would have them written. What is
not here it has no way of its own for."""
import os

import numpy as np
from llama_cpp import LLAMA_POOLING_TYPE_MEAN, Llama


class Tasks:
    def __init__(self, folder, task):
        options = {"score": {"logits_all": True},
                   "embed": {"embedding": True, "pooling_type": LLAMA_POOLING_TYPE_MEAN}}.get(task, {})
        threads = int(os.environ["OMP_NUM_THREADS"])
        self.model = Llama(folder + ".gguf", n_ctx=2048, n_threads=threads, n_threads_batch=threads,
                           verbose=False, **options)

    def answer(self, prompt):
        return self.model(prompt, max_tokens=64, temperature=0)["choices"][0]["text"]

    def stop(self, prompt):
        got = []
        for piece in self.model(prompt, max_tokens=1000, temperature=0, stream=True):
            got.append(piece["choices"][0]["text"])
            if len(got) == 10:
                break
        return "".join(got)

    def batch(self, prompts):  # one after the other: its Llama has one sequence
        return [self.model(p, max_tokens=32, temperature=0)["choices"][0]["text"] for p in prompts]

    def score(self, text):  # what echo=True, logprobs=1 gives of a prompt is one place off (0.3.36)
        ids = self.model.tokenize(text.encode(), add_bos=False)
        self.model.eval(ids)
        logprobs = Llama.logits_to_logprobs(self.model.scores[:len(ids) - 1])
        return float(logprobs[np.arange(len(ids) - 1), ids[1:]].mean())

    def embed(self, texts):
        E = np.array(self.model.embed(texts, normalize=True))
        return (E @ E.T).tolist()
