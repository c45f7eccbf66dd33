# SPDX-License-Identifier: Apache-2.0
"""Model files as files, what there is, and the server."""
import atexit
import os
import weakref

from . import _rapt
from ._errors import UsageError
from ._options import named
from ._progress import bar
from ._values import Value


def convert(source, target, *, type=None, replace=False, shard_bytes=0, progress=None):
    """Writes a model in another form, tensor by tensor, without loading it: to NAME.gguf, else to a folder.
    type: of the matrices, "f16", "q8_0", "q4_k_m" …; else as they are. Returns what was done otherwise than
    asked, in words."""
    from ._model import Model, _noted
    if isinstance(source, Model):
        return source.save(target, type=type, replace=replace, shard_bytes=shard_bytes, progress=progress)
    with bar(progress, "writing") as told:
        return _noted(_rapt.convert(os.fspath(source), os.fspath(target), type or "", replace, shard_bytes,
                                    told if told.named else None))


def check(path, *, values=True):
    """Looks at a model's file or folder: every tensor, and (`values`) every number. Returns what it found, in
    words; the first fault is an Error.

    >>> rapt.check("default")[0].split(": ")[1]
    'gguf version 3, family llama'
    """
    return _rapt.check(os.fspath(path), values)


def show(x, *, width=100):
    """The drawing of a recipe, a preset, a model or its file; it shows itself at a prompt.

    >>> rapt.show("llama3").split()[0]
    'llama3'
    """
    from ._model import Model
    from ._recipe import Recipe
    if isinstance(x, Model):
        x = x.recipe
    return (x if isinstance(x, Recipe) else Recipe(x)).show(width)


class DeviceInfo(Value):
    """A place to compute: its name, what rapt.Device() takes there, and what it could."""

    __slots__ = _fields = ("name", "threads", "isa", "isas")


def devices():
    """Where models can compute.

    >>> [d.name for d in rapt.devices()]
    ['cpu']
    """
    shared = _rapt.shared_device()
    return [DeviceInfo(name="cpu", threads=shared.threads, isa=shared.isa, isas=_rapt.instruction_sets())]


class ModelInfo(Value):
    """What a model's headers say; `error` where they cannot be read."""

    __slots__ = _fields = ("name", "path", "bytes", "parameters", "type", "family", "context", "chat",
                           "error")


class ModelList(list):
    """Of ModelInfo; prints as a table."""

    __slots__ = ()

    def columns(self):
        return {name: [getattr(m, name) for m in self] for name in ModelInfo._fields}

    def __repr__(self):
        rows = [("name", "MB", "parameters", "type", "family", "context")]
        for m in self:
            rows.append((m.name, m.error, "", "", "", "") if m.error else (
                m.name, f"{m.bytes / 1e6:.1f}", f"{m.parameters:,}", m.type, m.family, str(m.context)))
        wide = [max(len(row[i]) for row in rows if row[2] or i == 0) for i in range(6)]
        return "\n".join("  ".join(cell.ljust(n) for cell, n in zip(row, wide)).rstrip() for row in rows)


def models():
    """The models that names mean: of the folders in RAPT_MODELS, and those that come along.

    >>> "default.gguf" in [m.name for m in rapt.models()]
    True
    """
    return ModelList(ModelInfo(**row) for row in _rapt.models())


_open = weakref.WeakSet()


@atexit.register
def _close_all():
    for server in list(_open):
        server.close()


class Server:
    """The server of `rapt serve` in threads of this process: .url, .close(), or `with`. rapt.serve() makes
    it."""

    def __init__(self, serving, models):
        self._serving, self._models = serving, models
        _open.add(self)

    @property
    def url(self):
        """Its address; clients of OpenAI's API take url + "/v1"."""
        return self._serving.url

    @property
    def closed(self):
        return not self._serving.open

    def close(self):
        """Ends what runs, and the port."""
        self._serving.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def __repr__(self):
        return f"<rapt.Server at {self.url}{': closed' if self.closed else ''}>"

    def _repr_html_(self):
        from html import escape
        return f'<a href="{escape(self.url, True)}">{escape(self.url)}</a>'


