#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes use/metrics.json: what sacrebleu (BLEU, chrF2) says about sentences of our own, and how its tokenizer
13a cuts them.

    python make_metrics.py > use/metrics.json

    python make_metrics.py TRANSLATIONS REFERENCES      what it says about two files, to compare with rapt
                                                        eval by hand
"""
import json
import sys

import sacrebleu
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

LINES = [
    "A dog runs over the wet grass.", "It costs 3,50 or $4.99, i.e. 1,234,567.89 at most.",
    "«Grüß Gott», sagte er – und ging…",
    "don't, won't; rock-'n'-roll", "Pages 10-12 and 5- 6 and a-b and 7-", "... and, so: on...",
    "3.14.15 .5 5. ,5 5, 5,a a,5 .,.",
    "&quot;Fish &amp; chips&quot; &lt;b&gt; &amp;lt;", "a<skipped>b a-\nb a\nb -\n",
    "tabs\tand\u00a0no-break\u2003em\u3000wide\u001cgroup",
    "{x} [y] (z) ~w^ `v` \\u/ |t| s_r @q #p %o *n +m =l <k> ?j! ;i:h\"g'", "", "   ", ".", "1.",
    "東京は、2024年の夏。とても暑い。", "🙂🙃 ok…ok",
    "ΟΔΥΣΣΕΥΣ ΣΑΣ Σ ΑΣ. ΑΣ'Β İstanbul STRASSE ǅ", "Ünïcödé «ÀÉÎ»", "email@host.example, http://x.y/z?q=1&r=2",
    "½ 3½ ²3 ٣.٤ ３．４",
    "U.S.A.'s 1990s-era F-16s; No.5, No. 5", "zero\u200bwidth soft\u00adhyphen", "-5 --5 5--5 5-a5-",
]
GOOD = [
    "A brown dog runs quickly over the wet grass.", "Two women in red coats wait for the bus at 7.30.",
    "The boy's kite is stuck in a tree, again.",
    "Nobody paid the 1,200 dollars; everybody went home.", "A man with a hat plays the accordion.",
    "Children throw snowballs at each other!",
    "“Where is it?” she asked.", "An old, rusty bicycle leans against the wall of the bakery.",
]
NEAR = [
    "A brown dog runs over the wet grass quickly.",
    "Two women in red jackets are waiting for the bus at 7.30", "The boys kite is stuck in the tree again.",
    "Nobody paid the 1,200 dollars; all went home.", "A man with a hat plays accordion.",
    "Children throw snowballs at each other!",
    "\"Where is it?\" she asked.", "An old rusty bike leans on the bakery's wall.",
]
CORPORA = {
    "near": (NEAR, GOOD),
    "all right": (GOOD, GOOD),
    "all wrong": (["xyzzy plugh"] * 3, ["A dog runs.", "Nobody came.", "It rains."]),
    "no letter right": (["q w", "zzz"], ["A dog runs.", "Nobody came."]),
    "too short": ([" ".join(g.split()[:4]) for g in GOOD], GOOD),
    "too long": ([g + " And then some more words follow." for g in GOOD], GOOD),
    "case": ([g.upper() for g in GOOD], GOOD),
    "case, unicode": (["ΟΔΥΣΣΕΥΣ ΚΑΙ ΆΛΛΟΙ. GRÖSSE ÜBER ALLEM", "İSTANBUL ÉTÉ"],
                      ["Οδυσσευς και άλλοι. grösse über allem", "i̇stanbul été"]),
    "smoothed": (["the cat sat here now", "a red fox"], ["the dog sat there later", "a blue fox"]),
    "smoothed twice": (["on the old bus today", "some old red hens"],
                       ["bus old the on yesterday", "hens red some"]),
    "one word each": (["dog", "cat", "bird"], ["dog", "cat", "fish"]),
    "three words": (["a dog ran"], ["a dog ran"]),
    "empty lines": (["", "A dog runs over the grass.", "", "  "],
                    ["Nothing.", "A dog runs over the grass.", "", "Words"]),
    "empty references": (["Some words here", "A dog runs over the wet grass."],
                         ["", "A dog runs over the wet grass."]),
    "all empty": (["", ""], ["", ""]),
    "nothing said": (["", ""], ["A dog.", "A cat."]),
    "repeated words": (["the the the the the the the", "of of the of the"],
                       ["The cat is on the mat. the the", "the top of the hill of the world"]),
    "short references": (["a longer line than that", "abcdef"], ["a", "abc"]),
    "unicode": (["東京は、2024年の夏。とても暑い。", "🙂🙃 ok…ok", "«Grüß Gott», sagte er – und ging…"],
                ["東京は2024年の夏、とても暑い。", "🙂 ok… ok", "»Grüß Gott«, sagte er und ging …"]),
    "signs": (LINES, [l.replace(",", " ,").replace("-", " - ") for l in LINES]),
    "signs, turned": (LINES, LINES[1:] + LINES[:1]),
}


def judged(translations, references):
    out = {}
    for lower in (False, True):
        b = BLEU(lowercase=lower).corpus_score(translations, [references])
        out["lower" if lower else "cased"] = {
            "bleu": b.score, "precisions": b.precisions, "brevity": b.bp, "length": b.sys_len,
            "reference_length": b.ref_len,
            "chrf": CHRF(lowercase=lower).corpus_score(translations, [references]).score,
            "chrf 3, beta 1": CHRF(char_order=3, beta=1, lowercase=lower).corpus_score(
                translations, [references]).score}
    return out


def main():
    if len(sys.argv) == 3:
        files = [[line.rstrip() for line in open(name, encoding="utf-8")] for name in sys.argv[1:]]
        print(json.dumps(judged(*files), indent=1))
        return
    tokenize = Tokenizer13a()
    out = {"source": f"sacrebleu {sacrebleu.__version__}",
           "tokens": [{"text": line, "tokens": tokenize(line).split()} for line in LINES],
           "corpora": [{"name": name, "translations": t, "references": r, **judged(t, r)}
                       for name, (t, r) in CORPORA.items()]}
    text = json.dumps(out, ensure_ascii=False)
    for cut in ('"tokens": [{', '"corpora"', '{"text"', '{"name"', '"translations"', '"references"',
                '"cased"', '"lower"'):
        text = text.replace(", " + cut, ",\n" + cut)
    print(text)


main()
