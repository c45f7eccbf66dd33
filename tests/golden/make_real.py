#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reference answers of real models, for tests/real_models_test.cc. Writes real/answers.json.

usage: make_real.py MODELS_FOLDER DATA_FOLDER

Needs torch, transformers, gguf and numpy. The prompts are ours; the file holds token ids and numbers only.
- SmolLM2 (chat) and Gemma 3 (plain): greedy ids by transformers on the dequantized weights in f32, and at
each step the gap between the
   two largest logits: where two implementations part, it must be at a small gap.
 - all-MiniLM-L6-v2: embeddings (mean over tokens, length 1).
 - stories260K: greedy ids by the NumPy loop below, which is all of Llama 2 in forty lines.
"""
import json
import os
import struct
import sys

import numpy as np
import torch

STEPS = 48

CHAT = [
    "What is the capital of France?",
    "Write one sentence about a river in winter.",
    "List three fruits that are yellow.",
    "Explain why the sky is blue to a child.",
    "What is 7 times 8?",
    "Give me a name for a small grey cat.",
    "Translate 'good morning' into Spanish.",
    "How do I boil an egg?",
    "Which is heavier, a kilogram of iron or a kilogram of feathers?",
    "Write a Python function that adds two numbers.",
]
PLAIN = [
    "The capital of Germany is",
    "Once upon a time, in a small village by the sea,",
    "The three primary colours are",
    "To make a cup of tea, first",
    "In mathematics, a prime number is",
    "def fibonacci(n):\n",
    "The largest planet of the solar system is",
    "Dear Sir or Madam,\n\nI am writing to",
    "Water boils at a temperature of",
    "Die Hauptstadt von Frankreich ist",
]
SENTENCES = [
    "A small grey cat sleeps on the warm roof.",
    "The committee will meet again on Thursday at 14:30.",
    "Zürich, São Paulo and 東京 are large cities!",
]


def dequantized(path):
    """The GGUF file's weights in a transformers model, mapped by hand: nothing between the file's numbers and
    the reference's."""
    import gguf
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM
    reader = gguf.GGUFReader(path)
    value = lambda key: reader.fields[key].contents()
    arch = value("general.architecture")
    number = lambda key: value(f"{arch}.{key}")
    tensors = {t.name: torch.from_numpy(np.array(gguf.quants.dequantize(t.data, t.tensor_type), np.float32))
               for t in reader.tensors}
    common = dict(vocab_size=len(tensors["token_embd.weight"]), hidden_size=number("embedding_length"),
                  num_hidden_layers=number("block_count"),
                  intermediate_size=number("feed_forward_length"),
                  num_attention_heads=number("attention.head_count"),
                  num_key_value_heads=number("attention.head_count_kv"),
                  max_position_embeddings=number("context_length"),
                  rms_norm_eps=number("attention.layer_norm_rms_epsilon"), tie_word_embeddings=True)
    theta = number("rope.freq_base")
    if arch == "gemma3":
        head = number("attention.key_length")
        layers = ["full_attention" if i % 6 == 5 else "sliding_attention"
                  for i in range(common["num_hidden_layers"])]
        config = Gemma3TextConfig(**common, head_dim=head, query_pre_attn_scalar=head,
                                  sliding_window=number("attention.sliding_window"),
                                  layer_types=layers, hidden_activation="gelu_pytorch_tanh",
                                  rope_parameters={"full_attention": {"rope_type": "default",
                                                                      "rope_theta": theta},
                                                   "sliding_attention": {
                                                       "rope_type": "default", "rope_theta": 10000.0}})
        model = Gemma3ForCausalLM(config)
    else:
        config = LlamaConfig(**common, rope_parameters={"rope_type": "default", "rope_theta": theta})
        model = LlamaForCausalLM(config)

    def turned(w, heads):  # GGUF's Llama pairs neighbours, transformers pairs halves
        return w.reshape(heads, -1, 2, w.shape[-1]).transpose(1, 2).reshape(w.shape)
    parts = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
             "attn_output": "self_attn.o_proj",
             "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
             "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm",
             "post_attention_norm": "post_attention_layernorm",
             "ffn_norm": "pre_feedforward_layernorm" if arch == "gemma3" else "post_attention_layernorm",
             "post_ffw_norm": "post_feedforward_layernorm"}
    state = {}
    for name, w in tensors.items():
        if arch == "gemma3" and name.endswith("norm.weight"):
            w = w - 1  # stored plus one
        if name.startswith("blk."):
            _, i, part, _ = name.split(".")
            if arch == "llama" and part in ("attn_q", "attn_k"):
                w = turned(w, common["num_attention_heads" if part == "attn_q" else "num_key_value_heads"])
            state[f"model.layers.{i}.{parts[part]}.weight"] = w
        else:
            state[{"token_embd.weight": "model.embed_tokens.weight",
                   "output_norm.weight": "model.norm.weight"}[name]] = w
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    adds = "tokenizer.ggml.add_bos_token" in reader.fields and value("tokenizer.ggml.add_bos_token")
    return model.float().eval(), value("tokenizer.ggml.bos_token_id") if adds else None


