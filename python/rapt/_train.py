# SPDX-License-Identifier: Apache-2.0
"""Training: a loop that is Python's, steps that are those of `rapt train`; and steps by hand."""
import _thread
import json as _json
import os
import weakref as _weakref
from collections.abc import Mapping

from . import _arrays, _rapt
from ._data import Data, Feed, batch as _batch
from ._errors import Error, UsageError
from ._model import Model, _device
from ._options import check
from ._progress import bar
from ._recipe import Recipe
from ._values import Value

_GROUPS = ("optimizer", "schedule", "guard")
_open = _weakref.WeakValueDictionary()  # trainers of this process, by their folders
_SHORT = {"rate": "optimizer.rate", "warmup": "schedule.warmup"}


def _number(x):
    if hasattr(x, "item") and getattr(x, "shape", None) == ():
        return x.item()
    raise TypeError(f"an option is a number, a word, true or false, not {type(x).__name__}")


def _column(values, whole=False):
    np = _arrays.numpy()
    if np is None:
        return list(values)
    return np.array(values, dtype=np.int64 if whole else np.float64)


class StepReport(Value):
    """One step of a training. `fate`: done, skipped (its loss or gradient was out of line: the weights stayed
    as they were, `why` says it) or rewound (so often that the run went back to its last state). `step` counts
    the finished ones; `health`: the attention of each layer, where this step was looked at."""

    __slots__ = _fields = ("step", "batch", "loss", "norm", "rate", "tokens", "seconds", "fate", "why",
                           "health")

    @property
    def skipped(self):
        return self.fate != "done"


class Judgement(Value):
    """How a model does on the held-out part: loss and accuracy per target that counts, and their number."""

    __slots__ = _fields = ("loss", "accuracy", "counted")

    @property
    def perplexity(self):
        import math
        return math.exp(self.loss)


class Metrics(Value):
    """A training's numbers so far: of its steps (columns()) and of its looks at the held-out part
    (held_out.columns())."""

    __slots__ = _fields = ("step", "loss", "norm", "rate", "tokens", "seconds", "skipped", "held_out")
    _columns = _fields[:-1]


class HeldOut(Value):
    """Looks at the held-out part."""

    __slots__ = _fields = _columns = ("step", "loss", "accuracy")


def _report(t):
    return StepReport(**dict(zip(StepReport._fields, t[:9])), health=_json.loads(t[9]) if t[9] else [])


def _judgement(t):
    return Judgement(loss=t[0], accuracy=t[1], counted=t[2])


def _metrics(lines):
    nan = float("nan")
    value = lambda line, key: nan if line.get(key) is None else line[key]
    steps = [line for line in lines if "loss" in line and "rate" in line]
    looks = list({line["step"]: line for line in lines if "held_out_loss" in line}.values())
    return Metrics(
        step=_column([s["step"] for s in steps], True), loss=_column([value(s, "loss") for s in steps]),
        norm=_column([value(s, "norm") for s in steps]), rate=_column([s["rate"] for s in steps]),
        tokens=_column([s["tokens"] for s in steps], True), seconds=_column([s["seconds"] for s in steps]),
        skipped=_column([int(s.get("fate", "done") != "done") for s in steps], True),
        held_out=HeldOut(step=_column([s["step"] for s in looks], True),
                         loss=_column([value(s, "held_out_loss") for s in looks]),
                         accuracy=_column([value(s, "held_out_accuracy") for s in looks])))


# ----------------------------------------------------------------------------------------- steps by hand
class Gradients(Mapping):
    """Gradients by the names of weights, each a copy as rows of f32; what is put in takes its place.
    `loss`: what they are the gradients of."""

    __slots__ = ("_c", "loss")

    def __init__(self, c, loss):
        self._c, self.loss = c, loss

    def __getitem__(self, name):
        return _arrays.array(self._c.get(name))

    def __setitem__(self, name, values):
        self._c.put(name, _floats(values, name))

    def __iter__(self):
        return iter(self._c.names())

    def __len__(self):
        return len(self._c.names())

    def __repr__(self):
        return f"<rapt.Gradients of {len(self)} weights, loss {self.loss:.4f}>"


def _floats(x, name):
    np = _arrays.numpy()
    if np is None:
        return x
    x = np.asarray(x)
    if x.dtype.kind not in "fiu":
        raise UsageError(f"{name}: wants numbers, has {x.dtype}")
    return np.ascontiguousarray(x, dtype=np.float32)


