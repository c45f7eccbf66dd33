# SPDX-License-Identifier: Apache-2.0
"""The logit lens and the residual stream of the toys of families/, as transformers computes them, in float64.

    python make_lens.py            writes use/lens.json

For every row (the embedding, then after each layer) and token: entropy and most probable token of final
norm + head applied to the hidden state, its probability, KL(last row || this row), the rank of the true token
(the next one; BERT: the token itself; 0 where the text ends), and length and largest magnitude of the hidden
state; for every row the lower median of the magnitudes.
"""
import json
import pathlib
import tempfile

import torch
import transformers as T

import make_families as F

HERE = pathlib.Path(__file__).parent
LENGTH = 9


def parts(model, name):
    """Final norm or None, and what stands behind it."""
    if name == "gpt2":
        return model.transformer.ln_f, model.lm_head
    if name == "bert":
        return None, model.cls
    if name.startswith("t5"):
        scale = model.config.d_model ** -0.5 if model.config.tie_word_embeddings else 1.0
        return model.decoder.final_layer_norm, lambda x: model.lm_head(x * scale)
    cap = getattr(model.config, "final_logit_softcapping", None)
    return model.model.norm, lambda x: cap * torch.tanh(model.lm_head(x) / cap) if cap else model.lm_head(x)


def numbers(values, digits=7):
    return [float(f"{v:.{digits}g}") for v in values]


def look(model, name, tokens, source):
    norm, head = parts(model, name)
    before = []
    hook = norm.register_forward_pre_hook(lambda _, args: before.append(args[0])) if norm else None
    ids = torch.tensor([tokens])
    with torch.no_grad():
        more = dict(output_hidden_states=True)
        if source:
            out = model(input_ids=torch.tensor([source]), decoder_input_ids=ids, use_cache=False, **more)
            states = list(out.decoder_hidden_states)
        else:
            out = model(input_ids=ids, **more)
            states = list(out.hidden_states)
        if hook:
            hook.remove()
            # The last one is listed after the norm.
            assert (norm(before[-1]) - states[-1]).abs().max() < 1e-12
            states[-1] = before[-1]
        logits = [head(norm(x) if norm else x)[0] for x in states]
    assert (logits[-1] - out.logits[0]).abs().max() < 1e-12
    truth = tokens if name == "bert" else tokens[1:]
    last = torch.log_softmax(logits[-1], -1)
    rows = []
    for x, y in zip(states, logits):
        p = torch.log_softmax(y, -1)
        rows.append({
            "top": p.argmax(-1).tolist(),
            "probability": numbers(p.max(-1).values.exp().tolist()),
            "entropy": numbers((-(p.exp() * p).sum(-1)).tolist()),
            "kl": numbers((last.exp() * (last - p)).sum(-1).tolist()),
            "rank": [int((p[i] > p[i, t]).sum()) + 1 for i, t in enumerate(truth)] + [0] *
            (len(tokens) - len(truth)),
            "length": numbers(x[0].norm(dim=-1).tolist()),
            "largest": numbers(x[0].abs().max(-1).values.tolist()),
            "median": numbers([x[0].abs().flatten().median().item()])[0],
        })
    return rows


def main():
    torch.set_num_threads(1)
    F.define()
    cases = []
    for name in ("gpt2", "llama3.1", "bert", "t5", "gemma2"):
        t = F.TOYS[name]
        with tempfile.TemporaryDirectory() as temp:
            folder = pathlib.Path(temp) / name
            folder.mkdir()
            tensors = F.make_folder(t, folder)
            with F.doubles():
                model = F.load_double(t, folder, tensors)
                tokens = F.ids(f"{name} lens", LENGTH)
                source = F.ids(f"{name} lens source", LENGTH + 2) if name == "t5" else None
                cases.append({"toy": name, "tokens": tokens, "source": source or [],
                              "rows": look(model, name, tokens, source)})
    text = ",\n".join(" " + json.dumps(c, separators=(",", ":")) for c in cases)
    (HERE / "use" /
     "lens.json").write_text(f'{{"source": "transformers {T.__version__}", "cases": [\n{text}\n]}}\n')
    print(len(text), "bytes")


if __name__ == "__main__":
    main()
