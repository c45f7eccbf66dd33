# SPDX-License-Identifier: Apache-2.0
"""Toys of decoders with layers that keep a state of fixed size for make_families.py: the gated delta rule
(Qwen3-Next, Qwen3.5) and the short convolution (LFM2)."""
import transformers as T


def released_next(config):
    """The same model in the keys of the config.json beside the released weights of Qwen3-Next."""
    rope = config.pop("rope_parameters")
    config.update({"rope_theta": rope["rope_theta"], "partial_rotary_factor": rope["partial_rotary_factor"],
                   "rope_scaling": None, "full_attention_interval": config.pop("layer_types").index(
                       "full_attention") + 1})
    return dict(sorted(config.items()))


def released_lfm2(config):
    """LFM2 as it was first released: old names of keys, and attention layers by their numbers."""
    config["full_attn_idxs"] = [i for i, x in enumerate(config.pop("layer_types")) if x == "full_attention"]
    config["block_ff_dim"] = config.pop("intermediate_size")
    config["tie_embedding"] = config.pop("tie_word_embeddings")
    config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
    config["conv_dim"] = config["conv_dim_out"] = config["block_dim"] = config["hidden_size"]
    return dict(sorted(config.items()))


def define(toy, llama, rope, vocab):
    # Chunks have 64 rows: rows around their ends are stored, and three lengths end at, after or before one.
    chunks = dict(lengths=(300, 65, 64, 7, 1), rows=(62, 63, 64, 65, 127, 128, 200))
    short = dict(lengths=(100, 7, 1), rows=(62, 63, 64, 65))
    base = dict(vocab_size=vocab, hidden_size=40, intermediate_size=52, num_hidden_layers=5,
                num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512, bos_token_id=1,
                eos_token_id=2, pad_token_id=0)
    delta = dict(base, head_dim=24, rms_norm_eps=1e-3, linear_conv_kernel_dim=4, linear_key_head_dim=12,
                 linear_value_head_dim=20, linear_num_key_heads=2, linear_num_value_heads=4)
    experts = dict(num_experts=5, num_experts_per_tok=2, moe_intermediate_size=22,
                   shared_expert_intermediate_size=30)
    # The norm behind the delta rule divides by what may be small: its epsilon keeps float32 near float64.
    calm = {"embed_tokens.weight": 2.0, "linear_attn.out_proj.weight": 0.6}
    equal = dict(delta, linear_key_head_dim=16, linear_value_head_dim=16)  # as llama.cpp wants them
    quarter = rope(1e4, partial_rotary_factor=0.25)

    # Layer 1 has experts (of 1 and 3, which the step says, one is dense), layer 3 attends.
    toy("qwen3-next", T.Qwen3NextForCausalLM,
        dict(delta, **experts, decoder_sparse_step=2, mlp_only_layers=[3], rope_parameters=quarter),
        plus_one=True, gains=calm, **chunks)
    toy("qwen3-next-released", T.Qwen3NextForCausalLM,  # three value heads to a key head
        dict(delta, **experts, linear_num_value_heads=6, mlp_only_layers=[0, 1, 2, 3], norm_topk_prob=False,
             rope_parameters=quarter), plus_one=True, gains=calm, stored_config=released_next, **chunks)
    toy("qwen3-next-all", T.Qwen3NextForCausalLM,  # experts in every layer, as GGUF wants it
        dict(equal, **experts, num_hidden_layers=4, rope_parameters=quarter),
        plus_one=True, gains=calm, **short)

    # Three kinds of positions, which are equal in a text.
    sections = rope(1e4, partial_rotary_factor=0.25, mrope_section=[1, 1, 1], mrope_interleaved=True)
    toy("qwen3.5-text", T.Qwen3_5ForCausalLM,
        dict(delta, num_hidden_layers=4, linear_num_key_heads=3, linear_num_value_heads=3,
             rope_parameters=sections, tie_word_embeddings=True),
        plus_one=True, gains=dict(calm, **{"embed_tokens.weight": 0.5}), **chunks)
    toy("qwen3.5-moe-text", T.Qwen3_5MoeForCausalLM,
        dict(equal, **experts, num_hidden_layers=2, layer_types=["linear_attention", "full_attention"],
             rope_parameters=sections),
        plus_one=True, gains=calm, released={"full_attention_interval": 2}, **short)
    # As released: the text's config nested, a part that reads pictures beside it, which no text needs.
    picture = dict(depth=1, hidden_size=16, intermediate_size=20, num_heads=2, patch_size=4,
                   spatial_merge_size=2, temporal_patch_size=2, out_hidden_size=40,
                   num_position_embeddings=16)
    tokens = dict(image_token_id=57, video_token_id=58, vision_start_token_id=59, vision_end_token_id=60)
    toy("qwen3.5", T.Qwen3_5ForConditionalGeneration,
        dict(text_config=dict(delta, linear_num_value_heads=6, rope_parameters=sections),
             vision_config=picture, **tokens),
        plus_one=True, gains=calm, avoid=tuple(tokens.values()), **chunks)

    kinds = ["conv", "conv", "full_attention", "conv", "full_attention"]
    lfm2 = dict(base, layer_types=kinds, norm_eps=1e-5, rope_parameters=rope(1e6), tie_word_embeddings=True)
    soft = {"embed_tokens.weight": 0.5}
    toy("lfm2", T.Lfm2ForCausalLM, dict(lfm2, block_auto_adjust_ff_dim=False, conv_bias=True, conv_L_cache=4),
        gains=soft)
    toy("lfm2-released", T.Lfm2ForCausalLM,  # 75 becomes 2/3 of it, 1.1 times, up to a multiple of 8: 56
        dict(lfm2, intermediate_size=75, block_auto_adjust_ff_dim=True, block_ffn_dim_multiplier=1.1,
             block_multiple_of=8), gains=soft, stored_config=released_lfm2)
    routed = dict(lfm2, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=22, num_dense_layers=2)
    toy("lfm2-moe", T.Lfm2MoeForCausalLM,
        dict(routed, norm_topk_prob=True, use_expert_bias=True, routed_scaling_factor=1.0), gains=soft)
    toy("lfm2-moe-scaled", T.Lfm2MoeForCausalLM,  # GGUF has no keys for these three
        dict(routed, norm_topk_prob=False, use_expert_bias=False, routed_scaling_factor=1.3), gains=soft,
        gguf=False)