def gradients(model, tokens, lengths=None, targets=None, *, source=None, source_lengths=None, smoothing=0.0,
              number=None, seed=0):
    """(loss, Gradients) of a batch; see Data for what tokens, lengths and targets are. `number`: as in a
    training with this seed, whose batch it is: with dropout, drawn from both; without it there is none."""
    given = {"tokens": tokens, "lengths": lengths, "targets": targets, "source": source,
             "source_lengths": source_lengths}
    model._refuse_adapters("gradients")
    c = _rapt.gradients_of(model._state, *_batch(given, "gradients"), smoothing, number, seed)
    return c.loss, Gradients(c, c.loss)


class Weights(Mapping):
    """A model's weights by name, each a copy as rows of f32 whatever its format. Setting one copies values of
    the same shape into the model; that of a block format is refused (open the model with exact=True)."""

    __slots__ = ("_state",)

    def __init__(self, state):
        self._state = state

    def __getitem__(self, name):
        return _arrays.array(_rapt.weight(self._state, name))

    def __setitem__(self, name, values):
        _rapt.set_weight(self._state, name, _floats(values, name))

    def __iter__(self):
        return (name for name, _, _ in _rapt.weights(self._state))

    def __len__(self):
        return len(_rapt.weights(self._state))

    def __contains__(self, name):
        return any(name == known for known in self)

    def raw(self, name):
        """The bytes as they lie in memory: panels of 32 rows, blocks of a quantized format."""
        return _rapt.raw_weight(self._state, name)

    def shapes(self):
        """{name: shape}."""
        return {name: tuple(shape) for name, shape, _ in _rapt.weights(self._state)}

    def formats(self):
        """{name: format}: "f32", "q4_0" …"""
        return {name: kind for name, _, kind in _rapt.weights(self._state)}

    def __repr__(self):
        return f"<rapt.Weights: {len(self)} of them>"


class Optimizer:
    """A trainer's optimizer, for steps by hand."""

    def __init__(self, trainer):
        self._trainer = trainer

    def step(self, grads):
        """One step with these gradients, clipped, at the rate that the schedule has now; it counts as one of
        the training. `grads`: what model.gradients() gives, or a dict of arrays by names of weights."""
        c = self._trainer._c
        if not isinstance(grads, Gradients):
            if not isinstance(grads, Mapping):
                raise TypeError("gradients are what model.gradients() gives, or a dict of arrays")
            made = Gradients(_rapt.no_gradients(self._trainer.model._state), float("nan"))
            for name, values in grads.items():
                made[name] = values
            grads = made
        return self._trainer._take(_report(c.apply(grads._c, grads.loss)))

    def state(self, name):
        """What it keeps of a weight: {"mean": …, "variance": …}, {"momentum": …}, {"average": …}."""
        return {key: _arrays.array(value) for key, value in self._trainer._c.optimizer_state(name).items()}

    @property
    def options(self):
        """{"kind": "adamw", "rate": …}"""
        return {key.removeprefix("optimizer."): value for key, value in self._trainer.options.items()
                if key.startswith("optimizer.")}

    def __repr__(self):
        return f"<rapt.Optimizer {self.options['kind']} of {self._trainer!r}>"


