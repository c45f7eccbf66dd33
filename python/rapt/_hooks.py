# SPDX-License-Identifier: Apache-2.0
"""Functions of one's own at points of a pass, and handles of a model with edits."""
import contextvars

from . import _rapt
from ._arrays import array, numpy
from ._errors import UsageError
from ._inside import read_ids


class At:
    """Where a function is called: `name` (as it was asked for), `point` (our name), `layer` (None: none),
    `stack`, `rows`: a slice, the positions in the text of the value's rows (those of learned tokens are below
    0). While an answer is written, `rows` is None at logits: they are the newest token's."""

    __slots__ = ("name", "point", "layer", "stack", "rows")

    def __init__(self, name, point, layer, stack, rows):
        self.name, self.point, self.layer, self.stack, self.rows = name, point, layer, stack, rows

    def __repr__(self):
        rows = "" if self.rows is None else f", rows={self.rows.start}:{self.rows.stop}"
        return f"At({self.name!r}, layer={self.layer}{rows})"


def _pairs(functions, what):
    """[(name, function)] of a dict, of pairs (as TransformerLens takes them), or of nothing."""
    if functions is None:
        return []
    pairs = functions.items() if hasattr(functions, "items") else functions
    out = []
    for pair in pairs if hasattr(pairs, "__iter__") else [pairs]:
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)
                and callable(pair[1])):
            raise UsageError(f"{what} is a dict of names and functions, or a list of such pairs")
        out.append(pair)
    return out


def _called(f, context):
    """What the module calls: f(x, at), in the caller's context (the pass is computed by another thread)."""

    def call(x, name, point, layer, stack, before, rows):
        at = At(name, point, None if layer < 0 else layer, stack,
                None if rows < 0 else slice(-before, rows - before))
        np = numpy()
        x = array(x) if np else memoryview(x)
        given = context.run(f, x, at)
        if given is None or not np or given is x:
            return None if given is x else given
        return np.asarray(given) if not hasattr(given, "__dlpack__") else given

    return call


def functions_of(hooks, what="hooks"):
    """What the module takes: [(name, what it calls)]."""
    context = contextvars.copy_context()
    return [(name, _called(f, context)) for name, f in _pairs(hooks, what)]


def run_with_hooks(model, text, hooks=None, *, watch=None, target=None, limit=1e9):
    """Logits of one pass in which functions change values: hooks = {name: f(x, at)}. `x` is a writable array;
    what the function leaves in it, or the array of that shape that it returns, is what the pass goes on with.
    Functions of `watch` only see, after the changes; also what is never a tensor of its own (attention
    weights and scores). Arrays may be kept: they are no part of the pass. What a function raises ends the
    pass and arrives here.

    >>> m = rapt.load("default")
    >>> plain, _ = m.run_with_cache("To be, or not", "embeddings")
    >>> def halve(z, at): z[:, 3] *= 0.5
    >>> norms = []
    >>> changed = m.run_with_hooks("To be, or not", {"blocks.5.attn.hook_z": halve},
    ...                            watch={"resid_post.*": lambda x, at: norms.append(abs(x).max())})
    >>> len(norms), bool((changed != plain).any())
    (6, True)
    """
    ids, source = read_ids(model, text, target)
    return array(_rapt.run_hooks(model._state, ids, source, functions_of(hooks),
                                 functions_of(watch, "watch"), float(limit)))


def _edit(edit):
    """(text, value or None) of "z.5@3:zero", ("resid_post.8:add", vector), {"point": …, "op": …}."""
    import json
    if isinstance(edit, str):
        return edit, None
    if isinstance(edit, dict):
        return json.dumps({key: x.tolist() if hasattr(x, "tolist") else x for key, x in edit.items()}), None
    try:
        text, value = edit
    except (TypeError, ValueError):
        raise UsageError(f"an edit is a text, or a pair of a text and a value, not {edit!r}") from None
    if isinstance(value, (int, float)):
        return f"{text}={value!r}", None
    np = numpy()
    if not np and isinstance(value, (list, tuple)):
        from array import array as flat
        value = flat("f", value)
    if np and not hasattr(value, "__dlpack__"):
        value = np.asarray(value)
    if np and isinstance(value, np.ndarray):
        value = np.ascontiguousarray(value, dtype=np.float32)
        if value.ndim == 0:
            return f"{text}={value.item()!r}", None
    return text, value


def edited(model, *edits):
    """Another handle of the same weights: all it computes, it computes with these edits. An edit is a text
    (docs/edits.md), or a pair of such a text and an array. Edits of edits add up.

    >>> m = rapt.load("default")
    >>> e = m.edited("L3H1:zero", ("resid_post.5@-1:scale", 0.5))
    >>> e.edits
    ['L3H1:zero', 'resid_post.5@-1:scale=0.5']
    >>> e.run_with_cache("To be", "z.3")[1]["z.3"][:, 1].any().item()
    False
    """
    if not edits:
        raise UsageError('edited: no edit was given; for example edited("L5H3:zero")')
    return model._with_state(_rapt.edited(model._state, [_edit(edit) for edit in edits]))


At.__module__ = "rapt"
