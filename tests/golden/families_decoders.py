# SPDX-License-Identifier: Apache-2.0
"""Toys of decoders for make_families.py."""
import math

import transformers as T


def minicpm_config(c):
    """Granite's config with MiniCPM's factors said in the keys of MiniCPM's own config.json (its class lives
    in a file beside its released weights, not in the library)."""
    width, layers = c["hidden_size"], c["num_hidden_layers"]
    return {"architectures": ["MiniCPMForCausalLM"], "attention_bias": False, "bos_token_id": 1,
            "dim_model_base": round(width / c["logits_scaling"]), "eos_token_id": 2, "hidden_act": "silu",
            "hidden_size": width, "initializer_range": 0.1, "intermediate_size": c["intermediate_size"],
            "max_position_embeddings": c["max_position_embeddings"], "model_type": "minicpm",
            "num_attention_heads": c["num_attention_heads"], "num_hidden_layers": layers,
            "num_key_value_heads": c["num_key_value_heads"], "rms_norm_eps": c["rms_norm_eps"],
            "rope_scaling": None, "rope_theta": c["rope_parameters"]["rope_theta"],
            "scale_depth": round(c["residual_multiplier"] * math.sqrt(layers), 6),
            "scale_emb": c["embedding_multiplier"], "tie_word_embeddings": True, "use_cache": True,
            "vocab_size": c["vocab_size"]}