# -------------------------------------------------------------------------------------------- a training
class Trainer:
    """A training, step by step: the one of `rapt train`, with its files, guards and bits.

    recipe   a Recipe (or what it is made of), or a model to go on from: a file, or a Model, whose weights
             are copied
    data     a file, a folder, "a.de,a.en", a task ("copy", "sort", "date"), or a Data
    out      a folder for states, model and metrics: the same call again goes on where it stopped, bit for
             bit. None: all of it stays in memory
    anew     what `out` holds is removed
    threads  of a device of its own; or `device`, a rapt.Device

    Further keywords are those of `rapt train`: steps, batch, length, seed, vocab, vocab_size, tokenizer,
    held_out, objective, save_every, eval_every, accumulate, rate, warmup …, and optimizer=, schedule=,
    guard= as dicts (or the name of a kind).

    >>> r = rapt.Recipe("gpt-char", width=16, layers=1, heads=2)
    >>> t = rapt.Trainer(r, "copy", steps=4, length=16, batch=4, rate=1e-2)
    >>> for s in t:
    ...     if s.step == 2: break
    >>> t.steps, t.done
    (2, False)
    >>> [s.step for s in t], t.done
    ([3, 4], True)
    >>> len(t.metrics.columns()["loss"])
    4
    """

    def __init__(self, recipe, data, out=None, *, anew=False, threads=None, device=None, progress=None,
                 **options):
        data_keys, option_keys = _rapt.train_keys()
        known = [*data_keys, *(k for k in option_keys if "." not in k), *_GROUPS, *_SHORT]
        check(options, [*known, *_dotted(options)], "Trainer")
        of_data = {key: options.pop(key) for key in list(options) if key in data_keys}
        if isinstance(of_data.get("tokenizer"), os.PathLike):
            of_data["tokenizer"] = os.fspath(of_data["tokenizer"])
        name, text, start = _start(recipe)
        self._feed = Feed(data) if isinstance(data, Data) else None
        if not self._feed and not isinstance(data, (str, os.PathLike)):
            raise TypeError(f"data is a path, the name of a task or a Data, not {type(data).__name__}")
        if self._feed and (wrong := [key for key in of_data]):
            raise UsageError(f"Trainer: {wrong[0]}: a Data says itself what is learned from it")
        self.out = None if out is None else os.fspath(out)
        self._busy, self._reports, self._looks = _thread.allocate_lock(), [], []
        self._model = self._result = self._folder = None
        self._heard = lambda kind, step, what: None
        place = os.path.realpath(self.out) if self.out else None
        if place in _open:  # of this process: the same call again, in a notebook, say
            _open[place].close()
        with bar(progress, "reading data") as told:
            self._c = _rapt.open_training(
                _device(threads, device), name, text, start, "" if self._feed else os.fspath(data),
                _json.dumps(of_data, default=_number), self._feed and self._feed.source(),
                _json.dumps(_flat(options), default=_number), self.out or "", bool(anew),
                told if told.named else None)
        if place:
            _open[place] = self
        self.data = self._c.data
        self._drain()

    # -------------------------------------------------------------------------------------------- the loop
    def __iter__(self):
        """Steps until the last one; then the model is finished (averages take their place, out/model is
        written). Who leaves the loop earlier leaves a saved state."""
        try:
            while not self._c.done:
                yield self.step()
        except GeneratorExit:
            self._leave()
        except BaseException:
            try:
                self._leave()
            except Exception as e:  # what came first is the reason
                _log().warning("the state could not be saved: %s", e)
            raise
        else:
            self.finish()

    def step(self):
        """One step, and what is due after it: a look at the held-out part, a saved state. Ctrl-C arrives when
        it is done and saved."""
        if not self._busy.acquire(False):
            raise UsageError("trainer: is at work in another thread; it belongs to one thread at a time")
        try:
            if self._feed and not self._c.done:
                first, count = self._c.next_batch, self.options["accumulate"]
                last = self._c.steps + 1 >= self.options["steps"]
                self._feed.prepare(range(first, first + count), range(0) if last else
                                   range(first + count, first + 2 * count))
            report = self._c.step()
        except Error as e:
            if type(e) is Error:
                self._c.failed(str(e))
            raise
        finally:
            self._drain()
            self._busy.release()
        return self._take(_report(report))

    def run(self, on_step=None, on_saved=None, on_judged=None, progress=None):
        """All steps. on_step(StepReport) may return False to stop, on_saved(folder) and on_judged(step,
        Judgement) hear of the rest. True where it came to its end."""
        def heard(kind, step, what):
            if kind == "saved" and on_saved:
                on_saved(what)
            elif kind == "judged" and on_judged:
                on_judged(step, what)
        before, self._heard = self._heard, heard
        total = self.options["steps"]
        try:
            with bar(progress, "train") as told:
                for s in self:
                    told(s.step, total)
                    if on_step and on_step(s) is False:
                        break
        finally:
            self._heard = before
        return self._c.done

    def save(self):
        """Saves the state, where something happened since the last one; without `out` in memory."""
        try:
            self._c.save()
        finally:
            self._drain()

    def finish(self):
        """What comes after the last step (the loop does it): averages take the place of the weights where the
        options say so, out/model is written. The Judgement of the held-out part."""
        if not self._c.done:
            raise UsageError(f"trainer: {self.steps} of {self.options['steps']} steps are done")
        if self._result is None:
            judged, folder = self._c.finish()
            self._result, self._folder = _judgement(judged), folder or None
            self._drain()
            if self._feed:
                self._feed.close()
        return self._result

    def close(self):
        """Saves, and lets go of the folder, which one training at a time may have. The model stays as it
        is."""
        self._c.close()
        if self._feed:
            self._feed.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def judge(self, batches=0):
        """How the model does now on so many batches of the held-out part; 0: on all of it."""
        return _judgement(self._c.judge(batches))

    def _leave(self):
        if self._c.done:
            self.finish()
        else:
            self.save()

    def _take(self, report):
        if self.out is None:
            self._reports.append(report)
        return report

    def _drain(self):
        for kind, step, what in self._c.happened():
            if kind == "said":
                _log().info("%s", what)
            elif kind == "judged":
                what = _judgement(what)
                if self.out is None:
                    self._looks.append((step, what))
            self._heard(kind, step, what)

    # -------------------------------------------------------------------------------------------- what it has
    @property
    def model(self):
        """The model as it is now: the same weights, so that what it says changes with every step.
        `model.save` keeps it."""
        if self._model is None:
            self._model = Model._of(self._c.model())
        return self._model

    @property
    def optimizer(self):
        return Optimizer(self)

    @property
    def steps(self):
        """How many are finished."""
        return self._c.steps

    @property
    def done(self):
        return self._c.done

    @property
    def result(self):
        """The Judgement at the end; None before."""
        return self._result

    @property
    def folder(self):
        """Of the finished model; None before, and without `out`."""
        return self._folder

    @property
    def recipe(self):
        """Of the model, with what the data decided."""
        return Recipe(self._c.recipe)

    @property
    def options(self):
        """Every option of the training, by its key ("optimizer.rate")."""
        return _json.loads(self._c.options)

    @property
    def metrics(self):
        """Numbers of all steps so far, those of earlier calls in the same folder among them."""
        if self.out is None:
            keys = ("step", "loss", "norm", "rate", "tokens", "seconds", "fate")
            lines = [{key: getattr(s, key) for key in keys} for s in self._reports]
            lines += [{"step": step, "held_out_loss": j.loss, "held_out_accuracy": j.accuracy}
                      for step, j in self._looks]
            return _metrics(lines)
        with open(os.path.join(self.out, "metrics.jsonl"), encoding="utf-8") as file:
            return _metrics([_json.loads(line) for line in file if line.endswith("\n")])

    def batch(self, number):
        """The batch of that number, as a step reads it: a dict that model.gradients(**batch) takes."""
        tokens, lengths, targets, source, source_lengths = map(_arrays.array, self._c.batch(number))
        out = {"tokens": tokens, "lengths": lengths, "targets": targets}
        return {**out, "source": source, "source_lengths": source_lengths} if source is not None else out

    def sample(self, prompt="\n"):
        """Text from the model as it is now, as `rapt train` shows it; "" where it writes none."""
        return self._c.sample(prompt)

    def __repr__(self):
        where = f", {self.out}" if self.out else ", in memory"
        return f"<rapt.Trainer of {self.recipe.name}: step {self.steps} of {self.options['steps']}{where}>"

    def __reduce__(self):
        raise TypeError("a Trainer does not pickle; the same call with the same out= goes on where it was "
                        "saved")


