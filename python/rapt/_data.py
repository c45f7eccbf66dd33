# SPDX-License-Identifier: Apache-2.0
"""Training data that a program makes itself: a function of the number of a batch."""
import array as _array
from collections.abc import Mapping

from . import _arrays, _rapt
from ._errors import UsageError

_KEYS = ("tokens", "lengths", "targets", "source", "source_lengths")
_LEAST, _MOST = -(1 << 31), (1 << 31) - 1


def ints(x, what):
    """Whole numbers as one flat row of 32 bits each, and how long the rows of a table are (None: a row)."""
    np = _arrays.numpy()
    if np is not None and (hasattr(x, "__array__") or hasattr(x, "__array_interface__")):
        x = np.asarray(x)
        if x.dtype.kind not in "iu":
            raise UsageError(f"{what}: wants whole numbers, has {x.dtype}")
        if x.ndim not in (1, 2):
            raise UsageError(f"{what}: wants one row or a table of rows, has {x.ndim} dimensions")
        if x.dtype != np.int32:
            if x.size and (x.min() < _LEAST or x.max() > _MOST):
                raise UsageError(f"{what}: a number is outside of 32 bits")
            x = x.astype(np.int32)
        rows = [x.shape[1]] * x.shape[0] if x.ndim == 2 else None
        return np.ascontiguousarray(x).reshape(-1), rows
    try:
        x = list(x)
        if x and hasattr(x[0], "__iter__"):  # rows, not equally long perhaps
            rows = [list(row) for row in x]
            return _array.array("i", [i for row in rows for i in row]), [len(row) for row in rows]
        return _array.array("i", x), None
    except (TypeError, OverflowError) as e:
        raise UsageError(f"{what}: wants whole numbers: {e}") from None


def row(x, what):
    return ints(x, what)[0]


def batch(given, what):
    """A batch as C++ takes it: (tokens, lengths, targets, source, source_lengths)."""
    if not isinstance(given, Mapping):
        raise UsageError(f"{what}: wants a dict of tokens, lengths and targets, not {type(given).__name__}")
    for key in given:
        if key not in _KEYS:
            from ._options import check
            check(given, _KEYS, what)
    get = given.get
    if get("tokens") is None:
        raise UsageError(f"{what}: has no tokens")
    tokens, rows = ints(get("tokens"), f"{what}: tokens")
    lengths = get("lengths") if get("lengths") is not None else rows
    if lengths is None:
        lengths = [len(tokens)]
    targets, source, source_lengths = get("targets"), get("source"), get("source_lengths")
    if targets is not None:
        targets = row(targets, f"{what}: targets")
    if source is not None:
        source, source_rows = ints(source, f"{what}: source")
        source_lengths = source_lengths if source_lengths is not None else source_rows
        if source_lengths is None:
            source_lengths = [len(source)]
    return (tokens, row(lengths, f"{what}: lengths"), targets, source,
            None if source_lengths is None else row(source_lengths, f"{what}: source_lengths"))


class Data:
    """What a Trainer learns from, made by a function: `f(number)` gives the batch of that number, always the
    same one, as a dict of

    - tokens: ids of all sequences, one after the other, or a table with a sequence in each row;
    - lengths: of the sequences (of a table: its rows, if left out);
    - targets: per token what it is to predict, -1 where nothing (left out: the next token of the sequence);
    - source, source_lengths: for a model with encoder and decoder, whose `objective` is "translation".

    `vocab`: how many ids there are. `identity`: a name for what f gives; a training goes on with data of the
    same name only. `held_out`: a list of batches to judge by. f is called from other threads, one call at a
    time, and the next batch is fetched while a step is computed (`ahead=False`: not before it is needed).

    >>> def batch(number):
    ...     return {"tokens": [[(number + i + row) % 7 for i in range(8)] for row in range(4)]}
    >>> d = rapt.Data(batch, vocab=7, identity="count")
    >>> t = rapt.Trainer(rapt.Recipe("gpt-char", width=16, layers=1, heads=2), data=d, steps=3)
    >>> [s.step for s in t]
    [1, 2, 3]
    """

    def __init__(self, f, *, vocab, identity, held_out=None, objective="causal", classes=0, class_names=(),
                 tokenizer="", ahead=True):
        if not callable(f):
            raise TypeError("Data wants a function of the number of a batch")
        if not isinstance(identity, str):
            raise TypeError("identity is a text: a name for what the function gives")
        self.f, self.held_out, self.ahead = f, held_out, bool(ahead)
        self.vocab, self.identity, self.objective = int(vocab), identity, objective
        self.classes, self.class_names = int(classes or len(class_names)), list(class_names)
        self.tokenizer = str(tokenizer)

    def batch(self, number):
        """The batch of that number, as f gives it."""
        return self.f(number)

    def __repr__(self):
        held = f", {len(self.held_out)} batches held out" if self.held_out is not None else ""
        return f"<rapt.Data {self.identity!r}: vocabulary {self.vocab}{held}>"


class Feed:
    """The batches of a Data for one trainer. C++ calls it from the thread that computes; what the next step
    needs was fetched before."""

    def __init__(self, data):
        self._data, self._ready, self._coming, self._pool = data, {}, {}, None

    def source(self):
        d = self._data
        return _rapt.own_data(d.objective, d.vocab, d.classes, d.identity, self._give,
                              0 if d.held_out is None else len(d.held_out), d.tokenizer, d.class_names)

    def _fetch(self, number):
        return batch(self._data.f(number), f"data: batch {number}")

    def _give(self, held_out, number):
        if held_out:
            return batch(self._data.held_out[number], f"data: held-out batch {number}")
        got = self._ready.pop(number, None)
        return got if got is not None else self._fetch(number)

    def prepare(self, now, then):
        """Batches of these numbers are there; those of `then` are being fetched."""
        for number in list(self._coming):
            if number not in now:
                self._coming.pop(number).cancel()
        self._ready = {n: b for n, b in self._ready.items() if n in now}
        for number in now:
            if number not in self._ready:
                coming = self._coming.pop(number, None)
                self._ready[number] = coming.result() if coming else self._fetch(number)
        if not self._data.ahead or not then:
            return
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor
            self._pool = ThreadPoolExecutor(1, "rapt-data")
        for number in then:
            self._coming[number] = self._pool.submit(self._fetch, number)

    def close(self):
        for coming in self._coming.values():
            coming.cancel()
        self._coming.clear()
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None


Data.__module__ = "rapt"
