# SPDX-License-Identifier: Apache-2.0
"""Models: opened or made, and what they do with texts."""
import atexit
import importlib
import json
import os
import threading

from . import _rapt
from ._answer import Answer, Stream, answer_of, options_of, piece_of, score_of
from ._arrays import array
from ._errors import Error, UsageError
from ._options import named, text_of
from ._progress import bar
from ._values import Value

atexit.register(_rapt.end_all)


class Device:
    """Where models compute: threads, and an instruction set ("avx512", "avx2", "scalar"; "f64": the
    reference, in double). What is not said is as rapt.devices() tells. Models without one share it."""

    def __init__(self, threads=None, isa=None):
        self._device = _rapt.Device(threads or 0, isa or "")

    @classmethod
    def _of(cls, device):
        self = cls.__new__(cls)
        self._device = device
        return self

    @property
    def threads(self):
        return self._device.threads

    @property
    def isa(self):
        return self._device.isa

    def __eq__(self, other):
        return isinstance(other, Device) and self._device is other._device

    def __hash__(self):
        return hash(id(self._device))

    def __repr__(self):
        return f"<rapt.Device: {self.threads} thread{'s' if self.threads != 1 else ''}, {self.isa}>"

    def __reduce__(self):
        return Device, (self.threads, self.isa)


def _device(threads, device):
    if device is not None and threads is not None:
        raise UsageError("threads and device: a device has its threads already; give one of the two")
    if device is not None:
        if not isinstance(device, Device):
            raise UsageError(f"device: {device!r} is none; make one: rapt.Device(threads=…)")
        return device._device
    if threads is None:
        return None
    if threads < 1:
        raise UsageError(f"threads: {threads}; give at least 1")
    return _rapt.Device(threads, "")


def _windows(streaming):
    """(kept tokens, window or 0 for the rest of the context), or None."""
    if streaming is None or streaming is False:
        return None
    if streaming is True:
        return 4, 0
    if isinstance(streaming, dict):
        from ._options import check
        check(streaming, ("keep", "window"), "streaming")
        return int(streaming.get("keep", 4)), int(streaming.get("window", 0))
    try:
        keep, window = streaming
        return int(keep), int(window)
    except (TypeError, ValueError):
        raise UsageError(f"streaming: {streaming!r}; give True, or (keep, window): so many first tokens and "
                         "last ones") from None


def _lora_words(lora):
    """What load(lora=) takes, as `rapt run --lora` has it: FILE, or FILE=SCALE."""
    if lora is None:
        return []
    if isinstance(lora, (str, os.PathLike)):
        return [os.fspath(lora)]
    if hasattr(lora, "items"):
        return [f"{os.fspath(path)}={float(scale)}" for path, scale in lora.items()]
    try:
        return [os.fspath(path) for path in lora]
    except TypeError:
        raise UsageError("lora: adapters are a path, a list of paths, or a dict {path: scale}") from None


class Adapter:
    """A LoRA adapter of a model, opened (Model.adapter), with the scale it is used with."""

    def __init__(self, state, use, path):
        self._state, self._use, self.path = state, use, path

    @property
    def scale(self):
        return self._use.scale

    def __repr__(self):
        return f"<rapt.Adapter {self.path}, scale {self.scale:g}>"

    def __reduce__(self):
        raise TypeError("an adapter belongs to its model and cannot be pickled; open it there: "
                        "model.adapter(path)")


