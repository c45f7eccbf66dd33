#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares our ids with those of the original implementations on megabytes of mixed text, for every kind of
tokenizer.

  compare_tokenizers.py TESTS --data DATA [--models MODELS] [--work FOLDER] [--megabytes 6] [--only NAME,...]

TESTS is the test program (rapt_tests); its test TokenizerBatch.Documents encodes a file of documents. Needs
tokenizers, sentencepiece and gguf beside Python (tests/golden/README.md). Prints bytes compared, documents,
mismatches and round trips per tokenizer.
"""
import argparse
import array
import gzip
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import tempfile

import gguf
import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as sp_pb
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

REGEX = {
    "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen35": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "minicpm": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "seed_coder": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+",
    "bailing": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    "gpt4o": (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
              r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
              r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"),
    "tekken": (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
               r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|"
               r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"),
    "bloom": " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+",
}
DEEPSEEK3 = [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
             "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n"
             "\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|"
             "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"]
DEEPSEEK_CODER = [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"]


def deepseek_llm():
    """The letters of DeepSeek LLM's pattern, from our own table so that it stands in one place."""
    text = (pathlib.Path(__file__).parents[2] / "rapt/text/tokenizer/patterns.cc").read_text()
    body = text.split("kDeepseekLetters[] = {")[1].split("};")[0]
    letters = ""
    for part in body.replace("{", "").split("},"):
        numbers = [int(x, 16) for x in part.split(",") if x.strip()]
        if numbers:
            letters += chr(numbers[0]) + ("" if numbers[0] == numbers[1] else "-" + chr(numbers[1]))
    return [r"[\r\n]", rf"\s?[{letters}]+",
            "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", r"\s+$",
            "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"]


# ---- text --------------------------------------------------------------------------------------------------
SCRIPTS = [(0x61, 0x7A), (0xC0, 0x17F), (0x370, 0x3FF), (0x400, 0x4FF), (0x531, 0x587), (0x5D0, 0x5EA),
           (0x620, 0x64A), (0x904, 0x94D), (0x980, 0x9CD), (0xA05, 0xA4D), (0xB05, 0xB4D), (0xB85, 0xBCD),
           (0xC05, 0xC4D), (0xD05, 0xD4D), (0xE01, 0xE4E), (0xE81, 0xECD),
           (0xF40, 0xF7E), (0x1000, 0x104F), (0x10A0, 0x10FF), (0x1200, 0x135A), (0x13A0, 0x13F5),
           (0x1780, 0x17D3), (0x1820, 0x1878), (0x1E00, 0x1EFF), (0x1F00, 0x1FFE), (0x3041, 0x3096),
           (0x30A1, 0x30FA), (0x3105, 0x312F), (0x4E00, 0x9FA5), (0xAC00, 0xD7A3),
           (0x1100, 0x11FF), (0xFF21, 0xFF5A), (0xFB00, 0xFB06), (0x2100, 0x214F), (0x2460, 0x24FF),
           (0x1D400, 0x1D4FF), (0x10400, 0x1044F), (0x20000, 0x2A6DF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1D),
           (0x1E900, 0x1E943), (0x16A0, 0x16EA), (0xA000, 0xA48C)]
SPACES = "\t\n\r\x0b\x0c \u0085\u00a0\u1680\u2000\u2002\u2003\u2009\u200a\u2028\u2029\u202f\u205f\u3000\u200b\ufeff\u180e"
EMOJI = ["\U0001F600", "\U0001F44D\U0001F3FD", "\U0001F468\u200d\U0001F469\u200d\U0001F467",
         "\U0001F3F4\U000E0067\U000E0062\U000E007F",
         "\u2764\ufe0f", "\U0001F1E9\U0001F1EA", "1\ufe0f\u20e3", "\U0001F926\U0001F3FC\u200d\u2642\ufe0f",
         "\u00a9", "\u2122", "\u261d\U0001F3FF"]
MARKS = "\u0300\u0301\u0302\u0303\u0308\u030a\u0323\u0327\u0345\u0653\u0654\u093c\u09bc\u3099\u309a\u20d0\u1ab0\u0489\u05b0\u064b"
CODE = ["for (int i = 0; i < n; ++i) {\n    x[i] += y[i] * 0x1F;\n}\n",
        "def f(self, *args, **kw):\n\treturn [a for a in args if a != None]\n",
        "SELECT * FROM t WHERE a >= 10.5e-3 AND b LIKE '%x_';", "<div class=\"a-b\">&nbsp;</div>\r\n",
        "#include <vector>\nstd::vector<int>\n\n\n",
        "$ ls -la | grep '^d' && echo \"done\" > /dev/null 2>&1",
        "{\"key\": [1, 22, 333, 4444, 55555], \"x\": null}", "a\\nb\\tc \\u00e9 C:\\dir\\f.txt"]
