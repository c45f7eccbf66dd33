# SPDX-License-Identifier: Apache-2.0
"""What comes out of a model: answers, pieces of them as they come, log-probabilities of a text."""
import math
import time

from . import _arrays, _rapt
from ._errors import UsageError
from ._values import Value

# Options of an answer, as `rapt run` has them, with its defaults.
OPTIONS = {
    "max_tokens": -1, "temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "typical": 1.0,
    "repeat_penalty": 1.0, "repeat_last_n": 64, "frequency_penalty": 0.0, "presence_penalty": 0.0,
    "mirostat": 0, "mirostat_tau": 5.0, "mirostat_eta": 0.1, "seed": None, "stop": (), "logit_bias": None,
    "ignore_eos": False, "samples": 1, "beams": 0, "length_penalty": 1.0, "logprobs": None, "chunk": 512,
    "schema": None, "grammar": None, "lora": None,
}
_ALSO = {"temp": "temperature", "stops": "stop", "beam": "beams", "typical_p": "typical"}


def options_of(given, what):
    """What the module takes, of keyword arguments; the seed is drawn where none is given."""
    from ._options import check
    given = {_ALSO.get(name, name): value for name, value in given.items()}
    check(given, OPTIONS, what)
    options = {name: value for name, value in given.items() if value is not None}
    if "stop" in options:
        stop = options["stop"]
        if not isinstance(stop, (str, list, tuple)):
            raise UsageError(f"stop: a text that ends the answer, or a list of them, not {stop!r}")
        options["stop"] = [stop] if isinstance(stop, str) else list(stop)
    if "logprobs" in options:
        asked = options["logprobs"]
        if asked is False:
            del options["logprobs"]
        elif asked is True:
            options["logprobs"] = 0
    if "schema" in options:
        options["schema"] = _schema_text(options["schema"])
    seed = options.get("seed")
    if seed is None or seed == -1:
        import os
        options["seed"] = int.from_bytes(os.urandom(4), "little")
    return options


def _schema_text(schema):
    """A schema as JSON: of a dict, a text, or a class that says its own (pydantic's), whose objects then have
    its fields alone: pydantic would drop others, and a small model does not come to their end."""
    import json
    if isinstance(schema, str):
        return schema
    if hasattr(schema, "model_json_schema"):
        schema = _closed(schema.model_json_schema())
    try:
        return json.dumps(schema)
    except (TypeError, ValueError) as e:
        raise UsageError(f"schema: {e}; give a dict, its JSON, or a class with model_json_schema()") from None


def _closed(schema):
    if not isinstance(schema, dict):
        return schema
    out = dict(schema)
    for key in ("properties", "$defs", "definitions"):
        if key in out:
            out[key] = {name: _closed(x) for name, x in out[key].items()}
    for key in ("anyOf", "oneOf", "prefixItems"):
        if key in out:
            out[key] = [_closed(x) for x in out[key]]
    for key in ("items", "additionalProperties"):
        if key in out:
            out[key] = _closed(out[key])
    if "properties" in out:
        out.setdefault("additionalProperties", False)
    return out


class Times(Value):
    """Seconds before its turn, of reading the prompt, of writing; tokens of the prompt, those of them that
    were found in the cache, and tokens of the answer (`dropped`: no longer seen, where the text streams).
    Of guesses at what comes next: how many were computed, and were right."""

    __slots__ = _fields = ("queue", "prompt", "answer", "prompt_tokens", "reused_tokens", "answer_tokens",
                           "dropped_tokens", "guessed_tokens", "right_guesses")

    @property
    def tokens_per_second(self):
        """Of writing; 0 where nothing was."""
        return self.answer_tokens / self.answer if self.answer > 0 else 0.0