@named
def serve(model="default", *, host="127.0.0.1", port=0, key=None, allow_host=(), allow_origin=(),
          insecure=False, context=None, cache="f16", parallel=None, pool=None, page=True, lab=False,
          lora=None, speculate=None, draft=None, chat_template=None, replay=True, replay_log=None,
          lab_dir=None, log=False):
    """Answers clients over HTTP, as OpenAI's API does, and browsers with the page. `model`: one, several, or
    {name: model}; models that are open are served as they are, without another copy.

    port      0: any that is free
    key       a key, or several, that clients show; other hosts than loopback need one (or insecure=True)
    cache     how keys and values are kept; `context`, `parallel` (answers side by side) and `pool` (bytes of
              keys and values) as of `rapt serve`
    page      a page for browsers; lab: experiments and trainings can be started there (lab_dir: a folder
              where they are kept)
    lora      adapters, {name: path}: clients ask for the model `name` ("model:name" of several models)
    speculate, draft   as of load(); chat_template: a text in the place of the models' own
    replay    answers can be asked for again; replay_log: a file that keeps them (`rapt replay`)
    log       True: a line for each request goes to the logger "rapt"; or a callable, which hears it as a dict

    >>> with rapt.serve("default") as server:
    ...     import urllib.request
    ...     b'"default"' in urllib.request.urlopen(server.url + "/v1/models").read()
    True
    """
    from ._model import Model, _log, _speculates, load
    if isinstance(model, dict):
        named = list(model.items())
    else:
        named = [("", m) for m in (model if isinstance(model, (list, tuple)) else [model])]
    opened = [(name, m if isinstance(m, Model) else load(m, progress=False)) for name, m in named]
    if len({name or m.name for name, m in opened}) < len(opened):
        raise UsageError("serve: two models of one name; give names: {'a': …, 'b': …}")
    if draft is not None and len(opened) > 1:
        raise UsageError(f"serve: draft is for one model; {len(opened)} are served")
    if replay_log is not None and not replay:
        raise UsageError("serve: replay_log and replay=False: answers are kept, or they are not")
    path = lambda x: "" if x is None else os.path.abspath(x)  # noqa: E731
    keys = [] if key is None else [key] if isinstance(key, str) else list(key)
    options = {"host": host, "port": port, "keys": keys, "allow_hosts": _words(allow_host),
               "allow_origins": _words(allow_origin), "insecure": insecure, "context": context or 0,
               "cache": cache, "parallel": parallel or 0, "pool": pool or 0, "page": page,
               "lab": lab or lab_dir is not None, "lab_dir": path(lab_dir), "replay": bool(replay),
               "replay_log": path(replay_log), "chat_template": chat_template or "",
               "speculate": _speculates(speculate, draft), "draft": "" if draft is None else os.fspath(draft),
               "lora": _named_adapters(lora or {}, [name or m.name for name, m in opened])}
    return Server(_rapt.Serving([(name or m.name, m._state) for name, m in opened], options, _hears(log),
                                lambda text: _log().warning("%s", text)), [m for _, m in opened])


def _named_adapters(lora, models):
    """(model, name, file) of {name: file}, or {"model:name": file}."""
    out, taken = [], set(models)
    if not hasattr(lora, "items"):
        raise UsageError("serve: lora is a dict, {name: path}: clients ask for an adapter by its name")
    for given, file in lora.items():
        model, colon, name = given.rpartition(":")
        if not colon and len(models) > 1:
            raise UsageError(f"serve: lora {given!r}: of which model? 'MODEL:{name}', with one of "
                             f"{', '.join(models)}")
        if colon and model not in models:
            raise UsageError(f"serve: lora {given!r}: no model is served as {model!r}, but "
                             f"{', '.join(models)}")
        if not name or name in taken:
            raise UsageError(f"serve: lora {given!r}: the name {name!r} is "
                             f"{'taken' if name else 'empty'}; give the adapter another one")
        taken.add(name)
        out.append((model if colon else models[0], name, os.fspath(file)))
    return out


def _words(x):
    return [x] if isinstance(x, str) else list(x)


def _hears(log):
    if not log:
        return None
    import json
    if callable(log):
        return lambda line: log(json.loads(line))
    from ._model import _log
    logger = _log()
    return lambda line: logger.info("%s", line)


for _class in (DeviceInfo, ModelInfo, ModelList, Server):
    _class.__module__ = "rapt"