ENGLISH = ("I've you're he'S they'LL we'd it's don't isn't can'T I'M y'all 'tis o'clock rock'n'roll 'ſ 'Ve "
           "'' ''s").split(" ")


def generated(size, seed):
    r = random.Random(seed)
    out, total = [], 0
    assigned = [c for c in range(0x20, 0x30000) if not 0xD800 <= c <= 0xDFFF]

    def word():
        kind = r.random()
        if kind < 0.45:
            lo, hi = r.choice(SCRIPTS)
            w = "".join(chr(r.randint(lo, hi)) for _ in range(min(40, int(r.expovariate(0.2)) + 1)))
            return w.upper() if r.random() < 0.15 else w.title() if r.random() < 0.2 else w
        if kind < 0.55:
            return r.choice(EMOJI) * r.choice([1, 1, 1, 2, 3])
        if kind < 0.63:
            base = r.choice("aeiouAEIOUnscz\u0915\u0e01\u05d0\u0627\u304b\u30cf\u1100")
            return "".join(base + "".join(r.choice(MARKS) for _ in range(r.choice([1, 1, 2, 3])))
                           for _ in range(r.randint(1, 5)))
        if kind < 0.70:
            return (str(r.randint(0, 10 ** r.randint(1, 18)))
                    + r.choice(["", ".", ",5", "%", "\u00bd", "\u0663\u0664", "\u2167", "\u00b2"]))
        if kind < 0.76:
            return "".join(
                r.choice(
                    "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|"
                    "}~\u2026\u2014\u00ab\u00bb\u3002\uff0c\u060c\u0964\u20ac\u00a3\u221e\u2260")
                for _ in range(r.randint(1, 8)))
        if kind < 0.80:
            return r.choice(CODE)
        if kind < 0.84:
            return r.choice(ENGLISH)
        if kind < 0.87:
            return "".join(chr(r.choice([*range(0, 32), 127, 0x80, 0x85, 0x9F, 0xAD, 0x200E, 0x2060, 0xFFFD,
                                         0xFFFC, 0xE000, 0x10FFFF])) for _ in range(r.randint(1, 3)))
        if kind < 0.90:
            return "".join(chr(r.choice(assigned)) for _ in range(r.randint(1, 6)))
        if kind < 0.902:
            return (r.choice(["a", "ab", "x1", "\u6f22", "\u00e9", ".", "=", "-", " ", "\n", "ha"])
                    * r.randint(50, 3000))
        return r.choice(["the", "Hello", "World", "TOKEN", "camelCaseWords", "snake_case", "e.g.", "U.S.A.",
                         "3rd", "x86-64", "na\u00efve", "stra\u00dfe"])

    while total < size:
        parts = []
        for _ in range(r.randint(1, 400)):
            parts.append(word())
            s = r.random()
            parts.append(" " if s < 0.6 else "" if s < 0.8 else r.choice(SPACES) * r.choice([1, 1, 2, 3, 5]))
        text = "".join(parts)
        out.append(text)
        total += len(text.encode())
    return out


def documents(data, megabytes, seed=1):
    docs = []
    for name in ("text/tinyshakespeare.txt", "text/wikitext2-valid.txt"):
        text = (data / name).read_text(encoding="utf8")
        docs += [text[i:i + 20000] for i in range(0, len(text), 20000)]
    for language in ("de", "en"):
        lines = gzip.open(data / f"multi30k/val.{language}.gz", "rt", encoding="utf8").read()
        docs += [lines[i:i + 5000] for i in range(0, len(lines), 5000)]
    docs += ["", " ", "  ", "\n", "a", " a", "a ", "\u2581", " \u2581 a", "\u2581\u2581a"]
    have = sum(len(d.encode()) for d in docs)
    return docs + generated(max(1_000_000, int(megabytes * 1e6) - have), seed)


# ---- tokenizers: name -> (path for us, function for the reference, texts come back) ------------------------
def metadata(path):
    reader = gguf.GGUFReader(path)
    return {k.removeprefix("tokenizer.ggml."): f.contents() for k, f in reader.fields.items()
            if k.startswith("tokenizer.ggml.")}


