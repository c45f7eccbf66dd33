# SPDX-License-Identifier: Apache-2.0
"""What results have in common: they print well, compare by value, pickle, and can be columns or JSON."""
import json as _json


def plain(x):
    """Arrays and values as lists and numbers."""
    if hasattr(x, "tolist"):
        return x.tolist()
    if isinstance(x, Value):
        return {name: plain(getattr(x, name)) for name in x._fields}
    if isinstance(x, dict):
        return {key: plain(value) for key, value in x.items()}
    if isinstance(x, (list, tuple)):
        return [plain(value) for value in x]
    return x


def equal(a, b):
    """Whether two plain things are the same; what is no number equals what is no number."""
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (a != a and b != b)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    return a == b


def _finite(x):
    """JSON has no infinity, and nothing that is no number."""
    if isinstance(x, float):
        return x if x - x == 0 else None
    if isinstance(x, list):
        return [_finite(value) for value in x]
    if isinstance(x, dict):
        return {key: _finite(value) for key, value in x.items()}
    return x


class Value:
    """A result. Its class names its `_fields`; those in `_columns` are equally long lists or arrays."""

    __slots__ = ()
    _fields = ()
    _columns = ()

    def __init__(self, **fields):
        for name in self._fields:
            object.__setattr__(self, name, fields.pop(name))
        if fields:
            raise TypeError(f"{type(self).__name__}: no field {next(iter(fields))!r}")

    def __setattr__(self, name, value):
        raise AttributeError(f"{type(self).__name__} is a result; its {name} does not change")

    def __eq__(self, other):
        return type(self) is type(other) and equal(plain(self), plain(other))

    __hash__ = None

    def __repr__(self):
        shown = ", ".join(f"{name}={self._short(getattr(self, name))}" for name in self._fields)
        return f"{type(self).__name__}({shown})"

    @staticmethod
    def _short(x):
        if hasattr(x, "shape") and x.shape != ():
            return f"<array {'x'.join(map(str, x.shape))}>"
        text = repr(x)
        return text if len(text) <= 60 else text[:57] + "…"

    def __reduce__(self):
        return _made, (type(self), {name: getattr(self, name) for name in self._fields})

    def columns(self):
        """A dict of equally long columns: pandas.DataFrame(x.columns())."""
        return {name: getattr(self, name) for name in self._columns}

    def json(self):
        """As JSON text; what is not finite is null."""
        return _json.dumps(_finite(plain(self)), ensure_ascii=False)


def _made(cls, fields):
    return cls(**fields)
