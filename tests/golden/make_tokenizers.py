#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tokenizers/ids.json: ids of the original implementations for texts of our own, over the vocabularies
of the data folder and over small ones made here.   make_tokenizers.py --data DATA
(needs tokenizers, sentencepiece, gguf)
"""
import argparse
import base64
import json
import pathlib
import tempfile

import sentencepiece
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors, trainers)

import compare_tokenizers as compare

TEXTS = [
    "", " ", "a", "Hello there, General! How's the weather? It's 23.5\u00b0C.",
    "I've they'LL we'd you'RE 'tis o'clock rock'n'roll 'S'T",
    "  two leading, three   inside, trailing  ", "tabs\tand\nline ends\r\n\r\n\n  then more\n\n",
    "3 33 333 3333 33333 1234567890 3.14159 1,000,000 \u00bd \u0663\u0664\u0665 \u2167",
    "camelCaseWords snake_case_words UPPER lower Title mIxEd x86-64 C++20 e.g. U.S.A.",
    "for (int i = 0; i < n; ++i) {\n    x[i] += y[i] * 0x1F;  // add\n}\n",
    "{\"key\": [1, 22, 333], \"x\": null} <div class=\"a\">&nbsp;</div> C:\\dir\\file.txt",
    "Die Stra\u00dfe f\u00fchrt \u00fcber den Fl\u00fcss; \u00c4rger? Na\u00efve caf\u00e9, d\u00e9j\u00e0 "
    "vu, \u0141\u00f3d\u017a.",
    "e\u0301 a\u0308 n\u0303 o\u0302\u0323 A\u030a combining, \u00e9 \u00e4 \u00f1 \u1ed9 \u00c5 composed, "
    "\u212b angstrom, \ufb01 ligature, \u2460 circled, \uff21\uff22\uff23 wide",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! "
    "\u039a\u03b1\u03bb\u03b7\u03bc\u03ad\u03c1\u03b1, \u03ba\u03cc\u03c3\u03bc\u03b5. "
    "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd. \u0645\u0631\u062d\u0628\u0627 "
    "\u0628\u0627\u0644\u0639\u0627\u0644\u0645\u060c \u0643\u064a\u0641\u061f",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e\u0964 "
    "\u09a8\u09ae\u09b8\u09cd\u0995\u09be\u09b0 \u0bb5\u0ba3\u0b95\u0bcd\u0b95\u0bae\u0bcd "
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01 "
    "\u1787\u17c6\u179a\u17b6\u1794\u179f\u17bd\u179a",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01\u4eca\u5929\u5929\u6c14\u5f88\u597d\u3002 "
    "\u3053\u3093\u306b\u3061\u306f\u4e16\u754c\u3001\u30ab\u30bf\u30ab\u30ca\u3068\u6f22\u5b57\u3002 "
    "\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4! \u1112\u1161\u11ab\u1100\u1173\u11af",
    "\U0001F600 \U0001F468\u200d\U0001F469\u200d\U0001F467\u200d\U0001F466 \U0001F44D\U0001F3FD \u2764\ufe0f "
    "\U0001F1E9\U0001F1EA 1\ufe0f\u20e3 \U0001F3F4\U000E0067\U000E0062\U000E007F \u00a9\u2122",
    "odd\u00a0spaces\u2003here\u200b\u3000\u205f\u1680x\u0085y\u2028z\ufeffend "
    "\u0009\u000b\u000c\u0001\u0002\u007f", "\u2581visible\u2581space \u2581 \u2581\u2581",
    "<s> </s> <unk> [CLS] [SEP] [MASK] <|endoftext|> <|im_start|>user<|im_end|> <|eot_id|> are only text here",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa b",
    "!!!??? ... --- === *** ''' \"\"\" ``` ~~~ @@@ ### $$$ %%% ^^^ &&& ((( )))",
    "=" * 70 + "\n" + " " * 33 + "x\n\n\n\n" + "\t" * 5,
    "\ud7fb\ue000\ufffd\U0010ffff\U00020000\U0002fa1d \u0000 nul",
]
SEED_TEXT = ["a small text to learn pieces from, with words and more words",
             "the cat sat on the mat and the dog sat on the cat", "words of a text are pieces of words",
             "lower and lowest, new and newest, wide and widest", "sie sagt das Wort und das Wort sagt sie",
             "one two three four five six seven eight nine ten"]


def small():
    def encode(tok):
        tok.encode_special_tokens = True  # their text stays text, as for us
        ids = [tok.encode(t, add_special_tokens=False).ids for t in TEXTS]
        tok.encode_special_tokens = False
        return ids

    def keep(name, tok):
        return {"name": name, "json": tok.to_str(), "ids": encode(tok), "framed": tok.encode(TEXTS[3]).ids}

    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(SEED_TEXT, trainers.BpeTrainer(vocab_size=330,
                                                           initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<|endoftext|>"]))
    yield keep("byte-level BPE", tok)
    tok = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tok.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip(),
                                           normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tok.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")
    tok.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.Fuse(),
                                     decoders.Strip(" ", 1, 0)])
    tok.train_from_iterator(SEED_TEXT, trainers.BpeTrainer(vocab_size=120,
                                                           special_tokens=["<unk>", "<s>", "</s>"]))
    tok.add_tokens([AddedToken("words", single_word=True, normalized=True),
                    AddedToken("General", lstrip=True, rstrip=True, normalized=False)])
    tok.post_processor = processors.TemplateProcessing(single="<s> $A </s>",
                                                       special_tokens=[("<s>", 1), ("</s>", 2)])
    yield keep("character BPE", tok)
    tok = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=12))
    tok.normalizer = normalizers.BertNormalizer(lowercase=True)
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tok.decoder = decoders.WordPiece()
    tok.train_from_iterator(SEED_TEXT + TEXTS,
                            trainers.WordPieceTrainer(vocab_size=400,
                                                      special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]",
                                                                      "[MASK]"]))
    tok.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    yield keep("WordPiece", tok)
    tok = Tokenizer(models.Unigram())
    tok.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(),
                                           normalizers.Replace(Regex(" {2,}"), " ")])
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(),
                                                 pre_tokenizers.Metaspace(prepend_scheme="always")])
    tok.decoder = decoders.Metaspace()
    tok.train_from_iterator(SEED_TEXT, trainers.UnigramTrainer(vocab_size=90,
                                                               special_tokens=["<unk>", "<end>"],
                                                               unk_token="<unk>"))
    tok.post_processor = processors.TemplateProcessing(single="$A <end>", special_tokens=[("<end>", 1)])
    yield keep("Unigram", tok)

    with tempfile.TemporaryDirectory() as folder:
        rules = pathlib.Path(folder) / "rules.tsv"
        rules.write_text(
            "0041\t0061\n0042\t0062\n0065 0301\t00E9\nFB01\t0066 0069\n000A\t0020\n0009\t0020\n200B\t\n"
            "2026\t002E 002E 002E\n")
        for name, how in {
            "SentencePiece Unigram": dict(model_type="unigram", normalization_rule_tsv=str(rules),
                                          user_defined_symbols=["<sep>", "dog"]),
            "SentencePiece Unigram with bytes": dict(model_type="unigram", normalization_rule_name="identity",
                                                     byte_fallback=True, remove_extra_whitespaces=False),
            "SentencePiece BPE": dict(model_type="bpe", normalization_rule_tsv=str(rules),
                                      user_defined_symbols=["<sep>", "sat on"]),
            "SentencePiece BPE with bytes": dict(model_type="bpe", normalization_rule_name="identity",
                                                 byte_fallback=True, remove_extra_whitespaces=False),
        }.items():
            stem = str(pathlib.Path(folder) / "m")
            sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(SEED_TEXT * 4), model_prefix=stem,
                                                     vocab_size=370 if how.get("byte_fallback") else 100,
                                                     hard_vocab_limit=False, minloglevel=2,
                                                     num_threads=1, **how)
            blob = pathlib.Path(stem + ".model").read_bytes()
            sp = sentencepiece.SentencePieceProcessor(model_proto=blob)
            yield {"name": name, "model": base64.b64encode(blob).decode(),
                   "ids": [sp.encode(t) for t in TEXTS]}


def vocabularies(data):
    class Args:
        models = None
    Args.data = data
    with tempfile.TemporaryDirectory() as folder:
        for name, make in compare.cases(Args, pathlib.Path(folder), TEXTS):
            if "(GGUF)" in name:
                path, reference = make()
                yield path.name, reference(TEXTS)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--data", type=pathlib.Path, required=True)
    args = p.parse_args()
    out = {"texts": TEXTS, "vocab": dict(vocabularies(args.data)), "small": list(small())}
    path = pathlib.Path(__file__).parent / "tokenizers" / "ids.json"
    path.write_text(json.dumps(out, ensure_ascii=True, separators=(",", ":")) + "\n")
    print(path, path.stat().st_size, "bytes", list(out["vocab"]), [s["name"] for s in out["small"]])


if __name__ == "__main__":
    main()
