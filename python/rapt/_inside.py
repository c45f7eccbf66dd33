# SPDX-License-Identifier: Apache-2.0
"""Looking inside one pass: points by name, tensors of them, and the views of `rapt inspect` by value. The
methods of Model are these functions; `model._state` is what the module knows a model by."""
import re
from collections.abc import Mapping

from . import _rapt
from ._arrays import array, numpy
from ._errors import UnknownName, UsageError
from ._values import Value


def token_ids(text):
    """A text as it is, ids as a list of int."""
    if isinstance(text, str):
        return text
    if hasattr(text, "tolist"):
        text = text.tolist()
    ids = [int(i) for i in text]
    if any(i != j for i, j in zip(ids, text)):
        raise UsageError("ids are whole numbers")
    return ids


def read_ids(model, text, target=None):
    """(ids, source): what the model reads of a text, framed as its tokenizer says ([CLS] … [SEP], BOS …), or
    of ids as they are. `source` is empty but for a model with encoder and decoder, which reads `text` with
    its encoder."""
    return _rapt.inspect_ids(model._state, token_ids(text), None if target is None else token_ids(target))


# ---------------------------------------------------------------------------------------------------- points


class Point(Value):
    """A name of what a pass computes; L in it stands for a layer's number. `layers`: how many have it (0: it
    belongs to the whole model), `aliases`: what else finds it."""

    __slots__ = _fields = ("name", "shape", "layers", "editable", "aliases")

    def __repr__(self):
        return f"{self.name} {self.shape}"


class Points(Value, Mapping):
    """What `points()` gives: a mapping of names to Point, which prints as a table."""

    __slots__ = _fields = ("all",)
    __eq__ = Value.__eq__

    def __getitem__(self, name):
        for point in self.all:
            if name == point.name or name in point.aliases:
                return point
        raise UnknownName(f"there is no point {name!r} here; there are: {', '.join(self)}")

    def __iter__(self):
        return (point.name for point in self.all)

    def __len__(self):
        return len(self.all)

    def columns(self):
        return {name: [getattr(p, name) for p in self.all] for name in Point._fields}

    def __repr__(self):
        rows = [(p.name, p.shape, "" if p.layers == 0 else str(p.layers), p.aliases[0] if p.aliases else "")
                for p in self.all]
        wide = [max(len(row[i]) for row in rows) for i in range(4)]
        return "\n".join("  ".join(cell.ljust(n) for cell, n in zip(row, wide)).rstrip() for row in rows)

    def _repr_html_(self):
        from ._report import table_html
        return table_html({"point": list(self), "shape": [p.shape for p in self.all],
                           "layers": [p.layers or "" for p in self.all],
                           "also": [", ".join(p.aliases) for p in self.all]})


def points(model):
    """Every name of what a pass of this model computes, with its shape (T: tokens of the text, S: of the
    source) and what other tools call it.

    >>> m = rapt.load("default")
    >>> p = m.points()["resid_post.L"]
    >>> p.shape, p.layers, "blocks.L.hook_resid_post" in p.aliases
    ('[T,192]', 6, True)
    """
    return Points(all=[Point(name=name, shape=shape, layers=layers, editable=editable,
                             aliases=list(dict.fromkeys(([lens] if lens else []) + others)))
                       for name, lens, others, shape, layers, editable in _rapt.points(model._state)])


_LAYER = re.compile(r"\.(\d+)((?:\.\d+)?)$")


def _names(model, names):
    """Names as a list: one, several, or those that a function of TransformerLens's (or our) name chooses."""
    if isinstance(names, str):
        return [names]
    if not callable(names):
        return list(dict.fromkeys(names))
    chosen = []
    for name, lens, _, _, layers, _ in _rapt.points(model._state):
        if layers == 0:
            candidates = [(lens, name)]
        else:
            ours = _rapt.point_names(model._state, re.sub(r"\.L\b", ".*", name, count=1))
            candidates = []
            for one in ours:
                layer = _LAYER.search(one)
                candidates.append((re.sub(r"\bL\b", layer[1], lens, count=1) if lens and layer else "", one))
        for theirs, one in candidates:
            if theirs and names(theirs):
                chosen.append(theirs)
            elif names(one):
                chosen.append(one)
    if not chosen:
        raise UsageError("the function chose no point; m.points() has their names")
    return chosen


# ----------------------------------------------------------------------------------------------------- cache


