#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Folders that rapt wrote (rapt train, write_model_folder), opened in transformers: the same logits?

usage: make_trained.py [--rapt PROGRAM] [--tolerance 1e-4] [--text FILE] FOLDER...

Needs torch, transformers, tokenizers and numpy, and the program (build/rapt). For every folder: the class
that config.json names is loaded in float32 without missing or unknown tensors, both sides compute the same
token ids (several lengths, up to the context; for encoder-decoders a source and a target), and the largest
difference of the results is printed. Where the folder has a tokenizer.json, lines of FILE (or sentences of
our own) are encoded by both too. Exit code 1 where something differs.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers

SENTENCES = ["A small grey cat sleeps on the warm roof.", "Ein Mann geht mit zwei Hunden am Fluss entlang.",
             "First, hear me speak: 1, 2, 3!", "  two  spaces\n"]
# Parameters of the library that hold no learned numbers, or that a bare encoder leaves to whoever trains it
# further.
UNSAVED = ("position_ids", "embed_positions.weight", "pooler.dense.weight", "pooler.dense.bias")


def rapt(program, *args):
    done = subprocess.run([program, *args], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join([program, *args])}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def load(folder):
    config = json.loads((folder / "config.json").read_text())
    name = config["architectures"][0]
    if not hasattr(transformers, name):
        sys.exit(f"{folder}: transformers has no {name}; this recipe is one that no family of it says")
    model, report = getattr(transformers, name).from_pretrained(folder, dtype=torch.float32,
                                                                attn_implementation="eager",
                                                                output_loading_info=True)
    missing = [k for k in report["missing_keys"] if not k.endswith(UNSAVED)]
    assert not missing and not report["unexpected_keys"] and not report[
        "mismatched_keys"], f"{folder}: {report}"
    return name, model.eval()


def theirs(model, ids, source):
    with torch.no_grad():
        if source is not None:
            return model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([ids]),
                         use_cache=False).logits[0].numpy()
        out = model(input_ids=torch.tensor([ids]))
        return (out.logits if hasattr(out, "logits") else out.last_hidden_state)[0].numpy()


def ours(program, folder, ids, source):
    words = lambda x: " ".join(map(str, x))
    with tempfile.TemporaryDirectory() as temp:
        out = temp + "/out.npy"
        args = (["--ids", words(ids)] if source is None
                else ["--ids", words(source), "--decoder-ids", words(ids)])
        rapt(program, "logits", str(folder), *args, "--out", out, "--quiet")
        result = np.load(out)
    return result


def context_of(config):
    for key in ("n_positions", "max_position_embeddings"):
        if getattr(config, key, None):
            return getattr(config, key)
    return 512


def check(program, folder, tolerance, lines):
    name, model = load(folder)
    config = model.config
    both = bool(getattr(config, "is_encoder_decoder", False))
    random = np.random.default_rng(1)
    worst, size, rows = 0.0, 0.0, 0
    most = min(context_of(config), 96)
    for length in sorted({1, min(7, most), most // 2, most}):
        ids = [int(x) for x in random.integers(0, config.vocab_size, length)]
        source = ([int(x) for x in random.integers(0, config.vocab_size, max(1, length // 2 + 2))] if both
                  else None)
        if both and config.decoder_start_token_id is not None:
            ids[0] = config.decoder_start_token_id
        # The library takes a padding token for no token in places.
        if getattr(config, "pad_token_id", None) is not None:
            other = (config.pad_token_id + 1) % config.vocab_size
            ids = [ids[0]] + [other if x == config.pad_token_id else x for x in ids[1:]]
            source = source and [other if x == config.pad_token_id else x for x in source]
        a, b = theirs(model, ids, source), ours(program, folder, ids, source)
        a = a.reshape(b.shape)
        worst = max(worst, float(np.abs(a - b).max()))
        size = max(size, float(a.std()))
        rows += b.shape[0]
    fine = worst < tolerance
    words = ""
    if (folder / "tokenizer.json").exists():
        from tokenizers import Tokenizer
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        wrong = 0
        for line in lines:
            a = tokenizer.encode(line, add_special_tokens=False).ids
            b = [int(x) for x in rapt(program, "tokenize", str(folder), line, "--special").split()]
            wrong += a != b
        words = f"  {len(lines) - wrong} of {len(lines)} texts encoded alike"
        fine = fine and wrong == 0
    print(
        f"{str(folder):40} {name:30} max difference {worst:.2e} over {rows} rows (std {size:.2f}){words}  "
        f"{'ok' if fine else 'DIFFERS'}", flush=True)
    return fine


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folders", nargs="+", type=pathlib.Path)
    p.add_argument("--rapt", default=str(pathlib.Path(__file__).resolve().parents[2] / "build" / "rapt"))
    p.add_argument("--tolerance", type=float, default=1e-4)
    p.add_argument("--text", type=pathlib.Path)
    args = p.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    lines = [x for x in args.text.read_text().splitlines()[:200] if x] if args.text else SENTENCES
    results = [check(args.rapt, f, args.tolerance, lines) for f in args.folders]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