def greedy(folder, name, texts, chat):
    from transformers import AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    model, bos = dequantized(os.path.join(folder, name))
    out = []
    for text in texts:
        if chat:
            prompt = tokenizer.apply_chat_template([{"role": "user", "content": text}],
                                                   add_generation_prompt=True, tokenize=True)
            prompt = list(prompt["input_ids"] if not isinstance(prompt, list) else prompt)
        else:
            prompt = tokenizer(text)["input_ids"]
            if bos is not None and prompt[:1] != [bos]:  # the tokenizer made from GGUF forgets it
                prompt = [bos] + prompt
        ids, gaps, past = [], [], None
        feed = torch.tensor([prompt])
        with torch.no_grad():
            for _ in range(STEPS):
                step = model(feed, past_key_values=past, use_cache=True)
                past = step.past_key_values
                top = torch.topk(step.logits[0, -1], 2)
                ids.append(int(top.indices[0]))
                gaps.append(round(float(top.values[0] - top.values[1]), 4))
                feed = torch.tensor([[ids[-1]]])
        print(name, repr(text), "->", repr(tokenizer.decode(ids)))
        out.append({"text": text, "prompt": prompt, "ids": ids, "gaps": gaps})
    return out


def embeddings(folder):
    from transformers import AutoModel, AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    out = []
    for text in SENTENCES:
        ids = tokenizer(text)["input_ids"]
        with torch.no_grad():
            hidden = model(torch.tensor([ids])).last_hidden_state[0].mean(0)
        vector = torch.nn.functional.normalize(hidden, dim=0)
        out.append({"text": text, "ids": ids, "vector": [round(float(x), 7) for x in vector]})
    return out


def stories(path):
    raw = open(path, "rb").read()
    dim, hidden, layers, heads, kv_heads, vocab, context = struct.unpack("<7i", raw[:28])
    data, at = np.frombuffer(raw[28:], np.float32).astype(np.float64), 0

    def take(*shape):
        nonlocal at
        n = int(np.prod(shape))
        at += n
        return data[at - n:at].reshape(shape)
    head = dim // heads
    embed = take(abs(vocab), dim)
    norm1, wq = take(layers, dim), take(layers, heads * head, dim)
    wk, wv, wo = (take(layers, kv_heads * head, dim), take(layers, kv_heads * head, dim),
                  take(layers, dim, heads * head))
    norm2, w1, w2, w3 = take(layers, dim), take(layers, hidden,
                                                dim), take(layers, dim, hidden), take(layers, hidden, dim)
    last = take(dim)
    take(context, head // 2), take(context, head // 2)  # RoPE tables, computed here instead
    output = embed if vocab > 0 else take(-vocab, dim)
    rms = lambda x, w: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w

    def rope(x):  # [T, heads, head]: neighbours turn together
        angle = np.arange(len(x))[:, None] * 10000.0 ** (-np.arange(0, head, 2) / head)
        c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
        y = np.empty_like(x)
        y[..., 0::2], y[..., 1::2] = x[..., 0::2] * c - x[..., 1::2] * s, x[..., 0::2] * s + x[..., 1::2] * c
        return y

    def logits(ids):
        x, T = embed[ids], len(ids)
        for i in range(layers):
            h = rms(x, norm1[i])
            q, k = rope((h @ wq[i].T).reshape(T, heads, head)), rope((h @ wk[i].T).reshape(T, kv_heads, head))
            v = (h @ wv[i].T).reshape(T, kv_heads, head)
            k, v = np.repeat(k, heads // kv_heads, 1), np.repeat(v, heads // kv_heads, 1)
            score = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(head) + np.triu(np.full((T, T), -np.inf), 1)
            p = np.exp(score - score.max(-1, keepdims=True))
            p /= p.sum(-1, keepdims=True)
            x = x + np.einsum("hqk,khd->qhd", p, v).reshape(T, -1) @ wo[i].T
            h = rms(x, norm2[i])
            g = h @ w1[i].T
            x = x + (g / (1 + np.exp(-g)) * (h @ w3[i].T)) @ w2[i].T
        return output @ rms(x, last)[-1]
    ids, gaps = [1], []
    while len(ids) < 1 + 120:
        top = np.sort(row := logits(np.array(ids)))[-2:]
        ids.append(int(row.argmax()))
        gaps.append(round(float(top[1] - top[0]), 4))
    return {"prompt": [1], "ids": ids[1:], "gaps": gaps}


def main():
    models, data = sys.argv[1], sys.argv[2]
    out = {
        "smollm2": greedy(models, "SmolLM2-135M-Instruct.Q4_1.gguf", CHAT, True),
        "gemma3": greedy(models, "gemma-3-270m-q4_k_m.gguf", PLAIN, False),
        "minilm": embeddings(os.path.join(models, "all-MiniLM-L6-v2")),
        "stories260k": stories(os.path.join(data, "models", "stories260K.bin")),
    }
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "real", "answers.json"), "w") as f:
        f.write("{\n")
        for i, (name, value) in enumerate(out.items()):
            rows = value if isinstance(value, list) else [value]
            body = ",\n".join("  " + json.dumps(row, ensure_ascii=False, separators=(",", ":"))
                              for row in rows)
            f.write(f' "{name}": [\n{body}\n ]{"," if i + 1 < len(out) else ""}\n')
        f.write("}\n")


if __name__ == "__main__":
    main()
