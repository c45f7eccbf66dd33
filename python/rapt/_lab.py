# SPDX-License-Identifier: Apache-2.0
"""Experiments: those of the program, and those that a Python program makes."""
import json as _json
import math
import os
import time
from collections.abc import Sequence

from . import _rapt
from ._errors import UnknownName, UsageError
from ._model import _device
from ._train import _column
from ._values import Value

_own = {}  # by name


class Experiment(Value):
    """What may be run: its question, the claim as people tell it, minutes on two cores; `of_model`: asked of
    a model that you name."""

    __slots__ = _fields = ("name", "question", "claim", "minutes", "of_model")


class Finding(Value):
    """One thing that was measured. `measured`: the effect as one number; `unit`: "", "nats", "x", "%";
    `expected`: in words; `holds`: whether it came out so; `paper`: what the literature reports; `every_seed`:
    False where it may come out either way."""

    __slots__ = _fields = ("what", "measured", "unit", "expected", "holds", "paper", "every_seed")

    def __init__(self, what, measured, expected="", holds=True, unit="", paper="", every_seed=True):
        super().__init__(what=str(what), measured=float(measured), unit=str(unit), expected=str(expected),
                         holds=bool(holds), paper=str(paper), every_seed=bool(every_seed))


class Findings(Sequence):
    """Findings in their order: a list, and columns()."""

    __slots__ = ("_all",)

    def __init__(self, findings=()):
        self._all = tuple(findings)

    def __getitem__(self, i):
        return Findings(self._all[i]) if isinstance(i, slice) else self._all[i]

    def __len__(self):
        return len(self._all)

    def __eq__(self, other):
        return isinstance(other, Findings) and self._all == other._all

    __hash__ = None

    def columns(self):
        """A dict of equally long columns: pandas.DataFrame(findings.columns())."""
        out = {name: [getattr(f, name) for f in self._all] for name in Finding._fields}
        return {**out, "measured": _column(out["measured"])}

    def __repr__(self):
        lines = [f"{'yes' if f.holds else 'no '}  {f.what}: {f'{f.measured:.4g} {f.unit}'.rstrip()}"
                 + (f" (expected: {f.expected})" if f.expected else "") for f in self._all]
        return "\n".join(lines) or "no findings"


class Result:
    """What an experiment measured: findings, a verdict made from them, a document with tables and charts."""

    __slots__ = ("name", "seed", "effort", "seconds", "_result", "_document")

    def __init__(self, name, seed, effort, seconds, result, document):
        for key, value in zip(self.__slots__, (name, seed, effort, seconds, result, document)):
            object.__setattr__(self, key, value)

    def __setattr__(self, name, value):
        raise AttributeError(f"a Result does not change: {name}")

    @property
    def findings(self):
        return self.findings_in("en")

    def findings_in(self, lang):
        """The findings in another language: "zh"."""
        return Findings(Finding(what, measured, expected, holds, unit, paper, every)
                        for what, measured, unit, expected, holds, paper, every
                        in _rapt.lab_findings(self._result, lang))

    @property
    def holds(self):
        """Whether all came out that is promised to come out with every seed."""
        return all(f.holds for f in self.findings if f.every_seed)

    @property
    def verdict(self):
        return _rapt.lab_verdict(self._result, "en")

    def text(self, lang="en", width=100):
        """The document as text."""
        return _rapt.lab_shown(self._document, "text", lang, width)

    def markdown(self, lang="en"):
        return _rapt.lab_shown(self._document, "markdown", lang, 0)

    def json(self):
        """The document as JSON: every number, in English."""
        return _rapt.lab_shown(self._document, "json", "en", 0)

    def report(self, lang="en"):
        """The document as a page with its charts, which a notebook shows; report().save(path)."""
        from ._report import Report
        return Report(_rapt.lab_shown(self._document, "html", lang, 0), self.name)

    def _repr_html_(self):
        return self.report()._repr_html_()

    def __eq__(self, other):
        return type(other) is Result and self.name == other.name and self._result == other._result

    __hash__ = None

    def __reduce__(self):
        return Result, tuple(getattr(self, key) for key in self.__slots__)

    def __repr__(self):
        return f"{self.name}, seed {self.seed}:\n{self.findings!r}\n{self.verdict}"


class Lab:
    """What an experiment of your own gets. Everything random should come from `seed`; `effort`: the share of
    its full work that is asked for (0 … 1); `text`: what it is to learn, where somebody said so."""

    def __init__(self, seed, effort, text, device, progress):
        self.seed, self.effort, self.text, self.device = seed, effort, text, device
        self._progress, self._parts = progress, []

    def progress(self, what, done, of):
        """Says how far it is."""
        if self._progress:
            self._progress(what, done, of)

    def words(self, text):
        """A paragraph of the document."""
        self._parts.append({"kind": "words", "text": str(text), "heading": False})

    def table(self, columns, title=""):
        """A table of the document, from a dict of equally long columns."""
        names, values = list(columns), [list(c) for c in columns.values()]
        if len({len(c) for c in values}) > 1:
            raise UsageError("table: its columns have different lengths")
        def cell(x):
            number = isinstance(x, (int, float)) or hasattr(x, "item")
            return {"text": f"{x:.4g}", "number": float(x)} if number else {"text": str(x)}
        self._parts.append({"kind": "table", "title": title, "columns": [str(n) for n in names],
                            "rows": [[cell(x) for x in row] for row in zip(*values)]})

    def chart(self, curves, title="", x="", y="", log=False):
        """A chart of the document, from {name: (x values, y values)}."""
        def finite(values):
            return [float(v) if math.isfinite(v) else None for v in values]
        self._parts.append({"kind": "chart", "title": title, "x_label": x, "y_label": y, "log_y": bool(log),
                            "share": False,
                            "curves": [{"name": str(name), "x": finite(xs), "y": finite(ys)}
                                       for name, (xs, ys) in curves.items()]})