class Answer(Value):
    """A text that a model wrote: `str(answer)`. Equal where ids, text and hash are, whatever the times.

    ids       its tokens, without the one that ended it
    tokens    their texts
    text      as people read it
    finish    "stop" (by itself, or by a text that stops), "length", or "cancelled"
    logprobs  an array with the log-probability of each token, where asked for
    top       the most probable tokens at each place: [(id, log-probability, text), …]
    seed      what was drawn with; with it, and the same options, the same answer comes again
    hash      of every id and its logit, to the bit: two answers of one hash were computed alike
    times     Times; score: of a beam; prompt: ids that were read; model: its name
    """

    __slots__ = _fields = ("text", "ids", "tokens", "finish", "logprobs", "top", "seed", "hash", "times",
                           "score", "prompt", "model", "chat")
    _columns = ("ids", "tokens", "logprobs")

    def __str__(self):
        return self.text

    def __format__(self, spec):
        return format(self.text, spec)

    def __len__(self):
        return len(self.ids)

    def __repr__(self):
        text = self.text if len(self.text) <= 200 else self.text[:199] + "…"
        return f"<rapt.Answer {text!r}: {len(self.ids)} tokens, {self.finish}>"

    def __eq__(self, other):
        if not isinstance(other, Answer):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in ("ids", "text", "hash", "finish"))

    def __hash__(self):
        return hash((self.hash, self.text))

    def columns(self):
        """A dict of equally long columns: ids, tokens and, where asked for, logprobs."""
        return {name: getattr(self, name) for name in self._columns if getattr(self, name) is not None}

    def openai(self):
        """As OpenAI's API gives it: a text completion, or a chat completion where it answers messages."""
        choice = {"index": 0, "finish_reason": "length" if self.finish == "length" else "stop"}
        named = [] if self.logprobs is None else [
            {"token": token, "logprob": float(p),
             "top_logprobs": [{"token": t, "logprob": q} for _, q, t in top]}
            for token, p, top in zip(self.tokens, self.logprobs, self.top)]
        if self.chat:
            choice["message"] = {"role": "assistant", "content": self.text}
            choice["logprobs"] = {"content": named} if named else None
        else:
            choice["text"] = self.text
            choice["logprobs"] = {
                "tokens": list(self.tokens), "token_logprobs": [one["logprob"] for one in named],
                "top_logprobs": [{t["token"]: t["logprob"] for t in one["top_logprobs"]} for one in named],
            } if named else None
        read, wrote = len(self.prompt), len(self.ids)
        return {"id": ("chatcmpl-" if self.chat else "cmpl-") + self.hash,
                "object": "chat.completion" if self.chat else "text_completion",
                "created": int(time.time()), "model": self.model, "choices": [choice],
                "usage": {"prompt_tokens": read, "completion_tokens": wrote, "total_tokens": read + wrote}}

    def _repr_html_(self):
        from html import escape
        if self.logprobs is None:
            body = escape(self.text)
        else:
            body = "".join(shaded(token, float(p), top)
                           for token, p, top in zip(self.tokens, self.logprobs, self.top))
        t = self.times
        return (f'<div style="white-space:pre-wrap">{body}</div><div style="opacity:.6;font-size:85%">'
                f"{len(self.ids)} tokens, {self.finish}, {t.tokens_per_second:.0f} tokens/s</div>")


def shaded(token, logprob, top=()):
    """A token for a notebook: the less probable, the darker behind it; the mouse shows numbers."""
    from html import escape
    p = math.exp(logprob) if logprob == logprob else 1.0
    title = "" if logprob != logprob else f"{100 * p:.1f} %"
    for _, q, text in top:
        title += f"\n{100 * math.exp(q):.1f} %  {text!r}"
    return (f'<span title="{escape(title, True)}" style="background:rgba(200,90,0,{0.55 * (1 - p):.2f})">'
            f"{escape(token)}</span>")


def floats(values):
    """A list of numbers as an array of f32, where there is NumPy."""
    np = _arrays.numpy()
    return list(values) if np is None else np.array(values, dtype=np.float32)


def _choices(model, choices):
    """(log-probabilities, [(id, log-probability, text), …] for each)."""
    if not choices:
        return None, None
    ids = sorted({i for _, _, top in choices for i, _ in top})
    texts = dict(zip(ids, model._token_texts(ids, each=True)))
    return floats([p for _, p, _ in choices]), [[(i, q, texts[i]) for i, q in top] for _, _, top in choices]


def answer_of(model, sample, raw_times, options, prompt, chat=False):
    """The module's dict of one sample as an Answer."""
    logprobs, top = _choices(model, sample["choices"])
    if logprobs is None and "logprobs" in options:
        logprobs, top = floats([]), []
    return Answer(text=sample["text"], ids=sample["ids"], tokens=model._token_texts(sample["ids"]),
                  finish=sample["finish"], logprobs=logprobs, top=top, seed=options["seed"],
                  hash=f"{sample['hash']:016x}", times=Times(**dict(zip(Times._fields, raw_times))),
                  score=sample["score"], prompt=prompt, model=model.name, chat=chat)


