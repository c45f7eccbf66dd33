# SPDX-License-Identifier: Apache-2.0
"""Conversations: turns through the model's chat template, and the cache that stays between them."""
import json
import threading

from . import _rapt
from ._answer import Stream, answer_of, options_of
from ._errors import UsageError


class Chat:
    """A conversation: `chat("Hello")` answers, with options as of Model.generate; those given here hold for
    every turn. What was read is not read again. Without a chat template it is one text that goes on. What no
    longer fits the context is left out from the beginning, whole turns at a time; the system message stays.

    One thread at a time: a second one gets an error.

    >>> m = rapt.load("default")
    >>> chat = m.chat(temperature=0, max_tokens=8)
    >>> first = chat("Speak.")
    >>> [message["role"] for message in chat.messages]
    ['user', 'assistant']
    >>> second = chat("More.")
    >>> second.times.reused_tokens > 0
    True
    """

    def __init__(self, model, system="", **options):
        options_of(options, "chat")
        if options.get("lora") is not None:
            options["lora"] = model._adapters(options["lora"])
        self._model, self._options = model, options
        self._engine = model._engine()
        self._turns = _rapt.Turns(model._state)
        if system:
            self._turns.system = system
        self._hold = self._engine.new_hold()
        self._busy = threading.Lock()

    def __del__(self):
        if hasattr(self, "_busy"):
            self._engine.release(self._hold)

    # ------------------------------------------------------------------------------------------------- turns
    def __call__(self, text, **options):
        """The answer to one more message."""
        with self._turn(text, options, False) as turn:
            while (ask := turn._ask) is not None:
                ask.finish(None)
                turn._end()
            return turn.answer

    def stream(self, text, **options):
        """The same as a Stream. What was said until it is left becomes the turn."""
        return self._turn(text, options, True)

    def _turn(self, text, options, listens):
        options = options_of({**self._options, **options}, "chat")
        for name in ("samples", "beams"):
            if options.get(name, 0) > (1 if name == "samples" else 0):
                raise UsageError(f"chat: a turn is one answer, drawn; {name} belong to generate()")
        if not self._busy.acquire(blocking=False):
            raise UsageError("this chat answers already, in another thread or in a stream that is not over; "
                             "close the stream, or make one chat for each thread")
        try:
            return _Turn(self, text, options, listens)
        except BaseException:
            self._busy.release()
            raise

    # ---------------------------------------------------------------------------------------------- messages
    @property
    def system(self):
        """The system message; it may change between turns."""
        return self._turns.system

    @system.setter
    def system(self, text):
        self._turns.system = text or ""

    @property
    def messages(self):
        """As chat APIs have them: [{"role": "user", "content": "…"}, …]. Setting them begins there; the
        system message stays."""
        return json.loads(self._turns.messages())

    @messages.setter
    def messages(self, messages):
        self._turns.load(json.dumps(list(messages)))

    def undo(self):
        """Takes the last turn back; whether there was one."""
        return self._turns.undo()

    def clear(self):
        self._turns.clear()

    @property
    def model(self):
        return self._model

    def __len__(self):
        return len(self.messages)

    def __repr__(self):
        return f"<rapt.Chat with {self._model.name}: {len(self.messages)} messages>"

    def _repr_html_(self):
        from html import escape
        rows = "".join(f"<p><b>{escape(m['role'])}</b><br>{escape(m['content'])}</p>" for m in self.messages)
        return f'<div style="white-space:pre-wrap">{rows}</div>'

    def __reduce__(self):
        raise TypeError("a chat holds a cache and cannot be pickled; its messages can, for a new one to take")


class _Turn(Stream):
    """An answer in a conversation. One that fills the context goes on without the oldest turns."""

    def __init__(self, chat, text, options, listens):
        self._talk, self._said, self._listens = chat, text, listens
        self._limit = options.get("max_tokens", -1)
        self._context = 0 if chat._model.streaming else chat._engine.context()
        ids, self.left_out = chat._turns.prompt(text, self._context, self._limit, [])
        self._sum = None
        super().__init__(chat._model, self._begin(ids, options), options, ids, chat._turns.has_template())

    def _begin(self, ids, options):
        chat = self._talk
        if "lora" in options:
            options = dict(options, lora=chat._model._uses(options["lora"]))
        return _rapt.ask(chat._engine, ids, options, chat._hold, self._listens, [])

    def _end(self):
        ask = self._ask
        raw = None if ask is None else ask.answer()
        if raw is None:  # closed meanwhile
            self.close()
            return
        part = raw["samples"][0]
        if self._sum is None:
            self._sum, self._times = part, raw["times"]
        else:
            for name in ("text", "ids", "choices"):
                self._sum[name] += part[name]
            self._sum.update(finish=part["finish"], hash=self._sum["hash"] ^ part["hash"])
            self._times = (self._times[0], *(a + b for a, b in zip(self._times[1:], raw["times"][1:])))
        done, turns = len(self._sum["ids"]), self._talk._turns
        full = part["finish"] == "length" and (self._limit < 0 or done < self._limit)
        if full and self._context and part["ids"] and turns.has_template():
            ids, left_out = turns.prompt(self._said, self._context, self._limit, self._sum["ids"])
            if left_out:
                self.left_out += left_out
                most = {} if self._limit < 0 else {"max_tokens": self._limit - done}
                self._ask = self._begin(ids, {**self._options, **most})
                return
        self._ask = None
        self._answer = answer_of(self._model, self._sum, self._times, self._options, self._prompt, self._chat)
        self._leave(self._sum["ids"], self._sum["text"])

    def __next__(self):
        while True:
            try:
                return super().__next__()
            except StopIteration:
                if self._ask is None:  # else it goes on
                    raise

    def close(self):
        super().close()
        self._leave(*((self.ids, self.text) if self._pieces else (None, None)))

    def _leave(self, ids, text):
        if self._talk is None:
            return
        chat, self._talk = self._talk, None
        if ids is not None:
            chat._turns.add(self._said, ids, text)
        chat._busy.release()

    def __del__(self):
        if hasattr(self, "_pieces"):  # else it never began
            self.close()


for _class in (Chat,):
    _class.__module__ = "rapt"