class Cache(Mapping):
    """Tensors of one pass. It takes every name of a point: ours, TransformerLens's, nnterp's, ggml's; a pair
    ("resid_post", 5) too. A name with a * gives a list, layer by layer. `ids`, `source`: what was read."""

    def __init__(self, state, tensors, ids, source):
        self._state = state
        self._ours = {asked: name for asked, name, _ in tensors}
        self._arrays = {}
        for _, name, x in tensors:
            if name not in self._arrays:
                self._arrays[name] = array(x)
        self.ids, self.source = ids, source

    def __getitem__(self, name):
        if isinstance(name, tuple):
            name = "".join(map(str, name))
        if name in self._ours:
            return self._arrays[self._ours[name]]
        if name in self._arrays:
            return self._arrays[name]
        if self._state is None:
            raise UnknownName(f"{name!r} is none of {', '.join(self._ours)}")
        found = _rapt.point_names(self._state, name)
        for ours in found:
            if ours not in self._arrays:
                raise UnknownName(
                    f"{name!r} ({ours}) was not asked for; the cache has {', '.join(self._ours)}")
        got = [self._arrays[ours] for ours in found]
        return got if "*" in name else got[0]

    def __contains__(self, name):
        try:
            self[name]
        except UsageError:  # of something else, or of nothing
            return False
        return True

    def __iter__(self):
        return iter(self._ours)

    def __len__(self):
        return len(self._ours)

    @property
    def nbytes(self):
        return sum(memoryview(x).nbytes if not hasattr(x, "nbytes") else x.nbytes
                   for x in self._arrays.values())

    def __repr__(self):
        tensors = f"{len(self)} tensor{'s' if len(self) != 1 else ''}"
        return f"Cache({tensors} of {len(self.ids)} tokens, {self.nbytes:,} bytes)"

    def __getstate__(self):  # without the model: names are then those that were asked for, and ours
        return {**self.__dict__, "_state": None}


def run_with_cache(model, text, names, *, target=None, limit=1e9):
    """(logits, cache) of one pass over a text, or over ids as they are. `names`: of the tensors to keep (a *
    is every layer), or a function that chooses names. More than `limit` bytes are refused, with the number.
    Arrays are not copied. `target`: of an encoder-decoder, what its decoder reads.

    >>> m = rapt.load("default")
    >>> logits, cache = m.run_with_cache("To be", ["blocks.*.hook_resid_post", "pattern0"])
    >>> cache["resid_post.3"].shape == (len(cache.ids), 192)
    True
    >>> bool((abs(cache["blocks.0.attn.hook_pattern"].sum(-1) - 1) < 1e-5).all())
    True
    """
    ids, source = read_ids(model, text, target)
    logits, tensors = _rapt.capture(model._state, _names(model, names), ids, source, float(limit))
    return array(logits), Cache(model._state, tensors, ids, source)


# ----------------------------------------------------------------------------------------------------- views


class Table(Value):
    """Columns of equal length, by name: table["layer"], table.columns()."""

    __slots__ = _fields = ("data",)

    def columns(self):
        return dict(self.data)

    def __getitem__(self, name):
        try:
            return self.data[name]
        except KeyError:
            raise UnknownName(f"there is no column {name!r}; there are: {', '.join(self.data)}") from None

    def __len__(self):
        return len(next(iter(self.data.values()), ()))

    def __iter__(self):
        """Row by row, as dicts."""
        for i in range(len(self)):
            yield {name: column[i] for name, column in self.data.items()}

    def __repr__(self):
        return f"Table({len(self)} rows: {', '.join(self.data)})"

    def _repr_html_(self):
        from ._report import table_html
        return table_html(self.data)


def table(columns, drop=()):
    """A Table of what the module hands out; columns in `drop` stay only where they say something."""
    data = {}
    for name, column in columns.items():
        if not isinstance(column, list):
            column = array(column) if numpy() else memoryview(column).tolist()
        if name in drop and not any(column):
            continue
        data[name] = column
    return Table(data=data)


class Sinks(Value):
    """Attention sinks by the definition of Gu et al. (2025). `sink[k]`: share of heads whose mean weight on
    token k is above epsilon; `alpha`, `share` [heads, keys]; `heads`: lengths and cosines of each."""

    __slots__ = _fields = ("sink", "texts", "tokens", "alpha", "share", "heads")

    def columns(self):
        return self.heads.columns()

    def _repr_html_(self):
        return self.heads._repr_html_()


def sinks(model, text, *, target=None, epsilon=0.3, first=4, length=64, texts=100):
    """How much attention the first tokens collect: a text is cut into texts of `length` tokens.

    >>> m = rapt.load("default")
    >>> s = m.sinks("To be, or not to be, that is the question. " * 12)
    >>> len(s.sink), s.alpha.shape[1]
    (4, 4)
    """
    ids, source = read_ids(model, text, target)
    got = _rapt.inspect_sinks(model._state, ids, source, float(epsilon), first, length, texts)
    return Sinks(sink=array(got["sink"]), texts=got["texts"], tokens=got["tokens"], alpha=array(got["alpha"]),
                 share=array(got["share"]), heads=table(got["heads"], ("number",)))


def _of_stack(found, stack, what):
    for one in found:
        if stack is None or one["stack"] == stack:
            return one
    raise UsageError(f"{what}: stack is {' or '.join(one['stack'] for one in found)} here, not {stack!r}")


class Massive(Value):
    """Massive activations (Sun et al. 2024). `largest` [rows, tokens]: largest magnitude of a token, `median`
    [rows]; `rows`: "embed", then the layers. `top`: the largest of each row. `trace` [channels, rows]."""

    __slots__ = _fields = ("stack", "rows", "found", "first_row", "median", "largest", "channels", "trace",
                           "top")

    def columns(self):
        return self.top.columns()

    def _repr_html_(self):
        return self.top._repr_html_()