def experiments(lang="en"):
    """All there are, your own last."""
    known = [Experiment(**dict(zip(Experiment._fields, row))) for row in _rapt.lab_experiments(lang)]
    return known + [e for e, _ in _own.values()]


def experiment(*, name, question, claim=""):
    """Makes an experiment of a function: it gets a Lab and returns a Finding, a list of them, or (findings,
    verdict). rapt.lab.run(name) then runs it as any other.

    >>> @rapt.lab.experiment(name="thirds", question="Is a third a third?", claim="It is.")
    ... def thirds(lab):
    ...     off = abs(1 / 3 - 0.333)
    ...     return rapt.lab.Finding("distance from a third", off, "below 0.001", off < 1e-3)
    >>> rapt.lab.run("thirds").holds
    True
    """
    if any(e.name == name for e in experiments() if e.name not in _own):
        raise UsageError(f"lab: there is an experiment {name!r} already")

    def made(f):
        _own[name] = (Experiment(name=name, question=question, claim=claim, minutes=0.0, of_model=False), f)
        return f
    return made


def run(name, seed=0, *, effort=1.0, model=None, text=None, device=None, progress=None):
    """Runs an experiment: seconds to minutes (experiments() says how many). `seed`: another start; `effort`:
    the share of its training steps and samples (verdicts are made for 1); `model`: the same asked of a model
    of yours; `text`: what it learns or reads; `progress`: hears (what, done, of).

    >>> r = rapt.lab.run("key-bias")
    >>> r.holds, len(r.findings) == len(r.findings.columns()["what"])
    (True, True)
    """
    from ._progress import bar
    seed, effort = int(seed), float(effort)
    if not isinstance(name, str):
        raise TypeError("the name of an experiment: rapt.lab.experiments() lists them")
    if name in _own and model is None:
        return _run_own(name, seed, effort, text, device, progress)
    if model is None:
        of_model = {e.name for e in experiments() if e.of_model}
        plain = [e.name for e in experiments() if not e.of_model]
        if name not in plain and name not in of_model:
            import difflib
            near = difflib.get_close_matches(name, [*plain, *of_model], 1, 0.5)
            raise UnknownName(f"lab: there is no experiment {name!r}; "
                              + (f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(plain)}"))
        if name not in plain:
            raise UsageError(f"lab: {name} is asked of a model: rapt.lab.run({name!r}, model=…)")
    command = "".join((f"rapt lab {name}", f" --seed {seed}" if seed else "",
                       f" --effort {effort:g}" if effort != 1 else ""))
    path = "" if model is None else model.path if hasattr(model, "_state") else os.fspath(model)
    if model is not None and not path:
        raise UsageError("lab: experiments open the model themselves; save it first")
    with bar(progress, name) as told:
        result, document, seconds = _rapt.lab_run(name, path, seed, effort, text or "", command,
                                                  _device(None, device), told.named)
    return Result(name, seed, effort, seconds, result, document)


def _run_own(name, seed, effort, text, device, progress):
    from ._progress import bar
    about, f = _own[name]
    start = time.monotonic()
    with bar(progress, name) as told:
        lab = Lab(seed, effort, text, device, told.named)
        got = f(lab)
    verdict = ""
    if isinstance(got, tuple) and len(got) == 2 and isinstance(got[1], str):
        got, verdict = got
    found = Findings([got] if isinstance(got, Finding) else list(got))
    for one in found:
        if not isinstance(one, Finding):
            raise UsageError(f"lab: {name} returned a {type(one).__name__}; it returns rapt.lab.Finding "
                             "objects")
    if not verdict:
        held = sum(one.holds for one in found)
        verdict = f"{held} of {len(found)} hold."
    rows = [{key: getattr(one, key) for key in Finding._fields} for one in found]
    for row in rows:
        row["measured"] = row["measured"] if math.isfinite(row["measured"]) else None
    document = {"name": name, "title": about.question, "parts": lab._parts, "facts": {}}
    result = _json.dumps({"findings": rows, "verdict": verdict, "document": document})
    seconds = time.monotonic() - start
    document = _rapt.lab_document(name, about.question, about.claim, result, seed, effort, seconds,
                                  _device(None, device))
    return Result(name, seed, effort, seconds, result, document)


for _class in (Experiment, Finding, Findings, Result, Lab):
    _class.__module__ = "rapt.lab"
