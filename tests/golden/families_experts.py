# SPDX-License-Identifier: Apache-2.0
"""Toys of decoders with experts for make_families.py."""
import transformers as T


def define(toy, llama, rope, vocab):
    plain = dict(hidden_size=40, head_dim=None)  # the head's width follows from the others: 10
    router = {"gate.weight": 1.5}

    llama("mixtral", T.MixtralForCausalLM, intermediate_size=26, num_local_experts=5, num_experts_per_tok=2,
          rms_norm_eps=1e-5, rope_parameters=rope(1e6), options={"gains": router})
    for name, dense, layers in (("qwen2-moe", [1], 3), ("qwen2-moe-all", [], 2)):  # one dense layer, none
        llama(name, T.Qwen2MoeForCausalLM, **plain, num_hidden_layers=layers, num_experts=5,
              num_experts_per_tok=2, moe_intermediate_size=22, shared_expert_intermediate_size=30,
              mlp_only_layers=dense, norm_topk_prob=False, rms_norm_eps=1e-6, rope_parameters=rope(1e6),
              options={"gains": router})
    llama("qwen3-moe", T.Qwen3MoeForCausalLM, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=26,
          norm_topk_prob=True, rms_norm_eps=1e-6, rope_parameters=rope(1e6), options={"gains": router})
    llama("olmoe", T.OlmoeForCausalLM, **plain, num_key_value_heads=4, intermediate_size=26, num_experts=6,
          num_experts_per_tok=3, clip_qkv=1.25, norm_topk_prob=False, rms_norm_eps=1e-5,
          rope_parameters=rope(1e4), options={"gains": router})
    granite = dict(hidden_size=40, head_dim=None, intermediate_size=26, num_local_experts=5,
                   num_experts_per_tok=2, rms_norm_eps=1e-6, embedding_multiplier=1.5,
                   attention_multiplier=0.25, residual_multiplier=0.6, logits_scaling=1.6,
                   tie_word_embeddings=True, rope_parameters=rope(1e4))
    llama("granitemoe", T.GraniteMoeForCausalLM, **granite)
    llama("granitemoeshared", T.GraniteMoeSharedForCausalLM, **granite, shared_intermediate_size=22)
    llama("ernie4_5-moe", T.Ernie4_5_MoeForCausalLM, **plain, num_hidden_layers=3, moe_num_experts=6, moe_k=2,
          moe_intermediate_size=26, moe_num_shared_experts=2, moe_layer_start_index=1, moe_layer_interval=1,
          rms_norm_eps=1e-5, rope_parameters=rope(5e5),
          options={"gains": {"gate.weight": 1.5, "correction_bias": 0.3, "embed_tokens.weight": 0.5}})
    llama("glm4-moe", T.Glm4MoeForCausalLM, num_hidden_layers=3, n_routed_experts=8, num_experts_per_tok=2,
          moe_intermediate_size=26, n_shared_experts=1, first_k_dense_replace=1, n_group=2, topk_group=1,
          norm_topk_prob=True, routed_scaling_factor=1.5, use_qk_norm=True, attention_bias=True,
          rms_norm_eps=1e-5, rope_parameters=rope(1e6, partial_rotary_factor=0.5),
          options={"gains": {"correction_bias": 0.5}})
    llama("llama4", T.Llama4ForCausalLM, num_hidden_layers=5, intermediate_size=26, intermediate_size_mlp=52,
          num_local_experts=4, num_experts_per_tok=1, interleave_moe_layer_step=2, attention_chunk_size=8,
          attn_temperature_tuning=True, floor_scale=4, attn_scale=0.3, use_qk_norm=True, rms_norm_eps=1e-5,
          rope_parameters=rope(5e5), options={"in_out": True})
    llama("gpt-oss", T.GptOssForCausalLM, intermediate_size=26, num_hidden_layers=3, num_local_experts=5,
          num_experts_per_tok=2, sliding_window=8, rms_norm_eps=1e-5,
          rope_parameters=rope(1.5e5, "yarn", factor=8.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                               original_max_position_embeddings=32),
          options={"in_out": True, "gains": {"gate_up_proj": 2.5}})  # some reach the limit of 7
    llama("hunyuan-moe", T.HunYuanMoEV1ForCausalLM, intermediate_size=26, num_experts=5, moe_topk=2,
          rms_norm_eps=1e-5, rope_parameters=rope(1e4, "dynamic", alpha=50.0, factor=1.0),
          options={"gains": {"wg.weight": 1.5}})