def massive(model, text, *, target=None, above=100, ratio=1000, top=1, stack=None):
    """The few huge numbers of the residual stream. Of a model with two stacks the encoder's, or `stack`.

    >>> m = rapt.load("default")
    >>> x = m.massive("To be, or not to be")
    >>> x.largest.shape == (len(x.rows), len(m.run_with_cache("To be, or not to be", "embeddings")[1].ids))
    True
    """
    ids, source = read_ids(model, text, target)
    got = _of_stack(_rapt.inspect_massive(model._state, ids, source, float(above), float(ratio), top), stack,
                    "massive")
    return Massive(**{**got, "median": array(got["median"]), "largest": array(got["largest"]),
                      "trace": array(got["trace"]), "top": table(got["top"])})


class Lens(Value):
    """The logit lens. `ids`, `probabilities` [rows, tokens, top], most probable first, `words` the same as
    text; `entropy`, `kl`, `rank`, `truth` [rows, tokens]: in nats; KL(answer || row); of the true next token,
    rank 1 is the most probable (0: the text ends), `truth` its probability. `rows`: "embed", then the
    layers."""

    __slots__ = _fields = ("rows", "first", "tokens", "words", "ids", "probabilities", "entropy", "kl",
                           "rank", "truth")

    def _repr_html_(self):
        from ._report import lens_html
        return lens_html(self)

    def columns(self):
        """A row for each cell: row, token, its word, the most probable word and its probability …"""
        n, places = len(self.rows), len(self.tokens)
        cells = [(r, t) for r in range(n) for t in range(places)]
        out = {"row": [self.rows[r] for r, _ in cells], "token": [self.first + t for _, t in cells],
               "text": [self.tokens[t] for _, t in cells], "word": [self.words[r][t][0] for r, t in cells],
               "probability": [float(self.probabilities[r, t, 0]) for r, t in cells]}
        for name in ("entropy", "kl", "rank", "truth"):
            out[name] = [getattr(self, name)[r, t].item() for r, t in cells]
        return out


def lens(model, text, *, target=None, top=1, last=None):
    """What the model would say if it stopped after each layer: for every token, or for the `last` ones.

    >>> m = rapt.load("default")
    >>> l = m.lens("To be, or not", top=2)
    >>> l.ids.shape == (7, len(l.tokens), 2)
    True
    """
    ids, source = read_ids(model, text, target)
    first = 0 if last is None else max(0, len(ids) - last)
    got = _rapt.inspect_lens(model._state, ids, source, top, first, -1)
    words = _rapt.token_words(model._state, ids)[first:]
    return Lens(rows=got["rows"], first=got["first"], tokens=words, words=got["words"],
                **{name: array(got[name]) for name in Lens._fields[4:]})


class Gates(Value):
    """Gates on attention, a row of `table` for each: where, mean, share of values below 0.1 (`closed`);
    `histogram` [gates, 10]: tenths of 0 … 1. `mean` and `closed` are of all values."""

    __slots__ = _fields = ("mean", "closed", "table", "histogram")

    def columns(self):
        return self.table.columns()

    def _repr_html_(self):
        return self.table._repr_html_()


def gates(model, text, *, target=None):
    """How far the gates on attention are open, head by head. A model without gates is an error.

    >>> m = rapt.load("default-gated")
    >>> 0 < m.gates("To be, or not to be").mean < 1
    True
    """
    ids, source = read_ids(model, text, target)
    got = _rapt.inspect_gates(model._state, ids, source)
    histogram = array(got.pop("histogram"))
    whole = table(got, ("number", "cross"))
    count = sum(whole["values"])

    def mean(column):
        return sum(float(x) * n for x, n in zip(column, whole["values"])) / count

    return Gates(mean=mean(whole["mean"]), closed=mean(whole["closed"]), table=whole, histogram=histogram)


class Norms(Value):
    """Lengths (L2). `residual` [layers + 1, tokens]; `attn_out`, `ffn_out` (`cross_out`) [layers, tokens]:
    what is added to it; `heads`: of q, k and v, the first token apart from the others."""

    __slots__ = _fields = ("stack", "residual", "attn_out", "ffn_out", "cross_out", "heads")

    def columns(self):
        return self.heads.columns()

    def _repr_html_(self):
        return self.heads._repr_html_()


def norms(model, text, *, target=None, stack=None):
    """How long the vectors are. Of a model with two stacks the encoder's, or `stack`; `heads` has both.

    >>> m = rapt.load("default")
    >>> n = m.norms("To be, or not")
    >>> n.residual.shape[0] - n.attn_out.shape[0]
    1
    """
    ids, source = read_ids(model, text, target)
    got = _rapt.inspect_norms(model._state, ids, source)
    grid = _of_stack(got["grids"], stack, "norms")
    return Norms(stack=grid["stack"], heads=table(got["heads"], ("number",)),
                 **{name: None if grid[name] is None else array(grid[name])
                    for name in ("residual", "attn_out", "ffn_out", "cross_out")})


for _class in (Cache, Gates, Lens, Massive, Norms, Point, Points, Sinks, Table):
    _class.__module__ = "rapt"
