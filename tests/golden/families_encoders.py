# SPDX-License-Identifier: Apache-2.0
"""Toys of encoders for make_families.py."""
import transformers as T


def nomic_config(c):
    """The keys of the released config.json, which belongs to a class in a file beside the weights."""
    return {"activation_function": "swiglu", "architectures": ["NomicBertModel"], "attn_pdrop": 0.0,
            "causal": False, "embd_pdrop": 0.0, "layer_norm_epsilon": c["layer_norm_eps"],
            "max_trained_positions": 2048, "mlp_fc1_bias": False, "mlp_fc2_bias": False,
            "model_type": "nomic_bert", "n_embd": c["hidden_size"], "n_head": c["num_attention_heads"],
            "n_inner": c["intermediate_size"], "n_layer": c["num_hidden_layers"], "n_positions": 8192,
            "parallel_block": False, "prenorm": False, "qkv_proj_bias": False,
            "rotary_emb_base": c["rope_parameters"]["rope_theta"], "rotary_emb_fraction": 1.0,
            "rotary_emb_interleaved": False, "rotary_emb_scale_base": None, "type_vocab_size": 2,
            "use_rms_norm": False, "vocab_size": c["vocab_size"]}


def define(toy, llama, rope, vocab):
    base = dict(vocab_size=vocab, hidden_size=36, intermediate_size=52, num_hidden_layers=2,
                num_attention_heads=4, max_position_embeddings=40)
    labels = dict(id2label={0: "red", 1: "green", 2: "blue"}, label2id={"red": 0, "green": 1, "blue": 2})

    def encoder(name, cls, config, **more):
        toy(name, cls, {**base, **config}, encoder=True, **more)

    # Positions count the tokens that are not padding (id 1), so the texts have none of it.
    roberta = dict(type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2, layer_norm_eps=1e-5)
    encoder("roberta", T.RobertaForMaskedLM, roberta, avoid=(1,))
    encoder("xlm-roberta", T.XLMRobertaModel, roberta, avoid=(1,), gains={"query.weight": 2.0})
    encoder("roberta-classifier", T.RobertaForSequenceClassification, dict(roberta, **labels), avoid=(1,),
            lengths=(24, 7, 1, 13), gains={"out_proj.weight": 3.0, "intermediate.dense.weight": 1.5})

    distil = dict(vocab_size=vocab, max_position_embeddings=40, n_layers=2, n_heads=4, dim=36, hidden_dim=52,
                  pad_token_id=0)
    toy("distilbert", T.DistilBertForMaskedLM, distil, encoder=True)
    toy("distilbert-classifier", T.DistilBertForSequenceClassification, dict(distil, **labels), encoder=True,
        lengths=(24, 7, 1, 13))

    # The class computes with 32 buckets whatever the config says.
    mpnet = dict(pad_token_id=1, bos_token_id=0, eos_token_id=2, layer_norm_eps=1e-5)
    encoder("mpnet", T.MPNetForMaskedLM, mpnet, avoid=(1,))
    encoder("mpnet-bare", T.MPNetModel, mpnet, avoid=(1,))

    special = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2)
    encoder("modernbert", T.ModernBertForMaskedLM,
            dict(special, hidden_size=40, num_hidden_layers=5, local_attention=8), lengths=(33, 7, 1),
            gains={"tok_embeddings.weight": 0.5, "decoder.bias": 1.0})
    nomic = dict(hidden_size=40, type_vocab_size=2, pad_token_id=0, rope_parameters=rope(1e3))
    encoder("nomic-bert", T.NomicBertModel, nomic, types=True)
    encoder("nomic-bert-remote", T.NomicBertModel, nomic, types=True, stored_config=nomic_config,
            released=nomic_config({**base, **nomic, "layer_norm_eps": 1e-12}))

    electra = dict(type_vocab_size=2, pad_token_id=0)
    encoder("electra", T.ElectraForMaskedLM, dict(electra, embedding_size=36), types=True)
    encoder("electra-small", T.ElectraForMaskedLM, dict(electra, embedding_size=20), types=True)
    encoder("albert", T.AlbertForMaskedLM,
            dict(embedding_size=20, num_hidden_layers=3, num_hidden_groups=1, inner_group_num=1,
                 type_vocab_size=2, pad_token_id=0, bos_token_id=2, eos_token_id=3), types=True)

    # The released v3 files do not say `legacy`; its default keeps the head of BERT's names, the other one
    # takes the names that the released tensors have.
    deberta = dict(relative_attention=True, max_relative_positions=-1, position_buckets=8, share_att_key=True,
                   norm_rel_ebd="layer_norm", pos_att_type="p2c|c2p", position_biased_input=False,
                   type_vocab_size=0, pad_token_id=0, layer_norm_eps=1e-7)
    encoder("deberta-v3", T.DebertaV2ForMaskedLM, deberta)
    encoder("deberta-v3-lm", T.DebertaV2ForMaskedLM, dict(deberta, legacy=False))
    encoder("deberta-v3-bare", T.DebertaV2Model, dict(deberta, num_hidden_layers=3))
    encoder("deberta-v3-classifier", T.DebertaV2ForSequenceClassification, dict(deberta, **labels),
            lengths=(24, 7, 1, 13), gains={"classifier.weight": 3.0})
