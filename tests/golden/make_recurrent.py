# SPDX-License-Identifier: Apache-2.0
"""Makes the golden files of the recurrent presets: encoders by torch.nn.GRU and LSTM, decoders as a plain
loop over torch's cells.

  python make_recurrent.py            writes bahdanau.json and luong-*.json beside this script

Weights come from their names and tokens from the toy's name, as in make_goldens.py, whose functions are used;
so are its files.
"""
import json
import sys

import torch

from make_goldens import CONTEXT, HERE, LENGTHS, VOCAB, Weights, apart, tokens_for

GATES = {"gru": 3, "lstm": 4}


def encoder(w, r, x):
    """x [S,C] -> result [S,n or 2n], (h, c) of each layer, the last state of the direction that ends at the
    first word."""
    ways = 2 if r.get("both_ways") else 1
    layers, n = r.get("layers", 1), r["width"]
    kind = torch.nn.GRU if r["cell"] == "gru" else torch.nn.LSTM
    net = kind(x.shape[1], n, layers, bidirectional=ways == 2, dtype=x.dtype)
    g = GATES[r["cell"]] * n
    with torch.no_grad():
        for layer in range(layers):
            wide = x.shape[1] if layer == 0 else ways * n
            for way, end in ((".", ""), (".back.", "_reverse"))[:ways]:
                at = f"encoder.{layer}{way}"
                getattr(net, f"weight_ih_l{layer}{end}").copy_(w(at + "x.weight", g, wide))
                getattr(net, f"weight_hh_l{layer}{end}").copy_(w(at + "h.weight", g, n))
                getattr(net, f"bias_ih_l{layer}{end}").copy_(w.vector(at + "x.bias", g))
                second = w.vector(at + "h.bias", g) if r["cell"] == "gru" else torch.zeros(g)
                getattr(net, f"bias_hh_l{layer}{end}").copy_(second)
        out, last = net(x)
    h = last if r["cell"] == "gru" else last[0]
    c = None if r["cell"] == "gru" else last[1]
    together = [torch.cat([h[ways * i + k] for k in range(ways)]) for i in range(layers)]
    cells = None if c is None else [torch.cat([c[ways * i + k] for k in range(ways)]) for i in range(layers)]
    return out, together, cells, h[-1]


def logits(recipe, w, tokens, source, real):
    C = recipe["width"]
    table = w("embed.tokens", VOCAB, C).to(real)
    memory, h, c, back = encoder(w, recipe["encoder"]["recurrent"], table[source])
    r = recipe["decoder"]["recurrent"]
    a = r["attention"]
    n, layers, M, S = r["width"], r.get("layers", 1), memory.shape[1], len(source)
    g = GATES[r["cell"]] * n
    previous, feed = a.get("at", "current") == "previous", a.get("feed", False)

    def matrix(name, rows, cols):
        return w(name, rows, cols).to(real)

    cells = []
    for layer in range(layers):
        at = f"decoder.{layer}."
        wide = C if layer == 0 else n
        more = [matrix(f"decoder.align.{name}.weight", g, cols)
                for name, cols, there in (("context", M, previous), ("feed", C, feed)) if there
                and layer == 0]
        cell = (torch.nn.GRUCell if r["cell"] == "gru"
                else torch.nn.LSTMCell)(wide + sum(m.shape[1] for m in more), n, dtype=real)
        with torch.no_grad():  # the input stands before the context or the readout that is fed
            cell.weight_ih.copy_(torch.cat([matrix(at + "x.weight", g, wide), *more], 1))
            cell.weight_hh.copy_(matrix(at + "h.weight", g, n))
            cell.bias_ih.copy_(w.vector(at + "x.bias", g))
            cell.bias_hh.copy_(w.vector(at + "h.bias", g) if r["cell"] == "gru" else torch.zeros(g))
        cells.append(cell)
    if r.get("start", "last") == "projected":
        first = recipe["encoder"]["recurrent"]["width"]
        h = [torch.tanh(matrix(f"decoder.start.{i}.weight", n, first) @ back +
                        w.vector(f"decoder.start.{i}.bias", n).to(real))
             for i in range(layers)]
    h, c = list(h), list(c) if c is not None else None

    score = a.get("score", "dot")
    hidden = a.get("width", n)
    if score == "general":
        keys = memory @ matrix("decoder.align.k.weight", n, M).T
    elif score in ("additive", "concat"):
        wq, keys = (matrix("decoder.align.q.weight", hidden, n),
                    memory @ matrix("decoder.align.k.weight", hidden, M).T)
        v = w.vector("decoder.align.score.weight", hidden).to(real)
    else:
        keys = memory
    window = a.get("window", "none")
    kind = window if isinstance(window, str) else next(iter(window))
    reach = 0 if kind == "none" else window[kind]["reach"]
    if kind == "predictive":
        wp, vp = matrix("decoder.align.place.weight", hidden,
                        n), matrix("decoder.align.place.score.weight", 1, hidden)[0]

    def look(state, t):
        scores = torch.tanh(wq @ state + keys) @ v if score in ("additive", "concat") else keys @ state
        seen, factor = torch.ones(S, dtype=torch.bool), torch.ones(S, dtype=real)
        places = torch.arange(S, dtype=real)
        if kind == "monotonic":
            seen = (places >= t - reach) & (places <= t + reach)
        if kind == "predictive":
            p = S * torch.sigmoid(vp @ torch.tanh(wp @ state))
            seen = (places >= p - reach) & (places <= p + reach)
            factor = torch.exp(-(places - p) ** 2 / (2 * (reach / 2) ** 2))
        if not seen.any():
            return torch.zeros(M, dtype=real)
        return (torch.softmax(scores.masked_fill(~seen, -torch.inf), 0) * factor) @ memory

    wide = 2 * C if a["readout"] == "maxout" else C
    out_c, out_h = matrix("decoder.out.context.weight", wide, M), matrix("decoder.out.state.weight", wide, n)
    out_b = w.vector("decoder.out.bias", wide).to(real)
    out_x = matrix("decoder.out.input.weight", wide, C) if a["readout"] == "maxout" else None
    readout, rows = torch.zeros(C, dtype=real), []
    with torch.no_grad():
        for t, token in enumerate(tokens):
            x = table[token]
            asking = h[-1]
            enter = x
            if previous:
                context = look(asking, t)
                enter = torch.cat([x, context])
            if feed:
                enter = torch.cat([x, readout])
            for i, cell in enumerate(cells):
                if c is None:
                    h[i] = cell(enter[None], h[i][None])[0]
                else:
                    h[i], c[i] = (y[0] for y in cell(enter[None], (h[i][None], c[i][None])))
                enter = h[i]
            if not previous:
                asking = h[-1]
                context = look(asking, t)
            readout = out_c @ context + out_h @ asking + out_b
            readout = torch.tanh(readout) if out_x is None else torch.max(*(readout + out_x @ x).view(2, C))
            rows.append(matrix("head.weight", VOCAB, C) @ readout + w.vector("head.bias", VOCAB).to(real))
    return torch.stack(rows)