@named
def load(name="default", *, context=None, cache="f32", threads=None, device=None, exact=False, streaming=None,
         lora=None, speculate=None, draft=None, progress=None):
    """Opens a model: a GGUF file, a Hugging Face folder, a llama2.c file, the folder of a training, a name in
    a folder of RAPT_MODELS, or "default", the model that comes along.

    context    tokens of prompt and answer together (the model's own)
    cache      how keys and values are kept: f32, f16, bf16, q8_0, q4_0
    threads    of a device of its own; or `device`, a rapt.Device. Else models share one
    exact      weights as f32, whatever the file stores
    streaming  texts without end: True, or (keep, window): the first tokens and the last ones are seen
    lora       adapters (LoRA) beside the weights: a path, a list of them, or {path: scale}
    speculate  "lookup": where the text repeats itself, several tokens are checked at a time, which changes no
               bit of an answer; "off"; "draft": a smaller model guesses
    draft      that model: a name as above, or a Model
    progress   None: a bar of tqdm where somebody looks; True, False, or a callable (what, done, of)

    >>> m = rapt.load("default")
    >>> m.family, m.context, m.has_tokenizer
    ('llama', 256, True)
    """
    if context is not None and not (hasattr(context, "__index__") and context >= 1):
        raise UsageError(f"context: {context!r}; tokens of prompt and answer together, a whole number of at "
                         "least 1")
    speculate = _speculates(speculate, draft)
    name, lora = os.fspath(name), _lora_words(lora)
    with bar(progress, "loading") as told:
        state = _rapt.open_model(name, _device(threads, device), bool(exact), _windows(streaming), lora,
                                 told if told.named else None)
        if draft is not None and not isinstance(draft, Model):
            draft = Model._of(_rapt.open_model(os.fspath(draft), state.device, False, None, [],
                                               told if told.named else None))
    return Model._of(state, name=name, context=context, cache=cache, threads=threads, device=device,
                     exact=exact, streaming=streaming, lora=lora, speculate=speculate, draft=draft)


def _speculates(how, draft):
    if how is None:
        return "draft" if draft is not None else "lookup"
    if how not in ("off", "lookup", "draft"):
        raise UsageError(f"speculate: {how!r} is none of 'off', 'lookup', 'draft'")
    if how == "draft" and draft is None:
        raise UsageError("speculate='draft': give the smaller model, draft=…")
    if how != "draft" and draft is not None:
        raise UsageError(f"draft names a model, and speculate={how!r} asks none")
    return how


_MADE = object()

# Methods that stand with what they belong to, and are imported with their first use.
_LATER = {
    "points": "_inside", "run_with_cache": "_inside", "sinks": "_inside", "massive": "_inside",
    "lens": "_inside", "gates": "_inside", "norms": "_inside", "run_with_hooks": "_hooks", "edited": "_hooks",
    "attention": "_attention", "attribution": "_attribution", "patching": "_attribution",
    "gradients_at": "_attribution", "report": "_report", "gradients": "_train",
}


