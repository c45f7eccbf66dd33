# SPDX-License-Identifier: Apache-2.0
"""Why a model says what it says: one number that a pass ends in (a metric), its parts, what brings it back,
its gradients. A metric is written as for `rapt inspect attribution` ("logit", "logit= Paris",
"difference= A, B", "logprob=id:7@-2", "loss"), or as a tuple: ("difference", " Paris", 12),
("logit", 7, dict(at=-2))."""
from . import _rapt
from ._arrays import array
from ._errors import UnknownName
from ._inside import Cache, _names, read_ids, table
from ._options import check
from ._progress import bar
from ._values import Value


class Metric(Value):
    """The number that was asked about; `text` says it. `position` is counted from the front."""

    __slots__ = _fields = ("kind", "token", "other", "position", "text")

    def __str__(self):
        return self.text


def _value(x):
    """A number of a metric; tokens are ids, or texts that are one token."""
    return x if isinstance(x, str) else f"id:{int(x)}"


def metric_text(metric):
    """The text of either form."""
    if isinstance(metric, str):
        return metric
    kind, *tokens = metric
    at = tokens.pop()["at"] if tokens and isinstance(tokens[-1], dict) else None
    text = kind + ("=" + ",".join(map(_value, tokens)) if tokens else "")
    return text if at is None else f"{text}@{at}"


class Attribution(Value):
    """Direct logit attribution. `parts`: what each term of the residual stream adds to the logit; they and
    `rest` (rounding) add up to it. `heads`: the attentions' shares, head by head."""

    __slots__ = _fields = ("metric", "logit", "capped", "parts", "heads", "rest", "gated", "normed")

    def columns(self):
        return self.heads.columns()

    def grid(self):
        """Shares of self-attention heads [layers, heads]; NaN: no such head."""
        from ._arrays import numpy
        rows = [r for r in self.heads if r["head"] >= 0 and not r.get("cross")]
        layers, heads = 1 + max(r["layer"] for r in rows), 1 + max(r["head"] for r in rows)
        out = [[float("nan")] * heads for _ in range(layers)]
        for r in rows:
            out[r["layer"]][r["head"]] = float(r["value"])
        return numpy().array(out) if numpy() else out

    def _repr_html_(self):
        return self.parts._repr_html_()


def attribution(model, text, metric="logit", *, target=None):
    """What a logit, or the difference of two, is made of: the share of every head and part.

    >>> m = rapt.load("default")
    >>> a = m.attribution("To be, or not to be")
    >>> bool(abs(sum(a.parts["value"]) + a.rest - a.logit) < 1e-6)
    True
    """
    ids, source = read_ids(model, text, target)
    got = _rapt.inspect_attribution(model._state, ids, source, metric_text(metric))
    drop = ("number", "cross")
    return Attribution(**{**got, "metric": Metric(**got["metric"]), "parts": table(got["parts"], drop),
                          "heads": table(got["heads"], drop)})


class Patched(Value):
    """One sweep: the metric patched (`value`) and how much of it came back (`recovered`, 0 … 1), [layers,
    columns]; columns are positions, or heads where `what` is "heads"."""

    __slots__ = _fields = ("what", "layers", "value", "recovered")

    def _repr_html_(self):
        from ._report import grid_html
        return grid_html(f"recovered, {self.what}", [[[x] for x in row] for row in self.recovered])


class Patching(Value):
    """Activation patching: result["heads"].recovered is [layers, heads]."""

    __slots__ = _fields = ("metric", "clean", "corrupted", "grids")

    def __getitem__(self, what):
        for grid in self.grids:
            if grid.what == what:
                return grid
        raise UnknownName(f"there is no sweep {what!r}; there are: {', '.join(g.what for g in self.grids)}")

    def columns(self):
        """A row for each cell of every sweep."""
        out = {name: [] for name in ("what", "layer", "column", "value", "recovered")}
        for grid in self.grids:
            for i, layer in enumerate(grid.layers):
                for j in range(len(grid.value[i])):
                    for name, x in zip(out, (grid.what, layer, j, float(grid.value[i][j]),
                                             float(grid.recovered[i][j]))):
                        out[name].append(x)
        return out

    def _repr_html_(self):
        return "".join(grid._repr_html_() for grid in self.grids)


SWEEPS = ("resid_pre", "attn_out", "ffn_out", "heads")


def patching(model, clean, corrupted, metric=None, *, what=SWEEPS, progress=None):
    """Activation patching: `corrupted`, of as many tokens as `clean`, is read again and again, each time with
    one activation of the clean text in its place. Without a metric: the difference of the logits of what the
    model would go on with after either text.

    >>> m = rapt.load("default")
    >>> p = m.patching("To be, or not", "To be, or now", what="heads")
    >>> p["heads"].recovered.shape
    (6, 6)
    """
    what = [what] if isinstance(what, str) else list(what)
    check(what, SWEEPS, "patching")
    ids, other = read_ids(model, clean)[0], read_ids(model, corrupted)[0]
    with bar(progress, "patching") as told:
        got = _rapt.inspect_patching(model._state, ids, other, "" if metric is None else metric_text(metric),
                                     what, told if told.named else None)
    return Patching(metric=Metric(**got["metric"]), clean=got["clean"], corrupted=got["corrupted"],
                    grids=[Patched(what=g["what"], layers=g["layers"], value=array(g["value"]),
                                   recovered=array(g["recovered"])) for g in got["grids"]])


def gradients_at(model, text, names, metric="loss", *, target=None, limit=1e9):
    """(value, cache): the metric, and its derivative by every number of the points, as run_with_cache gives
    them. The weights must be floats: load(..., exact=True) makes them so.

    >>> m = rapt.load("default", exact=True)
    >>> value, gradients = m.gradients_at("To be, or not", "resid_post.2")
    >>> gradients["resid_post.2"].shape[1]
    192
    """
    ids, source = read_ids(model, text, target)
    metric, value, tensors = _rapt.inspect_gradients(model._state, _names(model, names), ids, source,
                                                     metric_text(metric), float(limit))
    return value, Cache(model._state, tensors, ids, source)


for _class in (Attribution, Metric, Patched, Patching):
    _class.__module__ = "rapt"
