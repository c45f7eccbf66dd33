#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tokenizers/clip.json: a small vocabulary of CLIP's kind (bytes, bytes that end a word, merges, two
special tokens) learnt here from words of our own, and the ids of transformers' CLIPTokenizer for texts of our
own. `json`: the text of tokenizer.json as it is saved; `vocab` and `merges`: the other form of the same, as
vocab.json and the lines of merges.txt; `ids`: without and `framed`: with start and end; `decoded`: what the
ids without start and end read as.    (needs transformers)
"""
import collections
import json
import pathlib
import tempfile

import transformers
from tokenizers import pre_tokenizers

WORDS = """a an the of on in and with photo picture drawing sketch small large red green blue grey cat cats
dog dogs bird horse boat boats house houses tree trees street river water light dark night morning winter
summer standing running sitting sleeping old new wooden round square under over beside near""".split()
TEXTS = [
    "", " ", "a", "a photo of a cat", "A Photo Of A CAT.", "a photo of a dog, sitting beside the river",
    "two  spaces,   three spaces\tand\na line end  ", "  leading and trailing  ",
    "It's the dog's house; they're near, we've seen it, I'll go, I'm old, he'd run, don't",
    "'tis o'clock 'S 'T rock'n'roll THEY'RE", "3 boats, 12 trees and 2024 houses; 3.14 or 1,000",
    "caf\u00e9 na\u00efve \u00dcber stra\u00dfe \u0141\u00f3d\u017a", "cafe\u0301 u\u0308ber (combining)",
    "\u4e00\u53ea\u732b\u5728\u6811\u4e0b", "\u4e00\u53ea\u732b and a dog", "\u30cd\u30b3 \u3068 \u72ac",
    "\U0001F431 and \U0001F436\U0001F436!",
    "\U0001F468\u200d\U0001F469\u200d\U0001F467 \U0001F44D\U0001F3FD \u2764\ufe0f",
    "wow!!! ... really?? (yes) [no] {x} #1 @home 50% $5 a&b a_b a-b a/b", "e-mail: cat@house.tree",
    "<|startoftext|> and <|endoftext|> are only text here", "the</w> end</w>",
    "\u043a\u043e\u0442 \u0438 \u0421\u041e\u0411\u0410\u041a\u0410",
    "\u00bd cup, x\u00b2, \u2167 and \u0663",
    "\u00a0odd\u2003spaces\u3000here\u200b", "sleepingsleepingsleeping standingstill",
    "\u0130stanbul \u01c4 \u1e9e \u03a3\u03b1\u03c2", "a" * 40,
]


def learn(count):
    """The most common pair first, of equal ones the first by name: `count` merges."""
    left = 3 * (len(WORDS) - 2)
    words = collections.Counter()
    for i, word in enumerate(WORDS):
        words[tuple(word[:-1]) + (word[-1] + "</w>",)] += max(1, left // (i + 1))
    merges = []
    while len(merges) < count:
        pairs = collections.Counter()
        for word, n in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += n
        best = min(pairs, key=lambda p: (-pairs[p], p))
        merges.append(best)
        merged = collections.Counter()
        for word, n in words.items():
            out = []
            for piece in word:
                if out and (out[-1], piece) == best:
                    out[-1] += piece
                else:
                    out.append(piece)
            merged[tuple(out)] += n
        words = merged
    return merges


def main():
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = learn(60)
    tokens = letters + [x + "</w>" for x in letters] + [a + b for a, b in merges]
    tokens += ["<|startoftext|>", "<|endoftext|>"]
    vocab = {x: i for i, x in enumerate(tokens)}
    assert len(vocab) == len(tokens)
    with tempfile.TemporaryDirectory() as folder:
        made = transformers.CLIPTokenizer(vocab=vocab, merges=merges)
        made.save_pretrained(folder)
        saved = (pathlib.Path(folder) / "tokenizer.json").read_text("utf-8")
        backend = transformers.CLIPTokenizer.from_pretrained(folder).backend_tokenizer
        backend.encode_special_tokens = True  # their text stays text, as for us
        ids = [backend.encode(x, add_special_tokens=False).ids for x in TEXTS]
        framed = [backend.encode(x).ids for x in TEXTS]
        decoded = [made.backend_tokenizer.decode(x, skip_special_tokens=False) for x in ids]
    out = {"source": f"transformers {transformers.__version__} CLIPTokenizer", "texts": TEXTS,
           "json": json.dumps(json.loads(saved), separators=(",", ":")), "vocab": vocab,
           "merges": ["#version: 0.2"] + [" ".join(x) for x in merges], "ids": ids, "framed": framed,
           "decoded": decoded}
    path = pathlib.Path(__file__).parent / "tokenizers" / "clip.json"
    lines = [f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in out.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(path.name, path.stat().st_size, "bytes;", merges[-5:])
    inverse = {i: x for x, i in vocab.items()}
    for text, each, back in zip(TEXTS, ids, decoded):
        print(repr(text)[:50], [inverse[i] for i in each][:14], repr(back)[:40])


if __name__ == "__main__":
    main()