def bpe(meta, pre, work, name, normalizer=None, ignore_merges=False, special=True):
    tokens, types = meta["tokens"], meta["token_type"]
    vocab = {t: i for i, t in enumerate(tokens)}
    merges = [tuple(m.split(" ", 1)) for m in meta["merges"]]
    tok = Tokenizer(models.BPE(vocab, merges, ignore_merges=ignore_merges))
    tok.add_tokens([AddedToken(t, normalized=False) for i, t in enumerate(tokens) if types[i] == 4])
    if normalizer:
        tok.normalizer = normalizer
    tok.pre_tokenizer = pre
    tok.decoder = decoders.ByteLevel()
    path = work / f"{name}.json"
    tok.save(str(path))
    return path, lambda texts: [e.ids for e in tok.encode_batch(texts, add_special_tokens=False)]


def byte_level(regexes, digits=False):
    steps = [pre_tokenizers.Split(Regex(r), "isolated") for r in regexes]
    if digits:
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    return pre_tokenizers.Sequence(steps +
                                   [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def spm_proto(meta, model_type=2, **normal):
    m = sp_pb.ModelProto()
    for text, score, kind in zip(meta["tokens"], meta["scores"], meta["token_type"]):
        p = m.pieces.add()
        # GGUF stores the spaces themselves
        p.piece, p.score, p.type = text.replace(" ", "\u2581") if kind == 4 else text, score, kind
    m.pieces[meta.get("unknown_token_id", 0)].type = 2  # some converters call it a control token
    m.trainer_spec.model_type = model_type
    m.trainer_spec.byte_fallback = True
    m.trainer_spec.vocab_size = len(meta["tokens"])
    ids = {"unk": meta.get("unknown_token_id", 0), "bos": meta.get("bos_token_id", -1),
           "eos": meta.get("eos_token_id", -1)}
    for k, v in ids.items():
        setattr(m.trainer_spec, f"{k}_id", v)
        if v >= 0:
            setattr(m.trainer_spec, f"{k}_piece", meta["tokens"][v])
    m.normalizer_spec.name = "identity"
    m.normalizer_spec.add_dummy_prefix = normal.get("prefix", True)
    m.normalizer_spec.remove_extra_whitespaces = False
    return m


def sp_reference(blob):
    sp = sentencepiece.SentencePieceProcessor(model_proto=blob)
    return lambda texts: [sp.encode(t) for t in texts]


def cases(args, work, docs):
    vocab = args.data / "vocab"
    gpt2 = lambda: metadata(vocab / "ggml-vocab-gpt-2.gguf")
    llama3 = lambda: metadata(vocab / "ggml-vocab-llama-bpe.gguf")

    def pair(name, path, meta, pre, **how):
        yield name + " (GGUF)", lambda: (path, bpe(meta(), pre(), work, name, **how)[1])
        yield name + " (tokenizer.json)", lambda: bpe(meta(), pre(), work, name, **how)

    yield from pair("gpt-2", vocab / "ggml-vocab-gpt-2.gguf", gpt2,
                    lambda: pre_tokenizers.ByteLevel(add_prefix_space=False))
    yield from pair("llama-bpe", vocab / "ggml-vocab-llama-bpe.gguf", llama3,
                    lambda: byte_level([REGEX["llama3"]]), ignore_merges=True)
    yield from pair("qwen2", vocab / "ggml-vocab-qwen2.gguf",
                    lambda: metadata(vocab / "ggml-vocab-qwen2.gguf"),
                    lambda: byte_level([REGEX["qwen2"]]), normalizer=normalizers.NFC())
    yield from pair("deepseek-llm", vocab / "ggml-vocab-deepseek-llm.gguf",
                    lambda: metadata(vocab / "ggml-vocab-deepseek-llm.gguf"),
                    lambda: byte_level(deepseek_llm(), digits=True))
    if args.models:
        smol = args.models / "SmolLM2-135M-Instruct.Q4_1.gguf"
        yield from pair("smollm", smol, lambda: metadata(smol),
                        lambda: pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                         pre_tokenizers.ByteLevel(add_prefix_space=False)]))
    # Their splits over Llama 3's vocabulary.
    for name in ("qwen35", "minicpm", "seed_coder", "bailing", "gpt4o", "tekken", "bloom"):
        yield name + " split", lambda name=name: bpe(llama3(), byte_level([REGEX[name]]), work, name)
    yield "deepseek-v3 split", lambda: bpe(llama3(), byte_level(DEEPSEEK3), work, "deepseek3")
    yield "deepseek-coder split", lambda: bpe(llama3(), byte_level(DEEPSEEK_CODER, digits=True), work,
                                              "deepseek_coder")
    yield "falcon split", lambda: bpe(gpt2(), pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
        pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")]), work, "falcon")
    for form in ("NFD", "NFKC", "NFKD"):
        yield form, lambda form=form: bpe(gpt2(), pre_tokenizers.ByteLevel(add_prefix_space=True), work, form,
                                          normalizer=getattr(normalizers, form)())

    def wordpiece(path, json_path):
        tok = Tokenizer.from_file(str(json_path))
        tok.no_truncation()
        tok.no_padding()
        return path, lambda texts: [e.ids for e in tok.encode_batch(texts, add_special_tokens=False)]

    def wordpiece_of_gguf(path):
        spelt = {}
        for i, t in enumerate(metadata(path)["tokens"]):
            spelt[t[1:] if t.startswith("\u2581") else t if t.startswith("[")
                  and t.endswith("]") else "##" + t] = i
        tok = Tokenizer(models.WordPiece(spelt, unk_token="[UNK]"))
        tok.normalizer = normalizers.BertNormalizer()
        tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        return path, lambda texts: [e.ids for e in tok.encode_batch(texts, add_special_tokens=False)]

    yield "WordPiece (GGUF)", lambda: wordpiece_of_gguf(vocab / "ggml-vocab-bert-bge.gguf")
    if args.models:
        mini = args.models / "all-MiniLM-L6-v2"
        yield "WordPiece (tokenizer.json)", lambda: wordpiece(mini / "tokenizer.json",
                                                              mini / "tokenizer.json")

    def spm(name, path, meta, as_gguf, **normal):
        blob = spm_proto(meta, **normal).SerializeToString()
        out = work / f"{name}.model"
        out.write_bytes(blob)
        return path if as_gguf else out, sp_reference(blob)

    llama2 = vocab / "ggml-vocab-llama-spm.gguf"
    yield "llama-spm (GGUF)", lambda: spm("llama", llama2, metadata(llama2), True)
    yield "llama-spm (.model)", lambda: spm("llama", llama2, metadata(llama2), False)
    yield "llama-spm (tokenizer.json)", lambda: llama_json(metadata(llama2), work)
    if args.models:
        gemma = args.models / "gemma-3-270m-q4_k_m.gguf"
        yield "gemma-3 (GGUF)", lambda: spm("gemma", gemma, metadata(gemma), True, prefix=False)
        yield "gemma-3 (.model)", lambda: spm("gemma", gemma, metadata(gemma), False, prefix=False)

    def unigram(rule, fallback):
        stem = work / f"unigram-{rule}-{fallback}"
        if not stem.with_suffix(".model").exists():
            lines = [line for d in docs for line in d.replace("\r", "\n").split("\n") if line.strip()
                     and "\0" not in line and len(line.encode()) < 4000]
            random.Random(3).shuffle(lines)
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(lines[:40000]), model_prefix=str(stem), vocab_size=8000,
                model_type="unigram", byte_fallback=fallback,
                normalization_rule_name=rule, remove_extra_whitespaces=rule != "identity",
                user_defined_symbols=["<sep>", "@@"],
                character_coverage=0.98, minloglevel=2, num_threads=1, input_sentence_size=40000,
                hard_vocab_limit=False)
        path = stem.with_suffix(".model")
        return path, path.read_bytes()

    def unigram_json(rule, fallback):
        path, blob = unigram(rule, fallback)
        m = sp_pb.ModelProto()
        m.ParseFromString(blob)
        tok = Tokenizer(models.Unigram([(p.piece, p.score) for p in m.pieces], unk_id=m.trainer_spec.unk_id,
                                       byte_fallback=fallback))
        steps = ([normalizers.Precompiled(m.normalizer_spec.precompiled_charsmap)]
                 if m.normalizer_spec.precompiled_charsmap else [])
        tok.normalizer = normalizers.Sequence(steps + [normalizers.Replace(Regex(" {2,}"), " ")])
        tok.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
        tok.decoder = decoders.Metaspace()
        out = path.with_suffix(".json")
        tok.save(str(out))
        return out, lambda texts: [e.ids for e in tok.encode_batch(texts, add_special_tokens=False)]

    for rule in ("nmt_nfkc", "identity"):
        for fallback in (False, True):
            name = f"unigram {rule}{' bytes' if fallback else ''}"
            yield name + " (.model)", lambda rule=rule, fallback=fallback: (
                unigram(rule, fallback)[0], sp_reference(unigram(rule, fallback)[1]))
            yield name + " (tokenizer.json)", lambda rule=rule, fallback=fallback: unigram_json(
                rule, fallback)