class Model:
    """A model with its weights and its tokenizer. rapt.load() opens one; Model(recipe) makes one with random
    weights: of a Recipe, a preset's name or a recipe's file.

    >>> m = rapt.Model("gpt2", seed=1, width=64, layers=2, heads=4, vocab=100)
    >>> m.logits([1, 2, 3]).shape
    (3, 100)
    """

    def __init__(self, recipe, *, seed=0, cache="f32", threads=None, device=None, **changes):
        from ._recipe import Recipe
        recipe = recipe if isinstance(recipe, Recipe) and not changes else Recipe(recipe, **changes)
        self._set(_rapt.make_model(recipe.json(), seed, _device(threads, device)),
                  dict(cache=cache))

    def _set(self, state, options):
        self._state = state
        self._options = options
        self._info = _rapt.info(state)
        self._shared, self._lock = None, threading.Lock()
        self._words = None

    @classmethod
    def _of(cls, state, **options):
        self = cls.__new__(cls)
        self._set(state, options)
        return self

    def _with_state(self, state):
        """Another handle with the same options; its file is that of this one."""
        return type(self)._of(state, **self._options)

    def _engine(self):
        with self._lock:
            if self._shared is None:
                o = self._options
                draft = o.get("draft")
                self._shared = _rapt.open_engine(self._state, o.get("cache") or "f32", o.get("context") or 0,
                                                 o.get("speculate") or "lookup", draft and draft._state)
            return self._shared

    def __getattr__(self, name):
        if name not in _LATER:
            if name.startswith("__"):
                raise AttributeError(name)
            import difflib
            near = difflib.get_close_matches(name, dir(self), 1, 0.6)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise AttributeError(f"a Model has no attribute {name!r}{hint}")
        setattr(Model, name, getattr(importlib.import_module("." + _LATER[name], __package__), name))
        return getattr(self, name)

    def __dir__(self):
        return sorted({*object.__dir__(self), *_LATER})

    # --------------------------------------------------------------------------------------------- what it is
    @property
    def path(self):
        """The file or folder it was opened from; "" for one in memory."""
        return self._info["path"]

    @property
    def name(self):
        path = self.path.rstrip("/")
        file = os.path.basename(path)
        if file.endswith((".gguf", ".bin")):
            return os.path.splitext(file)[0]
        return file or self.recipe.name or "model"

    family = property(lambda self: self._info["family"], doc='"llama", "gpt2" …; "rapt": of a recipe')
    format = property(lambda self: self._info["format"], doc='"gguf", "folder", "llama2.c"; "" in memory')
    parameters = property(lambda self: self._info["parameters"])
    vocabulary = property(lambda self: self._info["vocabulary"], doc="How many tokens it knows.")
    width = property(lambda self: self._info["width"])
    encoder_layers = property(lambda self: self._info["encoder_layers"])
    decoder_layers = property(lambda self: self._info["decoder_layers"])
    bytes = property(lambda self: self._info["bytes"], doc="Of its weights in memory.")
    classes = property(lambda self: list(self._info["classes"]), doc="Of a classifier: their names.")
    chat_template = property(lambda self: self._info["chat_template"])
    has_tokenizer = property(lambda self: self._info["has_tokenizer"])
    translates = property(lambda self: self._info["translates"], doc="Has encoder and decoder.")
    writes = property(lambda self: self._info["writes"])
    reads_pictures = property(lambda self: self._info["reads_pictures"])

    @property
    def layers(self):
        return self.encoder_layers + self.decoder_layers

    @property
    def context(self):
        """Tokens of prompt and answer together."""
        return self._options.get("context") or self._info["context"]

    @property
    def cache(self):
        """How keys and values are kept."""
        return self._options.get("cache") or "f32"

    @property
    def streaming(self):
        return _windows(self._options.get("streaming")) is not None

    @property
    def device(self):
        return Device._of(self._state.device)

    @property
    def recipe(self):
        """What it is, as a Recipe; a change makes another one."""
        from ._recipe import Recipe
        return Recipe(_rapt.recipe_of(self._state))

    @property
    def tokenizer(self):
        from ._tokenizer import Tokenizer
        return Tokenizer._of(_rapt.tokenizer_of_model(self._state))

    @property
    def weights(self):
        """A mapping of names to arrays of f32, copies; `weights.raw(name)` gives bytes."""
        from ._train import Weights
        return Weights(self._state)

    @property
    def edits(self):
        """The edits of this handle (edited()), as texts."""
        return _rapt.edits_of(self._state)

    def __repr__(self):
        kind = "translates" if self.translates else "writes" if self.writes else \
            "classifies" if self.classes else "reads pictures" if self.reads_pictures else "reads"
        edits = f", {len(self.edits)} edits" if self._state.has_edits else ""
        return (f"<rapt.Model {self.name}: {self.family}, {self.parameters:,} parameters, {self.layers} "
                f"layers, context {self.context}, {kind}{edits}>")

    def _repr_html_(self):
        from html import escape
        rows = [("family", self.family), ("parameters", f"{self.parameters:,}"), ("layers", self.layers),
                ("width", self.width), ("vocabulary", f"{self.vocabulary:,}"),
                ("context", f"{self.context:,}"), ("weights", f"{self.bytes / 1e6:,.1f} MB"),
                ("device", f"{self.device.threads} × {self.device.isa}")]
        cells = "".join(f"<tr><th style='text-align:left'>{k}</th><td>{escape(str(v))}</td></tr>"
                        for k, v in rows)
        return f"<b>{escape(self.name)}</b><table>{cells}</table>"

    # ------------------------------------------------------------------------------------------------ tokens
    def _ids(self, prompt, special=False, variables=None):
        """(ids, whether they are of messages) of a text, ids, or messages."""
        if isinstance(prompt, str):
            return _rapt.prompt_ids(self._state, prompt, special), False
        if isinstance(prompt, (list, tuple)) and prompt and isinstance(prompt[0], dict):
            return _rapt.chat_ids(self._state, json.dumps(list(prompt)), json.dumps(variables or {})), True
        return ids_of(prompt), False

    def _token_texts(self, ids, each=False):
        """Texts of tokens: of a text, or `each` for itself."""
        if not self.has_tokenizer:
            return [f"<{i}>" for i in ids]
        if self._words is None:
            self._words = _rapt.tokenizer_of_model(self._state)
        return [self._words.texts([i])[0] for i in ids] if each else self._words.texts(ids)

    # ----------------------------------------------------------------------------------------------- answers
    def _ask(self, prompt, options, listens, special=False, variables=None, hooks=None):
        ids, chat = self._ids(prompt, special, variables)
        if "lora" in options:
            options = dict(options, lora=self._uses(options["lora"]))
        if chat and ("schema" in options or "grammar" in options):
            options = dict(options, messages=True)
        functions = []
        if hooks:
            from ._hooks import functions_of
            functions = functions_of(hooks)
        return _rapt.ask(self._engine(), ids, options, 0, listens, functions), ids, chat

    def adapter(self, path, scale=1.0):
        """Opens a LoRA adapter for this model, a folder as PEFT saves it or a GGUF file; answers that ask for
        it use it: generate(…, lora=adapter)."""
        path = os.fspath(path)
        return Adapter(self._state, _rapt.open_adapter(self._state, path, float(scale)), path)

    def _adapters(self, lora):
        """A list of Adapter of what lora= takes."""
        if hasattr(lora, "items"):
            return [self.adapter(path, scale) for path, scale in lora.items()]
        given = [lora] if isinstance(lora, (str, os.PathLike, Adapter)) else lora
        try:
            return [a if isinstance(a, Adapter) else self.adapter(a) for a in given]
        except TypeError:
            raise UsageError("lora: adapters are paths, what model.adapter() gives, a list of these, or a "
                             "dict {path: scale}") from None

    def _uses(self, lora):
        return [a._use for a in self._adapters(lora)]

    def generate(self, prompt, *, on_token=None, hooks=None, special=False, variables=None, **options):
        """Goes on with a text (a str; `special`: names of special tokens in it become these tokens), with
        ids, or answers messages ([{"role": "user", "content": "…"}], through the chat template, which
        `variables` reach). A model that translates reads it with its encoder.

        Options, those of `rapt run` with their defaults: max_tokens (until it stops or the context is full),
        temperature (0.8; 0: the most probable token), top_k (40), top_p (0.95), min_p (0.05), typical (1),
        repeat_penalty, repeat_last_n, frequency_penalty, presence_penalty, mirostat, mirostat_tau,
        mirostat_eta, seed (drawn, and kept in the answer), stop (a text or several), logit_bias ({id:
        value}), ignore_eos, logprobs (True, or how many others), samples (then a list of answers), beams,
        length_penalty, chunk (prompt tokens of a pass), schema (the answer is JSON of this schema: a dict,
        its JSON, or a pydantic class), grammar (… a text of this grammar, GBNF), lora (in the place of the
        adapters that load() was given: what adapter() gives, paths, a list, {path: scale}; () for none).

        `on_token(piece)` hears each Piece; False ends the answer. `hooks`: functions that see and change
        values of every pass, {name: f(x, at)} as run_with_hooks() takes them; `at.rows` says which tokens x
        has: those of a piece of the prompt, then one at a time.

        >>> m = rapt.load("default")
        >>> a = m.generate("ROMEO:", max_tokens=5, temperature=0, logprobs=2)
        >>> len(a.ids), a.finish, len(a.logprobs), len(a.top[0])
        (5, 'length', 5, 2)
        >>> a == m.generate("ROMEO:", max_tokens=5, temperature=0, seed=7)
        True
        >>> str(m.generate("Is it so?", schema={"enum": ["yes", "no"]})) in ('"yes"', '"no"')
        True
        """
        several = options.get("samples") is not None
        options = options_of(options, "generate")
        if on_token is not None:
            if not callable(on_token):
                raise UsageError(f"on_token: a function of a piece of the answer is wanted, not {on_token!r}")
            options["speculate"] = False  # it may end the answer behind any token
        ask, ids, chat = self._ask(prompt, options, on_token is not None, special, variables, hooks)
        told = None
        if on_token is not None:
            def told(text, id, sample, choice):
                return on_token(piece_of(text, id, sample, choice))
        raw = ask.finish(told)
        if raw is None:
            raise Error("generate: the interpreter is ending")
        answers = [answer_of(self, s, raw["times"], options, ids, chat) for s in raw["samples"]]
        return answers if several else answers[0]

    def stream(self, prompt, *, hooks=None, special=False, variables=None, **options):
        """The same, as it comes: an iterator of Piece (a str with .id). break, close() or Ctrl-C stop the
        engine between two layers, also while the prompt is read.

        >>> m = rapt.load("default")
        >>> s = m.stream("ROMEO:", max_tokens=5, temperature=0)
        >>> "".join(s) == str(m.generate("ROMEO:", max_tokens=5, temperature=0)) == str(s.answer)
        True
        """
        options = options_of(options, "stream")
        if options.get("samples", 1) > 1:
            raise UsageError("stream: one answer at a time; generate(on_token=…) hears several samples")
        ask, ids, chat = self._ask(prompt, options, True, special, variables, hooks)
        return Stream(self, ask, options, ids, chat)

    async def astream(self, prompt, *, hooks=None, special=False, variables=None, **options):
        """The same for `async for`, computed off the event loop."""
        import asyncio
        loop = asyncio.get_running_loop()
        options = dict(options, hooks=hooks, special=special, variables=variables)
        stream = await loop.run_in_executor(None, lambda: self.stream(prompt, **options))
        try:
            while (piece := await loop.run_in_executor(None, next, stream, None)) is not None:
                yield piece
        finally:
            stream.close()

    def batch(self, prompts, *, special=False, variables=None, progress=None, **options):
        """An answer to each prompt, computed side by side; each has the bits it has alone."""
        options = options_of(options, "batch")
        if options.get("samples", 1) > 1:
            raise UsageError("batch: one answer to each prompt; several of one are generate(samples=…)")
        if "lora" in options:
            options["lora"] = self._adapters(options["lora"])
        asks, out = [], []
        with bar(progress, "answers") as told:
            try:
                for prompt in _several(prompts, "batch"):
                    asks.append(self._ask(prompt, options, False, special, variables))
                for ask, ids, chat in asks:
                    raw = ask.finish(None)
                    out.append(answer_of(self, raw["samples"][0], raw["times"], options, ids, chat))
                    told(len(out), len(asks))
            finally:
                for ask, _, _ in asks[len(out):]:
                    ask.close()
        return out

    def chat(self, system="", **options):
        """A conversation; see Chat."""
        from ._chat import Chat
        return Chat(self, system, **options)

    # --------------------------------------------------------------------------------------- numbers of texts
    def logits(self, text, *, target=None, last_only=False):
        """Logits of every token [tokens, vocabulary], or of the last one alone; hidden states of a model
        without output matrix; [1, classes] of a classifier. A model that translates reads `text` with its
        encoder, and `target` with its decoder.

        >>> m = rapt.load("default")
        >>> x = m.logits("To be, or")
        >>> x.shape, bool((m.logits("To be, or", last_only=True) == x[-1]).all())
        ((6, 512), True)
        """
        from ._inside import read_ids
        text, target = (x if x is None or isinstance(x, str) else ids_of(x) for x in (text, target))
        ids, source = read_ids(self, () if text is None else text, target)
        return array(_rapt.logits(self._state, ids, source, last_only))

    def score(self, text, *, top=0):
        """How probable a text is, token by token: see Score. `top`: with so many that were more probable."""
        ids, _ = self._ids(text)
        if len(ids) < 2:
            raise UsageError(f"score: {len(ids)} tokens; a text of at least 2 says what comes behind what")
        raw = _rapt.ask_score(self._engine(), ids, top).finish(None)
        return score_of(self, ids, raw["prompt"])

    def perplexity(self, text, *, window=None, chunks=None, progress=None):
        """exp of the mean loss over windows of the text, one after the other; in each, its second half counts
        (llama-perplexity's definition). `window`: tokens of one, 512 or the context where that is shorter;
        `chunks`: so many windows at most.

        >>> m = rapt.load("default")
        >>> p = m.perplexity("To be, or not to be, that is the question. " * 8, window=32)
        >>> p.windows, 1 < p.value < 512
        (4, True)
        """
        text_of(text, "perplexity")
        with bar(progress, "perplexity") as told:
            value, error, loss, windows, tokens = _rapt.perplexity(
                self._state, text, min(512, self.context) if window is None else window,
                -1 if chunks is None else chunks, told if told.named else None)
        return Perplexity(value=value, error=error, loss=loss, windows=windows, tokens=tokens)

    def embed(self, texts, *, pool=None, normalize=None, progress=None):
        """A vector for each text [texts, width]; for one text, a vector. Of a model that reads pictures:
        their files' names, arrays of bytes (height, width, 3), or of f32 as the model wants them. pool:
        "mean", "cls" (the first token) or "last"; that and `normalize` are as the model's files say.

        >>> rapt.load("default").embed(["a cat", "a kitten"]).shape
        (2, 192)
        """
        one = self._is_one(texts)
        given = [texts] if one else _several(texts, "embed")
        with bar(progress, "embedding") as told:
            tell = told if told.named else None
            if self.reads_pictures:
                return array(_rapt.embed_pictures(self._state, _pictures(given), one, pool or "", normalize,
                                                  tell))
            rows, cut = _rapt.embed(self._state, _texts(given, "embed"), one, pool or "", normalize, tell)
            _note_cut(cut, len(given))
            return array(rows)

    def classify(self, texts, *, progress=None):
        """Of a classifier: {class: probability} for each text (or picture), the most probable first."""
        one = self._is_one(texts)
        given = [texts] if one else _several(texts, "classify")
        with bar(progress, "classifying") as told:
            tell = told if told.named else None
            if self.reads_pictures:
                rows = _rapt.classify_pictures(self._state, _pictures(given), tell)
            else:
                rows, cut = _rapt.classify(self._state, _texts(given, "classify"), tell)
                _note_cut(cut, len(given))
        rows = _lists(rows)
        out = [dict(sorted(zip(self._class_names(len(row)), row), key=lambda pair: -pair[1])) for row in rows]
        return out[0] if one else out

    def _class_names(self, count):
        return self.classes or [str(i) for i in range(count)]

    def fill(self, text, top=5):
        """Of a model of masked words: for each mask in the text, as the vocabulary spells it ("[MASK]"), the
        `top` most probable words: a list of Guess."""
        text_of(text, "fill")
        return [[Guess(word=word, probability=p, id=id, text=whole) for id, p, word, whole in guesses]
                for guesses in _rapt.fill(self._state, text, top)]

    def translate(self, texts, *, beams=None, beam=None, length_penalty=1.0, penalty_form="power",
                  max_tokens=256, prefix="", n_best=1, batch=16, alignment=False, progress=None):
        """Of a model with encoder and decoder: a Translation of each line (of one text: one). beams (4; 1:
        greedy), length_penalty and penalty_form ("power" or "gnmt"), max_tokens, prefix (before every line),
        n_best answers, `batch` lines side by side (the answers do not depend on it). alignment: which source
        words each word looks at; True, or a dict of layer (a number, "all"), head, words (False: tokens)."""
        from ._options import check
        one = isinstance(texts, str)
        lines = _texts([texts] if one else _several(texts, "translate"), "translate")
        if penalty_form not in ("power", "gnmt"):
            raise UsageError(f"penalty_form: {penalty_form!r} is neither 'power' nor 'gnmt'")
        wish = None
        if alignment is not False and alignment is not None:
            asked = {} if alignment is True else dict(alignment)
            check(asked, ("layer", "head", "words"), "alignment")
            head = asked.get("head")
            wish = (asked.get("layer"), -1 if head is None else head, asked.get("words", True))
        wide = beams if beams is not None else 4 if beam is None else beam
        with bar(progress, "translating") as told:
            how = (wide, length_penalty, penalty_form == "gnmt", max_tokens, prefix, batch, n_best)
            found = _rapt.translate(self._state, lines, how, self.cache, wish, told if told.named else None)
        out = [_translation(line, raw) for line, raw in zip(lines, found)]
        return out[0] if one else out

    def _is_one(self, x):
        if isinstance(x, (str, os.PathLike)):
            return True
        return self.reads_pictures and not isinstance(x, (list, tuple)) and hasattr(x, "shape")

    # ------------------------------------------------------------------------------------------------- files
    def save(self, path, *, type=None, replace=False, shard_bytes=0, progress=None):
        """Writes it: NAME.gguf, or a folder that opens in transformers where the model is of a family it
        knows. type: of the matrices, "f16", "q8_0", "q4_k_m" …; else as they are. Returns what was done
        otherwise than asked, in words."""
        path, state = os.fspath(path), self._state
        self._refuse_adapters("save")
        with bar(progress, "writing") as told:
            tell = told if told.named else None
            if state.opened and state.changes == 0:
                return _noted(_rapt.convert(self.path, path, type or "", replace, shard_bytes, tell))
            if type is None and not path.endswith(".gguf"):
                _rapt.write_folder(state, path, replace)
                return []
            import tempfile
            with tempfile.TemporaryDirectory(dir=os.path.dirname(os.path.abspath(path))) as folder:
                between = os.path.join(folder, self.name)
                _rapt.write_folder(state, between, False)
                return _noted(_rapt.convert(between, path, type or "", replace, shard_bytes, tell))

    def quantize(self, type, path, *, replace=False, progress=None):
        """save() with a type: m.quantize("q4_k_m", "model.gguf")."""
        return self.save(path, type=type, replace=replace, progress=progress)

    def _refuse_adapters(self, what):
        if self._state.has_adapters:
            raise UsageError(f"{what}: an adapter lies beside the weights and is no part of them; load the "
                             "model without lora= for this")

    def __reduce__(self):
        if not self._state.opened:
            raise UsageError("a model in memory cannot be pickled: save it first, and load it from there")
        if self._state.changes > 0:
            raise UsageError("the weights of this model were changed, its file does not have them: save it "
                             "first, and load it from there")
        if self._state.has_edits:
            raise UsageError("a model with edits cannot be pickled; pickle the model, and edit it there")
        options = {k: v for k, v in self._options.items() if v not in (None, False, [])}
        options.pop("name", None)
        if "lora" in options:  # another process may stand in another folder
            options["lora"] = [os.path.abspath(words) for words in options["lora"]]
        path = os.path.abspath(self.path) if os.path.exists(self.path) else self.path
        return _loaded, (path, options)

    def __copy__(self):
        return self._with_state(self._state)

    def __deepcopy__(self, memo):
        raise TypeError("a model's weights are not copied; save it, or make a handle of the same ones: "
                        "copy.copy(model)")


