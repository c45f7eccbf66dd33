# SPDX-License-Identifier: Apache-2.0
"""Recipes: what a model is, as a value."""
import json as _json
import os
import re
from collections.abc import Mapping

from . import _rapt
from ._errors import UnknownName, UsageError


def _plain(x):
    """Numbers of NumPy as those of Python."""
    if hasattr(x, "item") and getattr(x, "shape", None) == ():
        return x.item()
    if isinstance(x, Recipe):
        return dict(x)
    raise TypeError(f"a recipe holds numbers, words, lists and dicts, no {type(x).__name__}")


def _json_of(x):
    return _json.dumps(x, default=_plain, ensure_ascii=False, allow_nan=False)


def _settings(changes, options):
    for name in (*changes, *options):
        if not isinstance(name, str):
            raise UsageError(f"recipe: keys are texts, not {name!r}")
    return [f"{name}={_json_of(value)}" for name, value in (*changes.items(), *options.items())]


def _made(text):
    recipe = Recipe.__new__(Recipe)
    recipe._set(text)
    return recipe


class Recipe(Mapping):
    """What a model is: a preset, a recipe's file, a model (whose headers are read), a dict or JSON, with
    changes. It does not change itself: `replace` makes another one.

    Changes are keys of the recipe with dots, or the short names that reach every place at once: width,
    layers, heads, kv_heads, head_dim, ffn, dropout, window.

    >>> r = rapt.Recipe("llama3", width=256, layers=6, heads=8, kv_heads=2, ffn=768, vocab=512)
    >>> r["width"], r["decoder.layers"], r["decoder.kinds.L.parts[0].self.kv_heads"]
    (256, 6, 2)
    >>> r.parameters
    4787456
    >>> gated = r.replace(**{"decoder.kinds.L.parts[0].self.gate": [{"at": "sdpa"}]})
    >>> for path, before, after in r.diff(gated): print(path)
    decoder.kinds.L.parts[0].self.gate[0]
    >>> r == rapt.Recipe(r.json()), r == gated
    (True, False)
    >>> rapt.Recipe("gpt2", layer=2)
    Traceback (most recent call last):
    rapt.UnknownName: layer=2: layer: unknown key; did you mean 'layers'?
    """

    __slots__ = ("_text", "_values")

    def __init__(self, source, changes=None, /, **options):
        settings = _settings(dict(changes or {}), options)
        if isinstance(source, Recipe):
            text = _rapt.recipe_parsed(source._text, settings)
        elif isinstance(source, Mapping):
            text = _rapt.recipe_parsed(_json_of(dict(source)), settings)
        elif isinstance(source, os.PathLike):
            text = _rapt.recipe_named(os.fspath(source), settings)
        elif not isinstance(source, str):
            raise TypeError("a recipe is made of a name, a file, a dict or JSON, "
                            f"not of {type(source).__name__}")
        elif source.lstrip().startswith("{"):
            text = _rapt.recipe_parsed(source, settings)
        else:
            text = _rapt.recipe_named(source, settings)
        self._set(text)

    def _set(self, text):
        object.__setattr__(self, "_text", text)
        object.__setattr__(self, "_values", None)

    def __setattr__(self, name, value):
        raise AttributeError(f"a Recipe does not change; make another one: recipe.replace({name}=…)")

    @property
    def _all(self):
        if self._values is None:
            object.__setattr__(self, "_values", _json.loads(_rapt.recipe_whole(self._text)))
        return self._values

    # ------------------------------------------------------------------------------------------- a Mapping
    def __getitem__(self, key):
        """A field by its path: "width", "decoder.layers", "decoder.kinds.L.parts[0].self.heads"."""
        if not isinstance(key, str):
            raise TypeError(f"fields of a recipe have names, not {key!r}")
        here, path = self._all, ""
        for name, place in re.findall(r"([^.\[\]]+)|\[(\d+)\]", key):
            if place:
                if not isinstance(here, list) or int(place) >= len(here):
                    raise UnknownName(f"recipe: {key}: {path or 'the recipe'} has no entry {place}")
                here, path = here[int(place)], f"{path}[{place}]"
                continue
            if not isinstance(here, dict) or name not in here:
                raise UnknownName(f"recipe: {key}: {_unknown(name, here, path)}")
            here, path = here[name], f"{path}.{name}" if path else name
        if not path:
            raise UnknownName(f"recipe: there is no field {key!r}")
        return _json.loads(_json.dumps(here))  # a copy: the recipe stays as it is

    def __contains__(self, key):
        try:
            self[key]
        except (UnknownName, TypeError):
            return False
        return True

    def __iter__(self):
        return iter(self._all)

    def __len__(self):
        return len(self._all)

    # -------------------------------------------------------------------------------------------- as a value
    def __eq__(self, other):
        if not isinstance(other, Recipe):
            return NotImplemented
        return self._text == other._text or not self.diff(other)

    def __hash__(self):
        return hash((self["width"], self["vocab"], self["context"], self.parameters))

    def __reduce__(self):
        return _made, (self._text,)

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __repr__(self):
        return f"<rapt.Recipe {self.name}: {self.parameters:,} parameters>"

    def _repr_html_(self):
        from html import escape
        return f"<div><b>{escape(self.name)}</b>: {self.parameters:,} parameters</div>{self.svg()}"

    # --------------------------------------------------------------------------------------- what it is
    @property
    def name(self):
        return self._all["name"]

    @property
    def parameters(self):
        """How many numbers a model of this recipe learns."""
        return _rapt.recipe_sizes(self._text)["total"]

    def sizes(self):
        """Parameters of its parts, "biases" among them, what one token uses ("active"), and the "total"."""
        return _rapt.recipe_sizes(self._text)

    def json(self, all=False):
        """As JSON text; `all`: with every field, those too that are as they always are."""
        return _rapt.recipe_whole(self._text) if all else self._text

    def replace(self, changes=None, /, **options):
        """Another recipe, with changes as in Recipe(…)."""
        return Recipe(self, changes, **options)

    def diff(self, other):
        """Where another recipe (or what Recipe() makes one of) differs: (path, here, there), values as JSON
        or "absent". Names and notes do not count."""
        other = other if isinstance(other, Recipe) else Recipe(other)
        return _rapt.recipe_diff(self._text, other._text)

    def show(self, width=100):
        """The drawing, in so many columns of text."""
        return Drawing(_rapt.recipe_drawing(self._text, width))

    def svg(self, lang="en"):
        """The drawing as a picture."""
        return _rapt.recipe_svg(self._text, lang)

    def latex(self, lang="en"):
        """The model as formulas."""
        return _rapt.recipe_latex(self._text, lang)


class Drawing(str):
    """Text that shows itself at a prompt."""

    __slots__ = ()

    def __repr__(self):
        return str(self)

    def _repr_html_(self):
        from html import escape
        return f"<pre>{escape(self)}</pre>"


def _unknown(name, here, path):
    import difflib
    where = f"{path} has" if path else "a recipe has"
    if not isinstance(here, dict):
        return f"{where} no fields"
    near = difflib.get_close_matches(name, here, 1, 0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(here)}"
    return f"{where} no field {name!r}; {hint}"


def presets():
    """Names of the presets, with what each is.

    >>> rapt.presets()["llama3"][:5]
    'Llama'
    """
    return dict(_rapt.presets())


for _class in (Recipe,):
    _class.__module__ = "rapt"
