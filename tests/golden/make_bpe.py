#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tokenizers/bpe.json: byte-level BPE vocabularies that tokenizers' BpeTrainer learns from a text made
here, for train_test.cc.
   make_bpe.py                        (needs tokenizers)
   make_bpe.py --compare A.json FILE… [--size N] [--least N] [--lower] [--lines] [--special S]…
     is A.json what BpeTrainer makes of these files?
"""
import argparse
import gzip
import json
import pathlib
import sys

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers


def train(texts, size, least, lower, specials):
    tok = Tokenizer(models.BPE())
    if lower:
        tok.normalizer = normalizers.Lowercase()
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, min_frequency=least,
                                                       special_tokens=specials, show_progress=False,
                                                       initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    model = json.loads(tok.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    return tokens, [m if isinstance(m, list) else m.split(" ") for m in model["merges"]]


def texts():
    """Words of syllables, common ones often: enough ties, overlaps (aaaa, ababab) and tokens with two
    spellings."""
    state = 12345

    def below(n):
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (state >> 33) % n

    syllables = ["ka", "ra", "to", "mi", "an", "ana", "a", "ba", "nan", "sch", "ö", "ü", "lé", "re", "er",
                 "st", "ing", "ung", "x", "Δ"]
    words = ["".join(syllables[below(len(syllables))] for _ in range(1 + below(5))) for _ in range(160)]
    words[30:30] = (["a" * n for n in range(2, 18)] + ["ba" * n for n in range(2, 9)]
                    + ["a" * n + "b" for n in range(3, 12)] + ["na" + "ana" * n for n in range(9)])
    out = []
    for _ in range(70):
        line = []
        for _ in range(4 + below(14)):
            word = words[min(below(len(words)), below(len(words)))]
            kind = below(12)
            line.append(word.capitalize() if kind == 0 else word + "'s" if kind == 1 else word + ","
                        if kind == 2 else str(below(500)) if kind == 3 else word)
        out.append(("  " if below(9) == 0 else "") + " ".join(line) + ("." if below(2) else "?!") +
                   ("\n\n" if below(5) == 0 else "\n" if below(3) else "\t "))
    return out


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--compare")
    p.add_argument("files", nargs="*")
    p.add_argument("--size", type=int, default=4096)
    p.add_argument("--least", type=int, default=2)
    p.add_argument("--lower", action="store_true")
    p.add_argument("--lines", action="store_true")
    p.add_argument("--special", action="append", default=[])
    a = p.parse_args()
    if a.compare:
        data = []
        for f in a.files:
            with (gzip.open if f.endswith(".gz") else open)(f, "rt", encoding="utf-8", newline="") as r:
                data += r.read().removesuffix("\n").split("\n") if a.lines else [r.read()]
        tokens, merges = train(data, a.size, a.least, a.lower, a.special)
        ours = json.loads(pathlib.Path(a.compare).read_text("utf-8"))["model"]
        same_tokens = tokens == sorted(ours["vocab"], key=ours["vocab"].get)
        same_merges = merges == ours["merges"]
        first = next((i for i, (x, y) in enumerate(zip(merges, ours["merges"])) if x != y),
                     min(len(merges), len(ours["merges"])))
        print(
            f"{len(tokens)} tokens: {'equal' if same_tokens else 'DIFFERENT'}; {len(merges)} merges: "
            f"{'equal' if same_merges else f'DIFFERENT from {first} on'}")
        if not same_merges:
            print(merges[first - 2:first + 4], ours["merges"][first - 2:first + 4], len(ours["merges"]))
        sys.exit(not (same_tokens and same_merges))
    cases = []
    for size, least, lower, specials in [(300, 2, False, []), (520, 2, False, ["<pad>", "<unk>", "</s>"]),
                                         (450, 2, True, ["<|endoftext|>"]),
                                         (2000, 6, False, []),
                                         (5000, 1, False, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])]:
        tokens, merges = train(texts(), size, least, lower, specials)
        # Every token beyond bytes is some merge: by id, the merge that first made it; then merges by rank as
        # pairs of ids.
        ids = {t: i for i, t in enumerate(tokens)}
        cases.append({"size": size, "least": least, "lower": lower, "special": specials,
                      "tokens": len(tokens), "last": tokens[-1],
                      "made": [[ids[x], ids[y], ids[x + y]] for x, y in merges]})
    out = pathlib.Path(__file__).parent / "tokenizers" / "bpe.json"
    body = ",\n".join(json.dumps(c, ensure_ascii=False, separators=(",", ":")) for c in cases)
    out.write_text('{"source": "tokenizers %s, BpeTrainer",\n"texts": %s,\n"cases": [\n%s\n]}\n' % (
        __import__("tokenizers").__version__, json.dumps(texts(), ensure_ascii=False, indent=0), body),
                   "utf-8")
    print(out, out.stat().st_size)


if __name__ == "__main__":
    main()