def llama_json(meta, work):
    """Llama 2 as Hugging Face converts it: merges are all pairs of tokens whose text together is a token,
    best score first."""
    vocab = {t: i for i, t in enumerate(meta["tokens"])}
    merges = []
    for token, i in vocab.items():
        if meta["token_type"][i] != 1:
            continue
        local = [(token[:k], token[k:]) for k in range(1, len(token)) if token[:k] in vocab
                 and token[k:] in vocab]
        merges += [(a, b, meta["scores"][i]) for a, b in sorted(local,
                                                                key=lambda x: (vocab[x[0]], vocab[x[1]]))]
    merges.sort(key=lambda m: -m[2])
    tok = Tokenizer(models.BPE(vocab, [(a, b) for a, b, _ in merges], unk_token="<unk>", fuse_unk=True,
                               byte_fallback=True))
    tok.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tok.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(),
                                     decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    path = work / "llama2.json"
    tok.save(str(path))
    return path, lambda texts: [e.ids for e in tok.encode_batch(texts, add_special_tokens=False)]


def ours(tests, path, docs, work):
    blob = work / "documents.bin"
    with open(blob, "wb") as f:
        for d in docs:
            b = d.encode()
            f.write(struct.pack("<I", len(b)) + b)
    out = work / "ids.bin"
    env = dict(os.environ, RAPT_BATCH_TOKENIZER=str(path), RAPT_BATCH_DOCUMENTS=str(blob),
               RAPT_BATCH_IDS=str(out))
    done = subprocess.run([tests, "--gtest_filter=TokenizerBatch.Documents"], env=env, capture_output=True,
                          text=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    data, at, lists, returned = out.read_bytes(), 0, [], 0
    while at < len(data):
        n, same = struct.unpack_from("<II", data, at)
        ids = array.array("i")
        ids.frombytes(data[at + 8:at + 8 + 4 * n])
        lists.append(ids.tolist())
        returned += same
        at += 8 + 4 * n
    return lists, returned


def main():
    p = argparse.ArgumentParser()
    p.add_argument("tests")
    p.add_argument("--data", type=pathlib.Path, required=True)
    p.add_argument("--models", type=pathlib.Path)
    p.add_argument("--work", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "rapt-compare")
    p.add_argument("--megabytes", type=float, default=6)
    p.add_argument("--only", default="")
    p.add_argument("--show", type=int, default=3)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    docs = documents(args.data, args.megabytes, args.seed)
    size = sum(len(d.encode()) for d in docs)
    print(f"{len(docs)} documents, {size:,} bytes")
    print(
        "| tokenizer | bytes | tokens | documents that differ | decoded back to the text |\n|---|---|---|"
        "---|---|")
    for name, make in cases(args, args.work, docs):
        if args.only and not any(o in name for o in args.only.split(",")):
            continue
        path, reference = make()
        want = reference(docs)
        got, returned = ours(args.tests, path, docs, args.work)
        wrong = [i for i in range(len(docs)) if want[i] != got[i]]
        print(f"| {name} | {size:,} | {sum(map(len, want)):,} | {len(wrong)} | {returned} of {len(docs)} |",
              flush=True)
        for i in wrong[:args.show]:
            k = next((k for k, (a, b) in enumerate(zip(want[i], got[i])) if a != b),
                     min(len(want[i]), len(got[i])))
            print(
                f"    document {i}: token {k}: want {want[i][max(0, k - 2):k + 6]}, got "
                f"{got[i][max(0, k - 2):k + 6]}")
            low, high = 0, len(docs[i])  # the shortest prefix that still differs, for a look
            if high < 200000 and args.show:
                while low < high:
                    middle = (low + high) // 2
                    a = reference([docs[i][:middle]])[0]
                    b = ours(args.tests, path, [docs[i][:middle]], args.work)[0][0]
                    low, high = (low, middle) if a != b else (middle + 1, high)
                print("      at", json.dumps(docs[i][max(0, low - 20):low]), "then",
                      json.dumps(docs[i][low:low + 5]))


if __name__ == "__main__":
    main()
