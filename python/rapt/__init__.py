# SPDX-License-Identifier: Apache-2.0
"""Rapt: run, train and look inside Transformers.

>>> import rapt
>>> m = rapt.load("default")                  # the model that comes along; or a file, a folder, a name
>>> str(m.generate("ROMEO:", max_tokens=8, temperature=0)) != ""
True
"""
import importlib as _importlib

from . import _rapt
from ._errors import Cancelled, Error, NotFound, UnknownName, UsageError

version = __version__ = _rapt.version

# What is imported with its first use, and where it stands.
_WHERE = {
    "Answer": "_answer", "Piece": "_answer", "Score": "_answer", "Stream": "_answer", "Times": "_answer",
    "Chat": "_chat",
    "Device": "_model", "Model": "_model", "load": "_model",
    "Tokenizer": "_tokenizer",
    "Server": "_files", "check": "_files", "convert": "_files", "devices": "_files", "models": "_files",
    "serve": "_files", "show": "_files",
    "Recipe": "_recipe", "presets": "_recipe",
    "Attention": "_attention",
    "Report": "_report",
    "Data": "_data",
    "Trainer": "_train",
}
# What calls return: for annotations, isinstance and pickle.
_RESULTS = {
    **dict.fromkeys("Adapter Alignment Guess Perplexity Translation".split(), "_model"),
    **dict.fromkeys("Cache Gates Lens Massive Norms Point Points Sinks Table".split(), "_inside"),
    **dict.fromkeys("Attribution Metric Patched Patching".split(), "_attribution"),
    **dict.fromkeys("Gradients HeldOut Judgement Metrics Optimizer StepReport Weights".split(), "_train"),
    **dict.fromkeys("DeviceInfo ModelInfo ModelList".split(), "_files"),
    "At": "_hooks", "Drawing": "_recipe",
}
__all__ = ["Cancelled", "Error", "NotFound", "UnknownName", "UsageError", "lab", "version", *_WHERE]


def __getattr__(name):
    where = _WHERE.get(name) or _RESULTS.get(name)
    if where:
        value = getattr(_importlib.import_module("." + where, __name__), name)
    elif name == "lab":
        value = _importlib.import_module(".lab", __name__)
    else:
        raise AttributeError(f"module 'rapt' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *__all__})
