# SPDX-License-Identifier: Apache-2.0
"""Attention of one pass: statistics of every row without a T x T, any row of any head computed anew."""
from . import _rapt
from ._arrays import array, numpy
from ._errors import UsageError
from ._inside import read_ids, sinks as _sinks, table


class Attention:
    """What `attention()` gives. Weights are computed anew when they are asked for: nothing of size T x T is
    kept. `tokens`: the words of the text."""

    def __init__(self, model, text, target, first, limit):
        ids, source = read_ids(model, text, target)
        self._model, self._text, self._target = model, (source or ids), (ids if source else None)
        self.ids, self.source = ids, source
        self._record = _rapt.attention_record(model._state, ids, source, first, float(limit))
        self._places = _rapt.record_places(self._record)
        self._stats, self._heads = {}, None
        self._stack = "encoder" if any(p[0] == "encoder" for p in self._places) else "decoder"

    @property
    def tokens(self):
        return _rapt.token_words(self._model._state, self.source if self._stack == "encoder" and self.source
                                 else self.ids)

    @property
    def stats(self):
        """{name: [layers, heads, T]} of self-attention, from the fused kernel: entropy (nats), weight on the
        first key(s), on the row's own, on the one before (`first`, `self`, `previous`), mean `distance`, the
        `strongest` key, the largest score (`max_logit`), the weights' `sum`. NaN: no such head."""
        return self.stats_of()

    def stats_of(self, *, stack=None, cross=False):
        """The same of another stack, or of cross-attention."""
        key = stack or ("decoder" if cross else self._stack), cross
        if key not in self._stats:
            self._stats[key] = {name: array(x) for name, x in _rapt.record_stats(self._record, *key).items()}
        return self._stats[key]

    @property
    def heads(self):
        """A table: what every head does, with a label where something stands out."""
        if self._heads is None:
            self._heads = table(_rapt.record_heads(self._record, 2048), ("number", "cross"))
        return self._heads

    def map(self, layer, head=None, rows=None, *, stack=None, cross=False, number=0, limit=1e9):
        """Weights [rows, keys] of a head, exactly as the model had them, or of all heads of the layer [heads,
        rows, keys]. `rows`: a slice, a number, or a list of positions."""
        stack = stack or ("decoder" if cross else self._stack)
        count = len(_rapt.record_ids(self._record, stack, cross)[0])
        layers = 1 + max(p[1] for p in self._places if p[0] == stack)
        one = isinstance(rows, int)
        if rows is None:
            which = range(count)
        elif one:
            which = [rows + count if rows < 0 else rows]
        elif isinstance(rows, slice):
            which = range(*rows.indices(count))
        else:
            which = [int(r) + count if r < 0 else int(r) for r in rows]
        order = sorted(range(len(which)), key=which.__getitem__)
        got = array(_rapt.record_rows(self._record, stack, cross, layer + layers if layer < 0 else layer,
                                      number, -1 if head is None else head, [which[i] for i in order],
                                      float(limit)))
        if order != list(range(len(which))):
            back = sorted(range(len(which)), key=order.__getitem__)
            got = got[..., back, :]
        return got[..., 0, :] if one else got

    def sinks(self, **options):
        """As model.sinks() of the same text."""
        return _sinks(self._model, self._text, target=self._target, **options)

    def columns(self):
        return self.heads.columns()

    def __repr__(self):
        heads, layers = sum(p[4] for p in self._places), len({p[:2] for p in self._places})
        return f"Attention({len(self.ids)} tokens, {heads} heads in {layers} layers)"

    def _repr_html_(self):
        from ._report import grid_html
        if not numpy():
            return self.heads._repr_html_()
        return grid_html("weight on the first token, layer by head", self.stats["first"])


def attention(model, text, *, target=None, first=1, limit=8e9):
    """One pass over a text, whose attention can be asked afterwards. `first`: how many keys the first ones
    are.

    >>> m = rapt.load("default")
    >>> att = m.attention("To be, or not to be")
    >>> att.stats["entropy"].shape == (6, 6, len(att.ids))
    True
    >>> att.map(layer=5, head=3).shape == (len(att.ids), len(att.ids))
    True
    >>> len(att.heads)
    36
    """
    if first < 1:
        raise UsageError("first: at least one key")
    return Attention(model, text, target, first, limit)


Attention.__module__ = "rapt"