def _loaded(path, options):
    return load(path, progress=False, **options)


class Perplexity(Value):
    """value ± error; `loss` is its logarithm: the mean of -log p, over `tokens` of `windows`."""

    __slots__ = _fields = ("value", "error", "loss", "windows", "tokens")

    def __float__(self):
        return self.value

    def __repr__(self):
        return (f"<rapt.Perplexity {self.value:.4f} ± {self.error:.4f}: {self.windows} windows, "
                f"{self.tokens} tokens>")


class Guess(Value):
    """A word for a mask, and the text with it."""

    __slots__ = _fields = ("word", "probability", "id", "text")

    def __str__(self):
        return self.word


class Alignment(Value):
    """Which words of the source each word looks at: weights [target, source], the mean of decoder layers."""

    __slots__ = _fields = ("target", "source", "weights", "layers")

    def __getitem__(self, place):
        return self.weights[place]

    @property
    def shape(self):
        return self.weights.shape

    def _repr_html_(self):
        from html import escape
        head = "".join(f"<th>{escape(s)}</th>" for s in self.source)
        rows = "".join(
            f"<tr><th>{escape(t)}</th>" + "".join(
                f'<td style="background:rgba(0,90,200,{w:.2f})">{w:.2f}</td>' for w in row) + "</tr>"
            for t, row in zip(self.target, _lists(self.weights)))
        return f"<table><tr><th></th>{head}</tr>{rows}</table>"