class Piece(str):
    """New text of an answer. `id`: its token, None for text that was held back until the end; `sample`: of
    which answer, where there are several; `logprob` and `top`, where asked for."""

    __slots__ = ("id", "sample", "logprob", "top")

    def __reduce__(self):
        return _piece, (str(self), self.id, self.sample, self.logprob, self.top)


def _piece(text, id, sample, logprob, top):
    p = Piece(text)
    p.id, p.sample, p.logprob, p.top = id, sample, logprob, top
    return p


def piece_of(text, id, sample, choice):
    p = Piece(text)
    p.id, p.sample = id, sample
    p.logprob, p.top = (None, None) if choice is None else choice[1:]
    return p


class Stream:
    """An answer as it comes: an iterator of Piece. Leaving it (close(), the end of `with`, or when nobody has
    it any more) stops the engine. `answer`: all of it, at the end; what there is, where it was closed."""

    def __init__(self, model, ask, options, prompt, chat=False):
        self._model, self._ask, self._options, self._prompt, self._chat = model, ask, options, prompt, chat
        self._pieces, self._answer = [], None

    def __iter__(self):
        return self

    def __next__(self):
        if self._ask is None:
            raise StopIteration
        try:
            got = self._ask.next()
        except BaseException:
            self.close()
            raise
        if got is None:
            self._end()
            raise StopIteration
        piece = piece_of(*got)
        self._pieces.append(piece)
        return piece

    def _end(self):
        ask, self._ask = self._ask, None
        if ask is None or self._answer is not None:
            return
        raw = ask.answer()
        if raw is not None:
            self._answer = answer_of(self._model, raw["samples"][0], raw["times"], self._options,
                                     self._prompt, self._chat)

    def close(self):
        """Stops the engine; from any thread."""
        ask, self._ask = self._ask, None
        if ask is not None:
            ask.close()

    @property
    def closed(self):
        return self._ask is None

    @property
    def text(self):
        """So far."""
        return "".join(self._pieces)

    @property
    def ids(self):
        """So far."""
        return [p.id for p in self._pieces if p.id is not None]

    @property
    def answer(self):
        if self._answer is None and self._ask is not None:
            raise UsageError("stream: its answer is there when it is over; text and ids are what there is")
        return self._answer if self._answer is not None else self._partial()

    def _partial(self):
        sample = {"text": self.text, "ids": self.ids, "finish": "cancelled", "score": 0.0, "hash": 0,
                  "choices": [(p.id, p.logprob, p.top) for p in self._pieces if p.logprob is not None]}
        times = (0.0, 0.0, 0.0, 0, 0, len(sample["ids"]), 0, 0, 0)
        return answer_of(self._model, sample, times, self._options, self._prompt, self._chat)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def __repr__(self):
        return f"<rapt.Stream {self.text[-60:]!r}{'' if self._ask is None else ' …'}>"

    def __reduce__(self):
        raise TypeError("a stream is work under way and cannot be pickled; pickle its answer")


class Score(Value):
    """How probable a text is to a model: for each of `ids`, with its text in `tokens`, the log-probability of
    it behind the ones before; the first has none (NaN). `top`: the most probable ones there, where asked for.

    >>> s = rapt.load("default").score("To be, or not to be")
    >>> len(s.ids) == len(s.logprobs), s.total < 0, s.perplexity > 1
    (True, True, True)
    """

    __slots__ = _fields = ("ids", "tokens", "logprobs", "top")
    _columns = ("ids", "tokens", "logprobs")

    @property
    def total(self):
        """The log-probability of the text."""
        return math.fsum(float(p) for p in self.logprobs[1:])

    @property
    def mean(self):
        return self.total / (len(self.ids) - 1) if len(self.ids) > 1 else math.nan

    @property
    def perplexity(self):
        return math.exp(-self.mean)

    def __repr__(self):
        return f"<rapt.Score of {len(self.ids)} tokens: {self.total:.3f}, perplexity {self.perplexity:.3f}>"

    def _repr_html_(self):
        rows = zip(self.tokens, self.logprobs, self.top or [()] * len(self.ids))
        body = "".join(shaded(token, float(p), top) for token, p, top in rows)
        return f'<div style="white-space:pre-wrap">{body}</div>'


def score_of(model, ids, choices):
    logprobs, top = _choices(model, choices)
    none = [math.nan]
    values = floats(none + [p for _, p, _ in choices])
    asked = top is not None and any(top)
    return Score(ids=ids, tokens=model._token_texts(ids), logprobs=values, top=[[], *top] if asked else None)


for _class in (Answer, Piece, Score, Stream, Times):
    _class.__module__ = "rapt"
