# SPDX-License-Identifier: Apache-2.0
"""Toys of encoder-decoders for make_families.py."""
import transformers as T


def define(toy, llama, rope, vocab):
    base = dict(vocab_size=vocab, d_model=36, encoder_layers=2, decoder_layers=3, encoder_attention_heads=4,
                decoder_attention_heads=6, encoder_ffn_dim=52, decoder_ffn_dim=44,
                max_position_embeddings=96, dropout=0.0)
    ends = dict(bos_token_id=0, pad_token_id=1, eos_token_id=2, forced_eos_token_id=2,
                decoder_start_token_id=2)
    # Weights that let the tokens before, not only the last one, choose the next.
    pre = {"fc1.weight": 2.0, "fc2.weight": 3.0, "shared.weight": 0.4, "q_proj.weight": 1.5}
    loud = {"fc1.weight": 3.0, "fc2.weight": 4.0, "out_proj.weight": 0.3, "bias": 0.3}
    toy("bart", T.BartForConditionalGeneration, dict(base, activation_function="gelu", **ends), pairs=True,
        avoid=(1,), gains=loud)
    toy("mbart", T.MBartForConditionalGeneration,
        dict(base, activation_function="gelu", scale_embedding=True, **ends), pairs=True, avoid=(1,),
        gains=dict(pre, **{"fc1.weight": 1.2, "fc2.weight": 5.0}))
    # The class saves its sinusoids and reads whatever the file has in their place; some files have none.
    for name, drop in (("pegasus", ()), ("pegasus-sinusoid", ("embed_positions.weight",))):
        toy(name, T.PegasusForConditionalGeneration,
            dict(base, activation_function="relu", scale_embedding=True, pad_token_id=0, eos_token_id=1,
                 forced_eos_token_id=1, decoder_start_token_id=0), pairs=True, drop=drop,
            gains=dict(loud, **{"shared.weight": 0.3, "bias": 0.5}))
    # Positions count the tokens that are not padding (id 1), so the texts have none of it.
    toy("m2m100", T.M2M100ForConditionalGeneration,
        dict(base, activation_function="relu", scale_embedding=True, encoder_layerdrop=0.0,
             decoder_layerdrop=0.0, bos_token_id=0, pad_token_id=1, eos_token_id=2, decoder_start_token_id=2),
        pairs=True, avoid=(1,), gains=pre)
    toy("marian-two", T.MarianMTModel,
        dict(base, decoder_vocab_size=53, share_encoder_decoder_embeddings=False, activation_function="swish",
             scale_embedding=True, pad_token_id=52, eos_token_id=1, forced_eos_token_id=1,
             decoder_start_token_id=52), pairs=True,
        gains={"embed_tokens.weight": 0.4, "fc2.weight": 4.0, "fc1.weight": 3.0, "out_proj.weight": 0.3,
               "bias": 0.3})
