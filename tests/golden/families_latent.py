# SPDX-License-Identifier: Apache-2.0
"""Toys of decoders with latent attention for make_families.py: keys and values of all heads come from one
short vector per token (kv_lora_rank numbers), the position from a key that all heads share
(qk_rope_head_dim numbers)."""
import transformers as T


def released(config):
    """The same model in the keys of the config.json beside released weights of DeepSeek V2 and V3: RoPE as
    rope_theta and rope_scaling with `type`, and keys that only training or the authors' own file reads."""
    rope = dict(config.pop("rope_parameters"))
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = {"type": rope.pop("rope_type"), **rope}
    for key in ("head_dim", "qk_head_dim", "output_router_logits", "mlp_bias"):
        config.pop(key, None)
    assert config.pop("rope_interleave", True)
    v3 = config["model_type"] == "deepseek_v3"
    config.update({"aux_loss_alpha": 0.001, "ep_size": 1, "moe_layer_freq": 1, "seq_aux": True,
                   "scoring_func": "sigmoid" if v3 else "softmax"})
    if v3:
        config["topk_method"] = "noaux_tc"
    return dict(sorted(config.items()))


def define(toy, llama, rope, vocab):
    # Odd widths: 24 + 8 of a query and a key, 20 of a value.
    base = dict(vocab_size=vocab, hidden_size=56, intermediate_size=60, num_hidden_layers=3,
                num_attention_heads=4, num_key_value_heads=4, q_lora_rank=28, kv_lora_rank=36,
                qk_nope_head_dim=24, qk_rope_head_dim=8, v_head_dim=20, max_position_embeddings=128,
                rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    experts = dict(base, num_experts_per_tok=3, moe_intermediate_size=26, n_shared_experts=2,
                   first_k_dense_replace=1, routed_scaling_factor=1.6)
    # No GGUF form have toys whose mscale and mscale_all_dim differ (its keys say the second one only), that
    # rotate halves or have biases.
    # Texts go beyond the 32 positions that YaRN starts from. Of four frequencies the first stays, the second
    # lies between, two are stretched.
    long = (40, 7, 1)
    yarn = rope(100.0, "yarn", factor=4.0, beta_fast=32.0, beta_slow=1.0, mscale=0.7, mscale_all_dim=1.2,
                original_max_position_embeddings=32)
    equal = dict(yarn, mscale=1.0, mscale_all_dim=1.0)  # as released: cos and sin keep their size

    loud = {"gate.weight": 0.6}
    toy("deepseek-v2", T.DeepseekV2ForCausalLM,
        dict(experts, n_routed_experts=8, n_group=4, topk_group=2, topk_method="group_limited_greedy",
             rope_parameters=yarn), lengths=long, gains=loud, gguf=False)
    toy("deepseek-v2-lite", T.DeepseekV2ForCausalLM,
        dict(experts, n_routed_experts=6, num_experts_per_tok=2, q_lora_rank=None, topk_method="greedy",
             rope_parameters=dict(equal, mscale=0.707, mscale_all_dim=0.707)),
        lengths=long, gains=loud, stored_config=released)

    # Groups of three: their score, the sum of the best two, leaves one out.
    v3 = dict(experts, n_routed_experts=12, n_group=4, topk_group=2, norm_topk_prob=True)
    moved = {"correction_bias": 0.6}
    toy("deepseek-v3", T.DeepseekV3ForCausalLM, dict(v3, rope_parameters=yarn), lengths=long, gains=moved,
        gguf=False)
    toy("deepseek-v3-halves", T.DeepseekV3ForCausalLM,
        dict(v3, rope_interleave=False, attention_bias=True, norm_topk_prob=False,
             rope_parameters=equal), lengths=long, gains=moved, gguf=False)
    toy("deepseek-v3-released", T.DeepseekV3ForCausalLM, dict(v3, rope_parameters=equal), lengths=long,
        gains=moved, stored_config=released)
    flash = {k: v for k, v in v3.items() if k != "first_k_dense_replace"}
    toy("glm4-moe-lite", T.Glm4MoeLiteForCausalLM,
        dict(flash, n_routed_experts=6, n_group=1, topk_group=1, n_shared_experts=1,
             rope_parameters=rope(1e6)), gains=moved,
        released={"first_k_dense_replace": 1, "scoring_func": "sigmoid"})
    toy("youtu", T.YoutuForCausalLM, dict(base, rope_parameters=rope(1e4), tie_word_embeddings=True,
                                         pad_token_id=None),
        gains={"embed_tokens.weight": 0.5})

    # Long factors beyond 80 positions; the greedy tokens stay below.
    short, far = [1.0, 1.1, 1.3, 1.7], [1.2, 2.1, 3.4, 5.0]

    def factors(original):
        return rope(1e4, "longrope", short_factor=short, long_factor=far,
                    original_max_position_embeddings=original)

    toy("minicpm3", T.MiniCPM3ForCausalLM,
        dict(base, scale_emb=3, scale_depth=1.1, dim_model_base=40, max_position_embeddings=160,
             rope_parameters=factors(80)),
        lengths=(90, 7, 1), gains={"embed_tokens.weight": 0.5}, gguf=False)
    # The factors of the released model, which GGUF files do not say; nor a value's width: width / heads.
    toy("minicpm3-4b", T.MiniCPM3ForCausalLM,
        dict(base, hidden_size=80, scale_emb=12, scale_depth=1.4, dim_model_base=256,
             max_position_embeddings=80, rope_parameters=factors(80)),
        lengths=(90, 7, 1), gains={"embed_tokens.weight": 0.1})