def define(toy, llama, rope, vocab):
    ends = dict(bos_token_id=1, eos_token_id=2, pad_token_id=0)
    plain = dict(hidden_size=40, head_dim=None)  # the head's width follows from the others: 10

    llama("phi", T.PhiForCausalLM, hidden_size=40, head_dim=None, num_key_value_heads=4, layer_norm_eps=1e-5,
          rope_parameters=rope(1e4, partial_rotary_factor=0.4))
    llama("starcoder2", T.Starcoder2ForCausalLM, **plain, sliding_window=8, norm_epsilon=1e-5,
          rope_parameters=rope(1e5), options={"gains": {"embed_tokens.weight": 0.5}})
    llama("gemma", T.GemmaForCausalLM, hidden_act="gelu_pytorch_tanh", rms_norm_eps=1e-6,
          num_key_value_heads=1, rope_parameters=rope(1e4),
          options={"plus_one": True, "gains": {"embed_tokens.weight": 0.35}})
    code = dict(vocab_size=vocab, n_positions=128, n_embd=36, n_layer=2, n_head=4, n_inner=52, **ends)
    for name, one in (("gpt-bigcode", True), ("gpt-bigcode-mha", False)):
        toy(name, T.GPTBigCodeForCausalLM, dict(code, multi_query=one), gains={"wte.weight": 0.5})
    llama("seed-oss", T.SeedOssForCausalLM, attention_bias=True, attention_out_bias=False, rms_norm_eps=1e-6,
          rope_parameters=rope(1e6))
    neox = dict(vocab_size=vocab, hidden_size=48, num_attention_heads=3, num_hidden_layers=2,
                intermediate_size=52, max_position_embeddings=128, layer_norm_eps=1e-5,
                rope_parameters=rope(1e4, partial_rotary_factor=0.25), **ends)
    for name, parallel in (("gpt-neox", True), ("gpt-neox-serial", False)):
        toy(name, T.GPTNeoXForCausalLM, dict(neox, use_parallel_residual=parallel),
            released={"rotary_pct": 0.25, "rotary_emb_base": 10000})
    for name, heads, loud in (("bloom", 4, (0.4, 4.0, 3.0)), ("bloom-6", 6, (0.36, 2.0, 2.0))):
        toy(name, T.BloomForCausalLM, dict(vocab_size=vocab, hidden_size=36, n_layer=2, n_head=heads, **ends),
            gains=dict(zip(("word_embeddings.weight", "dense.weight", "dense_4h_to_h.weight"), loud)))
    llama("smollm3", T.SmolLM3ForCausalLM, **plain, num_hidden_layers=5, rms_norm_eps=1e-6,
          rope_parameters=rope(2e6), options={"gains": {"embed_tokens.weight": 0.5}})
    llama("exaone4", T.Exaone4ForCausalLM, num_hidden_layers=5, sliding_window=8, sliding_window_pattern=4,
          rms_norm_eps=1e-5, rope_parameters=rope(1e6))
    toy("exaone4-full", T.Exaone4ForCausalLM,
        dict(vocab_size=vocab, hidden_size=36, intermediate_size=52, num_hidden_layers=3,
             num_attention_heads=4, num_key_value_heads=2, head_dim=12, max_position_embeddings=128,
             sliding_window=None, layer_types=["full_attention"] * 3, rms_norm_eps=1e-5,
             tie_word_embeddings=True, rope_parameters=rope(1e6), **ends),
        gains={"embed_tokens.weight": 0.5})
    llama("olmo", T.OlmoForCausalLM, **plain, num_key_value_heads=4, clip_qkv=1.25, rope_parameters=rope(1e4))
    llama("olmo3", T.Olmo3ForCausalLM, **plain, num_hidden_layers=5, sliding_window=8, rms_norm_eps=1e-6,
          rope_parameters={"sliding_attention": rope(5e5),
                           "full_attention": rope(5e5, "yarn", factor=8.0, beta_fast=32.0, beta_slow=1.0,
                                                  attention_factor=1.2079441541679836,
                                                  original_max_position_embeddings=32)})
    # The released factor of the logits, 0.0625, belongs to a width of thousands.
    llama("cohere", T.CohereForCausalLM, **plain, use_qk_norm=True, logit_scale=0.375, layer_norm_eps=1e-5,
          rope_parameters=rope(8e6))
    llama("cohere2", T.Cohere2ForCausalLM, **plain, num_hidden_layers=5, sliding_window=8, logit_scale=0.375,
          layer_norm_eps=1e-5, rope_parameters=rope(5e4), options={"released": {"rotary_pct": 1.0}})
    llama("ernie4_5", T.Ernie4_5ForCausalLM, rms_norm_eps=1e-5, rope_parameters=rope(5e5),
          options={"gains": {"embed_tokens.weight": 0.5}})
    for name, cls in (("glm", T.GlmForCausalLM), ("glm4", T.Glm4ForCausalLM)):
        llama(name, cls, rms_norm_eps=1.5625e-07, rope_parameters=rope(1e4, partial_rotary_factor=0.5))
    llama("granite", T.GraniteForCausalLM, **plain, rms_norm_eps=1e-6, embedding_multiplier=1.5,
          attention_multiplier=0.25, residual_multiplier=0.6, logits_scaling=1.6, rope_parameters=rope(1e4),
          tie_word_embeddings=True)
    falcon = dict(vocab_size=vocab, hidden_size=40, num_hidden_layers=2, num_attention_heads=4,
                  ffn_hidden_size=52, max_position_embeddings=128, **ends)
    half = {"gains": {"word_embeddings.weight": 0.5}}
    toy("falcon", T.FalconForCausalLM, dict(falcon, multi_query=True, parallel_attn=True, bias=False,
                                            rope_parameters=rope(1e4)), **half,
        released={"num_kv_heads": 1})
    toy("falcon-40b", T.FalconForCausalLM, dict(falcon, new_decoder_architecture=True, num_kv_heads=2,
                                                bias=False, rope_parameters=rope(1e4)), **half)
    # Four heads: their slopes and products with positions are exact in the 16 bits that the class rounds to.
    # Eager attention of this version adds ALiBi twice, to the scores and in the mask; sdpa does not.
    toy("falcon-rw", T.FalconForCausalLM, dict(falcon, multi_query=False, parallel_attn=False, bias=True,
                                               alibi=True), attention="sdpa", **half)
    opt = dict(vocab_size=vocab, hidden_size=36, ffn_dim=52, num_hidden_layers=2, num_attention_heads=4,
               max_position_embeddings=128, bos_token_id=2, eos_token_id=2, pad_token_id=1)
    toy("opt", T.OPTForCausalLM, dict(opt, word_embed_proj_dim=36), gains={"embed_tokens.weight": 0.5})
    toy("opt-350m", T.OPTForCausalLM, dict(opt, word_embed_proj_dim=20, do_layer_norm_before=False))
    toy("mpt", T.MptForCausalLM,
        dict(vocab_size=vocab, d_model=36, n_heads=6, n_layers=2, expansion_ratio=4, max_seq_len=128,
             attn_config=dict(clip_qkv=1.25, alibi=True), **ends), gains={"wte.weight": 0.5},
        released={"architectures": ["MPTForCausalLM"]})
    stable = dict(hidden_size=40, head_dim=None, layer_norm_eps=1e-5,
                  rope_parameters=rope(1e4, partial_rotary_factor=0.4))
    llama("stablelm", T.StableLmForCausalLM, **stable, use_qkv_bias=True)
    llama("stablelm-12b", T.StableLmForCausalLM, **stable, qk_layernorm=True, use_parallel_residual=True)
    toy("gptj", T.GPTJForCausalLM, dict(vocab_size=vocab, n_positions=128, n_embd=40, n_layer=2, n_head=4,
                                        n_inner=52, rotary_dim=4, tie_word_embeddings=False, **ends))
    llama("hunyuan", T.HunYuanDenseV1ForCausalLM, rms_norm_eps=1e-5, lengths=(40, 7, 1),
          max_position_embeddings=32, tie_word_embeddings=True,
          rope_parameters=rope(1e4, "dynamic", alpha=1000.0, beta_fast=32, beta_slow=1, factor=1.0,
                               mscale=1.0, mscale_all_dim=1.0),
          options={"gains": {"embed_tokens.weight": 0.5}, "released": {"max_position_embeddings": 32768}})
    layers = 3
    llama("minicpm", T.GraniteForCausalLM, **plain, num_hidden_layers=layers, rms_norm_eps=1e-5,
          embedding_multiplier=3, attention_multiplier=10**-0.5, residual_multiplier=1.4 / math.sqrt(layers),
          logits_scaling=1.6, tie_word_embeddings=True, rope_parameters=rope(1e4),
          options={"stored_config": minicpm_config,
                   "source": f"transformers {T.__version__} GraniteForCausalLM with MiniCPM's factors",
                   "gains": {"embed_tokens.weight": 0.6}})
    llama("nemotron", T.NemotronForCausalLM, norm_eps=1e-5,
          rope_parameters=rope(1e4, partial_rotary_factor=0.5), options={"plus_one": True})