def toys():
    common = {"vocab": VOCAB, "context": CONTEXT, "head": {"bias": True}}
    yield "bahdanau", {"name": "bahdanau", "width": 18, **common,
                       "encoder": {"recurrent": {"cell": "gru", "width": 11, "both_ways": True}},
                       "decoder": {"recurrent": {"cell": "gru", "width": 14, "start": "projected",
                                                 "attention": {
                                                     "at": "previous", "score": "additive", "width": 9,
                                                     "readout": "maxout"}}}}
    for name, attention in (("dot", {"score": "dot"}), ("general", {"score": "general"}),
                            ("concat", {"score": "concat", "width": 9}),
                            ("local-m", {"score": "general", "window": {"monotonic": {"reach": 3}}}),
                            ("local-p", {"score": "general", "width": 9,
                                         "window": {"predictive": {"reach": 3}}})):
        cells = {"cell": "lstm", "layers": 2, "width": 18}
        yield f"luong-{name}", {"name": f"luong-{name}", "width": 18, **common,
                                "encoder": {"recurrent": cells},
                                "decoder": {"recurrent": {**cells,
                                                          "attention": {
                                                              **attention, "feed": True, "readout": "tanh"}}}}


def make(name, recipe):
    toy = {"name": name, "recipe": recipe, "pairs": True,
           "gains": {"head.weight": 4.0, ".score.weight": 4.0, ".k.weight": 2.0}}
    sequences, _, sources = tokens_for(toy)
    w = Weights(toy)
    expected = [logits(recipe, w, s, f, torch.float64) for s, f in zip(sequences, sources)]
    single = [logits(recipe, w, s, f, torch.float32) for s, f in zip(sequences, sources)]
    f32 = apart([x.double() for x in single], expected)
    assert f32 <= 2e-5, f"{name}: float32 and float64 differ by {f32}"
    spread = float(torch.cat(expected).std())
    assert spread >= 1, f"{name}: the logits' standard deviation is {spread}"
    chosen = [sorted({0, 1, n // 2, n - 1} & set(range(n))) for n in LENGTHS]
    file = {"name": name,
            "source": f"torch {torch.__version__.split('+')[0]}: nn.GRU, nn.LSTM and their cells; attention "
                      "and readout by hand",
            "preset": name, "recipe": recipe, "gains": toy["gains"], "plus_one": False,
            "parameters": sum(r * c for r, c in w.shapes.values()), "sequences": sequences,
            "source_sequences": sources, "rows": chosen}
    lines = [f" {json.dumps(k)}: {json.dumps(v)}" for k, v in file.items()]
    stored = ["  [" + ",\n   ".join(",".join(f"{v:.7g}" for v in row) for row in y[rows].tolist()) + "]"
              for y, rows in zip(expected, chosen)]
    text = "{\n" + ",\n".join(lines) + ',\n "logits": [\n' + ",\n".join(stored) + "]\n}\n"
    (HERE / f"{name}.json").write_text(text)
    print(f"{name:16} {len(text):6} bytes  std {spread:5.2f}  f32 {f32:7.1e}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for toy_name, toy_recipe in toys():
        if not sys.argv[1:] or toy_name in sys.argv[1:]:
            make(toy_name, toy_recipe)