def _start(recipe):
    """(name, JSON of a recipe or "", state of a model or None)."""
    if hasattr(recipe, "_state"):
        recipe._refuse_adapters("Trainer")
        return getattr(recipe, "name", None) or "model", "", recipe._state
    if isinstance(recipe, (str, os.PathLike)) and not str(recipe).lstrip().startswith("{"):
        return os.fspath(recipe), "", None
    recipe = recipe if isinstance(recipe, Recipe) else Recipe(recipe)
    return recipe.name, recipe.json(), None


def _dotted(options):
    return [key for key in options if key.split(".")[0] in _GROUPS]  # C++ knows these


def _flat(options):
    out = {}
    for key, value in options.items():
        if key in _GROUPS:
            value = {"kind": value} if isinstance(value, str) else value
            if not isinstance(value, Mapping):
                raise TypeError(f"Trainer: {key} is a dict, or the name of a kind")
            pairs = {f"{key}.{k}": v for k, v in value.items()}
        else:
            pairs = {_SHORT.get(key, key): value}
        for k, v in pairs.items():
            if k in out:
                raise UsageError(f"Trainer: {k} is given twice")
            out[k] = v
    return out


def _log():
    import logging
    return logging.getLogger("rapt")


for _class in (StepReport, Judgement, Metrics, HeldOut, Gradients, Weights, Optimizer, Trainer):
    _class.__module__ = "rapt"