class Translation(Value):
    """`str(translation)` is its text. ids, score and hash of the best answer; `answers`: all that were asked
    for, as (text, ids, score, finish, hash); alignment: an Alignment, where asked for."""

    __slots__ = _fields = ("text", "ids", "score", "hash", "source", "source_ids", "answers", "alignment")

    def __str__(self):
        return self.text

    def __format__(self, spec):
        return format(self.text, spec)


def _translation(line, raw):
    look = raw["alignment"]
    answers = [(*answer, f"{hash:016x}") for *answer, hash in raw["answers"]]
    best = answers[0] if answers else ("", [], 0.0, "stop", f"{0:016x}")
    if look is not None:
        look = Alignment(target=look[0], source=look[1], weights=array(look[2]), layers=look[3])
    return Translation(text=raw["text"], ids=best[1], score=best[2], hash=best[4], source=line,
                       source_ids=raw["source_ids"], answers=answers, alignment=look)


def ids_of(x, what="a prompt is a text, a list of token ids, or a list of messages "
                 '[{"role": "user", "content": "…"}]'):
    """Token ids of whatever holds whole numbers: a list, an array, a tensor."""
    if hasattr(x, "tolist"):
        x = x.tolist()
    try:
        return [i.__index__() for i in x]
    except (TypeError, AttributeError):
        raise UsageError(what) from None


def _several(texts, what):
    if isinstance(texts, str):
        raise UsageError(f"{what}: one text, where a list of them is wanted")
    if not hasattr(texts, "__iter__"):
        raise UsageError(f"{what}: a list of texts is wanted, not {texts!r}")
    return list(texts)


def _texts(given, what):
    for x in given:
        if not isinstance(x, str):
            raise UsageError(f"{what}: texts are wanted, not {x!r}")
    return given


def _pictures(given):
    return [os.fspath(x) if isinstance(x, (str, os.PathLike)) else x for x in given]


def _lists(x):
    """Rows of an array as lists, with NumPy or without."""
    return x.tolist() if hasattr(x, "tolist") else memoryview(x).tolist()


def _log():
    import logging
    return logging.getLogger("rapt")


def _note_cut(cut, of):
    if cut:
        _log().warning("%d of %d texts are longer than the model reads; their ends were left out", cut, of)


def _noted(notes):
    for text in notes:
        _log().info("%s", text)
    return notes


for _class in (Adapter, Alignment, Device, Guess, Model, Perplexity, Translation):
    _class.__module__ = "rapt"
load.__module__ = "rapt"
