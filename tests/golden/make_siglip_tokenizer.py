#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tokenizers/siglip.json: a small SentencePiece model (Unigram) learnt here from words of our own, and
the ids of transformers' SiglipTokenizer for texts of our own. `model`: spiece.model in base64; `config`: its
tokenizer_config.json; `framed`: ids with the end, before they are filled up to the length of the model.
(needs transformers, sentencepiece)
"""
import base64
import io
import json
import pathlib
import tempfile

import sentencepiece
import transformers

WORDS = """a an the of on in and with photo picture drawing sketch small large red green blue grey cat cats
dog dogs bird horse boat boats house houses tree trees street river water light dark night morning
winter summer standing running sitting sleeping old new wooden round square under over beside near its
dont""".split()
TEXTS = [
    "a", "a photo of a cat", "A Photo Of A CAT.", "a photo of a dog, sitting beside the river!",
    "two  spaces,   three spaces\tand\na line end  ", "  leading and trailing  ",
    "It's the dog's house; don't", "3 boats (12 trees) [and] {2024} houses: 3.14 or 1,000",
    "caf\u00e9 na\u00efve \u00dcber", "wow!!! ... really?? #1 @home 50% $5 a&b a_b a-b a/b ~ ` ^ | \\",
    "\u201cquoted\u201d \u2013 dashes", "a " * 30,
]

lines = [" ".join(WORDS[i:i + 6]) for i in range(0, len(WORDS))] * 3
model = io.BytesIO()
sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(lines), model_writer=model, vocab_size=90, model_type="unigram", pad_id=-1,
    bos_id=-1, normalization_rule_name="identity", eos_id=1, unk_id=2, hard_vocab_limit=False, minloglevel=2,
    character_coverage=1.0)
with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / "spiece.model"
    path.write_bytes(model.getvalue())
    tokenizer = transformers.SiglipTokenizer(str(path), model_max_length=64)
    config = {"tokenizer_class": "SiglipTokenizer", "do_lower_case": True, "eos_token": "</s>",
              "pad_token": "</s>", "unk_token": "<unk>", "model_max_length": 64}
    out = {"source": f"transformers {transformers.__version__} SiglipTokenizer", "config": config,
           "texts": TEXTS,
           "framed": [tokenizer(t)["input_ids"] for t in TEXTS],
           "model": base64.b64encode(model.getvalue()).decode()}
here = pathlib.Path(__file__).resolve().parent / "tokenizers" / "siglip.json"
here.write_text("{\n" + ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in out.items()) + "\n}\n")
