# SPDX-License-Identifier: Apache-2.0
"""The tasks of bench/python-peers in TransformerLens, as its documentation would have them written. What is
not here it has no way of its own for."""
import torch
from transformer_lens.model_bridge import TransformerBridge


class Tasks:
    def __init__(self, folder, task):
        torch.set_grad_enabled(False)
        self.model = TransformerBridge.boot_transformers(folder, device="cpu", dtype=torch.float32)

    def answer(self, prompt):
        return self.model.generate(prompt, max_new_tokens=64, do_sample=False, verbose=False,
                                   prepend_bos=False)[len(prompt):]

    def stop(self, prompt):
        got = []
        for piece in self.model.generate_stream(prompt, max_new_tokens=1000, max_tokens_per_yield=1,
                                                do_sample=False, verbose=False, prepend_bos=False):
            got.append(piece)
            if len(got) == 10:
                break
        return "".join(got)[len(prompt):]

    def batch(self, prompts):
        out = self.model.generate(prompts, max_new_tokens=32, do_sample=False, verbose=False,
                                  prepend_bos=False, padding_side="left")
        return [text[len(prompt):] for prompt, text in zip(prompts, out)]

    def score(self, text):
        return -float(self.model(text, return_type="loss", prepend_bos=False))

    def hidden(self, text):
        _, cache = self.model.run_with_cache(text, names_filter=lambda n: n.endswith("hook_resid_post"),
                                             prepend_bos=False)
        return [float(cache["resid_post", n].norm()) for n in range(self.model.cfg.n_layers - 1)]

    def entropy(self, text):
        found = []

        def look(p, hook):
            found.append(-(p[0] * p[0].clamp_min(1e-30).log()).sum(-1).mean(-1))

        self.model.run_with_hooks(text, fwd_hooks=[(lambda n: n.endswith("hook_pattern"), look)],
                                  return_type=None, prepend_bos=False)
        return torch.stack(found).tolist()

    def edit(self, prompt):
        def silence(z, hook):
            z[:, :, 3] = 0
            return z

        with self.model.hooks(fwd_hooks=[("blocks.5.attn.hook_z", silence)]):
            return self.model.generate(prompt, max_new_tokens=32, do_sample=False, verbose=False,
                                       prepend_bos=False)[len(prompt):]

    def lens(self, text):
        _, cache = self.model.run_with_cache(text, names_filter=lambda n: n.endswith("hook_resid_post"),
                                             prepend_bos=False)
        rows = [self.model.unembed(self.model.ln_final(cache["resid_post", n]))[0, -1].argmax()
                for n in range(self.model.cfg.n_layers)]
        return [self.model.tokenizer.decode(row) for row in rows]
