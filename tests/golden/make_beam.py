# SPDX-License-Identifier: Apache-2.0
"""Beam search of transformers on the toy encoder-decoders of families/: what generate(num_beams=B,
length_penalty=p) returns.

    python make_beam.py            writes use/beam.json, use/beam_options.json, and use/alignment.json:
                                   cross-attention of the same toys

The start token is suppressed (Rapt never answers with it), the end's log-probability is raised by a bias so
that searches end in many places, and no end is forced at the last one; everything else is the default:
early_stopping=False, no renormalisation. A search that comes out otherwise when its log-probabilities are
shaken by 1e-4 is too close to call and left out. beam_options.json: the same with bad_words_ids (two tokens
and a pair of tokens that the answers without them hold) and with renormalize_logits.
"""
import json
import pathlib
import tempfile

import torch
import transformers as T

import make_families as F

HERE = pathlib.Path(__file__).parent
TOYS = ("marian", "t5", "t5-v1.1")
TOKENS = 20
SOURCES = 4
BIASES = (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0, 7.0, 8.0)


class Shake(T.LogitsProcessor):
    def __init__(self, seed):
        self.random = torch.Generator().manual_seed(seed)

    def __call__(self, ids, scores):
        return scores + 1e-4 * (2 * torch.rand(scores.shape, generator=self.random) - 1)


def search(model, start, eos, bias, source, beams, penalty, seed=None, **options):
    extra = [Shake(seed)] if seed is not None else []
    with torch.no_grad():
        out = model.generate(torch.tensor([source]), num_beams=beams, length_penalty=penalty,
                             num_return_sequences=beams, max_new_tokens=TOKENS,
                             do_sample=False, suppress_tokens=[start], sequence_bias={(eos,): bias},
                             logits_processor=T.LogitsProcessorList(extra),
                             return_dict_in_generate=True, output_scores=True, **options)
    answers = []
    for i, row in enumerate(out.sequences.tolist()):
        row = row[1:]
        ended = eos in row
        row = row[:row.index(eos)] if ended else row
        answers.append({"ids": row, "ended": ended} | ({"score": round(float(out.sequences_scores[i]), 6)}
                                                       if beams > 1 else {}))
    return answers


def stable(model, start, eos, bias, source, beams, penalty, **options):
    """The answers, or nothing where they are too close to call."""
    answers = search(model, start, eos, bias, source, beams, penalty, **options)
    same = lambda seed: [a["ids"] for a in search(model, start, eos, bias, source, beams, penalty, seed,
                                                  **options)] == [a["ids"] for a in answers]
    return answers if same(1) and same(2) else None


def with_options(model, name, start, eos, bias, source):
    """Searches with bad words and renormalised, each alone and both together, that differ from those
    without."""
    plain = search(model, start, eos, bias, source, 4, 1.0)
    said = plain[0]["ids"]
    if len(said) < 4:
        return
    words = [[said[0]], [plain[-1]["ids"][-1]], [said[1], said[2]], [eos]]  # an end alone is no bad word
    for options in ({"bad_words_ids": words}, {"renormalize_logits": True},
                    {"bad_words_ids": words, "renormalize_logits": True}):
        for beams, penalty in ((1, 1.0), (3, 0.6), (4, 1.0)):
            answers = stable(model, start, eos, bias, source, beams, penalty, **options)
            if answers:
                yield {"toy": name, "end_bias": bias, "source": source, "beams": beams, "penalty": penalty,
                       **options, "answers": answers}


def looks(model, start, source, target):
    """Cross-attention [layer][head][target][source], the target given as in training."""
    with torch.no_grad():
        out = model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([[start] + target[:-1]]),
                    output_attentions=True, use_cache=False)
    return [[[float(f"{w:.6f}") for w in row] for row in head.tolist()] for layer in out.cross_attentions
            for head in layer[0]], len(out.cross_attentions)


def main():
    torch.set_num_threads(1)
    F.define()
    cases, maps, optional, close, ended = [], [], [], 0, 0
    for name in TOYS:
        t = F.TOYS[name]
        start, eos = t["config"]["decoder_start_token_id"], t["config"]["eos_token_id"]
        with tempfile.TemporaryDirectory() as temp:
            folder = pathlib.Path(temp) / name
            folder.mkdir()
            F.make_folder(t, folder)
            model = F.load(t, folder)
        source, target = F.ids(f"{name} align source", 7), F.ids(f"{name} align target", 5)
        heads, layers = looks(model, start, source, target)
        maps.append({"toy": name, "source": source, "target": target, "layers": layers, "heads": heads})
        model.generation_config.forced_eos_token_id = None
        assert model.generation_config.early_stopping in (None, False)
        for i in range(SOURCES):
            source = F.ids(f"{name} beam source {i}", 4 + 3 * i)
            # The bias for which four beams give answers of the most different lengths.
            bias = max(BIASES, key=lambda b: len({len(a["ids"]) for p in (0.6, 2.0)
                                                  for a in search(model, start, eos, b, source, 4, p)}))
            optional += with_options(model, name, start, eos, bias, source)
            for beams in (1, 2, 3, 4, 5):
                for penalty in (1.0,) if beams == 1 else (0.6, 1.0, 2.0):
                    answers = search(model, start, eos, bias, source, beams, penalty)
                    plain = [a["ids"] for a in answers]
                    if any([a["ids"] for a in search(model, start, eos, bias, source, beams, penalty,
                                                     seed)] != plain for seed in (1, 2)):
                        close += 1
                        continue
                    ended += answers[0]["ended"]
                    cases.append({"toy": name, "end_bias": bias, "source": source, "beams": beams,
                                  "penalty": penalty, "answers": answers})
    text = ",\n".join(" " + json.dumps(c, separators=(",", ":")) for c in cases)
    (HERE / "use").mkdir(exist_ok=True)
    (HERE / "use" / "beam.json").write_text(
        f'{{"source": "transformers {T.__version__}", "tokens": {TOKENS}, "cases": [\n{text}\n]}}\n')
    lines = ",\n".join(" " + json.dumps(c, separators=(",", ":")) for c in optional)
    (HERE / "use" / "beam_options.json").write_text(
        f'{{"source": "transformers {T.__version__}", "tokens": {TOKENS}, "cases": [\n{lines}\n]}}\n')
    print(f"{len(optional)} searches with options")
    lines = ",\n".join(" " + json.dumps(m, separators=(",", ":")) for m in maps)
    (HERE / "use" /
     "alignment.json").write_text(f'{{"source": "transformers {T.__version__}", "maps": [\n{lines}\n]}}\n')
    print(
        f"{len(cases)} searches, {ended} of them ended by themselves, {close} too close to call, {len(text)} "
        "bytes")


if __name__ == "__main__":
    main()
