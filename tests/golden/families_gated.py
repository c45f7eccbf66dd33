# SPDX-License-Identifier: Apache-2.0
"""Toys of Qwen3 with a gate on attention's result (Qiu et al. 2025) for make_families.py. The library has no
such model: its Qwen3 with an attention written from the paper's formula, head by head, and the layout of the
released files: q_proj holds, for each key head, the queries of its group and then their gates."""
import torch
import transformers as T


class GatedAttention(torch.nn.Module):
    def __init__(self, plain, config):
        super().__init__()
        self.heads, self.keys, self.d = config.num_attention_heads, config.num_key_value_heads, plain.head_dim
        self.wide = self.d if config.elementwise_attn_output_gate else 1  # numbers of a head's gate
        self.q_proj = torch.nn.Linear(config.hidden_size, self.heads * (self.d + self.wide), bias=False)
        self.k_proj, self.v_proj, self.o_proj = plain.k_proj, plain.v_proj, plain.o_proj
        self.q_norm, self.k_norm = plain.q_norm, plain.k_norm

    def forward(self, hidden_states, position_embeddings, **ignored):
        x, d, group = hidden_states[0], self.d, self.heads // self.keys
        cos, sin = (t[0] for t in position_embeddings)
        rows = self.q_proj(x)

        def turned(h):
            return h * cos + torch.cat([-h[:, d // 2:], h[:, :d // 2]], 1) * sin

        seen = torch.tril(torch.ones(len(x), len(x), dtype=torch.bool))
        out = []
        for g in range(self.keys):
            at = g * group * (d + self.wide)
            k = turned(self.k_norm(self.k_proj(x)[:, g * d:(g + 1) * d]))
            v = self.v_proj(x)[:, g * d:(g + 1) * d]
            for i in range(group):
                q = turned(self.q_norm(rows[:, at + i * d:at + (i + 1) * d]))
                first = at + group * d + i * self.wide
                gate = torch.sigmoid(rows[:, first:first + self.wide])
                scores = (q @ k.T / d ** 0.5).masked_fill(~seen, -torch.inf)
                out.append(gate * (torch.softmax(scores, 1) @ v))
        return self.o_proj(torch.cat(out, 1))[None], None


class GatedQwen3(T.Qwen3ForCausalLM):
    def __init__(self, config):
        super().__init__(config)
        for layer in self.model.layers:
            layer.self_attn = GatedAttention(layer.self_attn, config)
        self.post_init()


def released(config):
    """As the config.json beside the released weights is: its class, and RoPE in the old spelling."""
    config.update({"architectures": ["Qwen3ForCausalLM"], "qkv_bias": False, "use_qk_norm": True,
                   "rope_theta": config.pop("rope_parameters")["rope_theta"], "rope_scaling": None})
    config.pop("layer_types")
    return dict(sorted(config.items()))


def define(toy, llama, rope, vocab):
    for name, element in (("qwen3-gate-element", True), ("qwen3-gate-head", False)):
        llama(name, GatedQwen3, hidden_size=35, intermediate_size=50, head_dim=10, num_attention_heads=6,
              rms_norm_eps=1e-6, tie_word_embeddings=True, rope_parameters=rope(1e4),
              elementwise_attn_output_gate=element, headwise_attn_output_gate=not element,
              options={"stored_config": released, "gguf": False,
                       "source": f"transformers {T.__version__} Qwen3ForCausalLM, attention by hand"})
