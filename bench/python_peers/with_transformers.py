# SPDX-License-Identifier: Apache-2.0
"""The tasks of bench/python-peers in transformers, as its documentation would have them written."""
import threading

import torch
from transformers import (AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM,
                          StoppingCriteria, StoppingCriteriaList, TextIteratorStreamer)


class Tasks:
    def __init__(self, folder, task):
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        options = {"attn_implementation": "eager"} if task == "entropy" else {}
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **options)

    def ids(self, text):
        return self.tokenizer(text, return_tensors="pt")

    def answer(self, prompt):
        given = self.ids(prompt)
        out = self.model.generate(**given, max_new_tokens=64, do_sample=False)
        return self.tokenizer.decode(out[0, given.input_ids.shape[1]:], skip_special_tokens=True)

    def stop(self, prompt):
        left = threading.Event()

        class Left(StoppingCriteria):
            def __call__(self, ids, scores, **more):
                return torch.full((ids.shape[0],), left.is_set(), dtype=torch.bool)

        streamer = TextIteratorStreamer(self.tokenizer, skip_prompt=True, skip_special_tokens=True)
        worker = threading.Thread(target=self.model.generate, kwargs=dict(
            **self.ids(prompt), max_new_tokens=1000, do_sample=False, streamer=streamer,
            stopping_criteria=StoppingCriteriaList([Left()])))
        worker.start()
        got = []
        for piece in streamer:
            got.append(piece)
            if len(got) == 10:
                left.set()
                break
        worker.join()
        return "".join(got)

    def batch(self, prompts):
        self.tokenizer.padding_side = "left"
        self.tokenizer.pad_token = self.tokenizer.pad_token or self.tokenizer.eos_token
        given = self.tokenizer(prompts, return_tensors="pt", padding=True)
        out = self.model.generate(**given, max_new_tokens=32, do_sample=False)
        return [self.tokenizer.decode(row, skip_special_tokens=True)
                for row in out[:, given.input_ids.shape[1]:]]

    def score(self, text):
        ids = self.ids(text).input_ids
        with torch.no_grad():
            logits = self.model(ids).logits[0, :-1]
        return float(torch.log_softmax(logits, -1).gather(1, ids[0, 1:, None]).mean())

    def hidden(self, text):
        with torch.no_grad():
            states = self.model(**self.ids(text), output_hidden_states=True).hidden_states
        return [float(h.norm()) for h in states[1:-1]]

    def entropy(self, text):
        found = []

        def look(module, given, out):
            p = out[1][0]
            found.append(-(p * p.clamp_min(1e-30).log()).sum(-1).mean(-1))
            return out[0], None

        for layer in self.model.model.layers:
            layer.self_attn.register_forward_hook(look)
        with torch.no_grad():
            self.model(**self.ids(text), output_attentions=True)
        return torch.stack(found).tolist()

    def edit(self, prompt):
        size = self.model.config.head_dim

        def silence(module, given):
            z = given[0].clone()
            z[..., 3 * size:4 * size] = 0
            return (z,)

        hook = self.model.model.layers[5].self_attn.o_proj.register_forward_pre_hook(silence)
        try:
            given = self.ids(prompt)
            out = self.model.generate(**given, max_new_tokens=32, do_sample=False)
        finally:
            hook.remove()
        return self.tokenizer.decode(out[0, given.input_ids.shape[1]:], skip_special_tokens=True)

    def lens(self, text):
        with torch.no_grad():
            states = self.model(**self.ids(text), output_hidden_states=True).hidden_states
            rows = [self.model.lm_head(self.model.model.norm(h[0])).argmax(-1) for h in states[1:-1]]
            rows.append(self.model.lm_head(states[-1][0]).argmax(-1))
        return [self.tokenizer.decode(row[-1:]) for row in rows]

    def embed(self, texts):
        self.tokenizer.pad_token = self.tokenizer.pad_token or self.tokenizer.eos_token
        given = self.tokenizer(texts, return_tensors="pt", padding=True, padding_side="right")
        with torch.no_grad():
            h = self.model.model(**given).last_hidden_state
        mask = given.attention_mask[..., None]
        e = torch.nn.functional.normalize((h * mask).sum(1) / mask.sum(1))
        return (e @ e.T).tolist()

    def train(self, text):
        letters = sorted(set(text))
        data = torch.tensor([letters.index(c) for c in text])
        torch.manual_seed(0)
        model = LlamaForCausalLM(LlamaConfig(
            vocab_size=len(letters), hidden_size=128, num_hidden_layers=4, num_attention_heads=4,
            num_key_value_heads=4, intermediate_size=512, max_position_embeddings=64))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
        draw = torch.Generator().manual_seed(0)
        for step in range(1, 101):
            at = torch.randint(len(data) - 65, (12,), generator=draw)
            x = torch.stack([data[i:i + 64] for i in at])
            loss = model(input_ids=x, labels=x).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        return float(loss.detach())
