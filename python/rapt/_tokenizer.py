# SPDX-License-Identifier: Apache-2.0
"""Tokenizers: text to token ids and back; vocabularies made from texts."""
import os

from . import _rapt
from ._errors import NotFound, UsageError
from ._options import text_of
from ._progress import bar

_IDS = "token ids are whole numbers: a list of them, an array, a tensor"


class Tokenizer:
    """Of a model (model.tokenizer), of a file or folder (Tokenizer.load), or made from texts
    (Tokenizer.train).

    >>> t = rapt.load("default").tokenizer
    >>> ids = t.encode("Good morrow!")
    >>> t.decode(ids), len(t.texts(ids)) == len(ids)
    ('Good morrow!', True)
    """

    def __init__(self):
        raise UsageError("Tokenizer: take a model's (model.tokenizer), load() one or train() one")

    @classmethod
    def _of(cls, handle):
        self = cls.__new__(cls)
        self._handle, self._info = handle, handle.describe()
        return self

    @classmethod
    def load(cls, path):
        """A folder with tokenizer files, or a model: its file, folder or name. No weights are read."""
        return cls._of(_rapt.open_tokenizer(os.fspath(path)))

    @classmethod
    def train(cls, texts, *, kind="bpe", size=None, least=None, lower=False, special=None, progress=None):
        """A vocabulary of texts: a list of them, or the path of a file or of a folder of files (.gz too).

        kind     "bpe" (byte-level), "characters" or "bytes"
        size     tokens in all (4096); `least`: a pair seen less often is not merged (2)
        lower    text is lower-cased first
        special  texts of special tokens by role: {"bos": "<s>", "eos": "</s>", "pad": "<pad>"}; also unk,
                 cls, sep, mask

        >>> t = rapt.Tokenizer.train(["to be or not to be"], kind="characters")
        >>> t.size, t.decode(t.encode("not to be"))
        (7, 'not to be')
        """
        if isinstance(texts, (str, os.PathLike)):
            texts = read_texts(os.fspath(texts))
        words = {"kind": kind, **(special or {})}
        with bar(progress, "vocabulary") as told:
            return cls._of(_rapt.train_tokenizer(list(texts), words, size or 0, least or 0, lower,
                                                 told if told.named else None))

    # --------------------------------------------------------------------------------------------- to and fro
    def encode(self, text, *, special=False, frame=False):
        """Ids. `special`: names of special tokens in the text become these tokens (else they are text like
        any other); `frame`: with what the model expects around a text: BOS, EOS, [CLS] … [SEP]."""
        text_of(text, "encode")
        return self._handle.encode(text, special, frame)

    def decode(self, ids, *, special=False):
        """The text of ids; `special`: control tokens are written out."""
        from ._model import ids_of
        return self._handle.decode(ids_of(ids, _IDS), special)

    def texts(self, ids):
        """A text for each token. Where a character has several tokens, it stands at the last of them."""
        from ._model import ids_of
        return self._handle.texts(ids_of(ids, _IDS))

    def frame(self, ids):
        """Ids with what the model expects around a text."""
        from ._model import ids_of
        return self._handle.frame(ids_of(ids, _IDS))

    def bytes(self, id):
        """What one token stands for; perhaps a part of a character."""
        return self._handle.bytes(id)

    def spelled(self, id):
        """A token as the vocabulary spells it."""
        return self._handle.spelled(id)

    def id(self, text):
        """The token that the vocabulary spells so; None where there is none."""
        return self._handle.id_of(text)

    def role(self, id):
        '''"normal", "unknown", "control", "user", "unused" or "byte".'''
        return self._handle.role(id)

    # --------------------------------------------------------------------------------------------- what it is
    kind = property(lambda self: self._info["kind"], doc='"bpe", "spm", "unigram" or "wordpiece"')
    size = property(lambda self: self._info["size"])
    path = property(lambda self: self._info["path"])
    bos = property(lambda self: self._info["bos"], doc="The id of this token; None where there is none.")
    eos = property(lambda self: self._info["eos"])
    unk = property(lambda self: self._info["unk"])
    pad = property(lambda self: self._info["pad"])
    sep = property(lambda self: self._info["sep"])
    cls = property(lambda self: self._info["cls"])
    mask = property(lambda self: self._info["mask"])
    stops = property(lambda self: list(self._info["stops"]), doc="Ids that end an answer.")
    add_bos = property(lambda self: self._info["add_bos"])
    add_eos = property(lambda self: self._info["add_eos"])

    def __len__(self):
        return self.size

    def save(self, folder, *, replace=False):
        """tokenizer.json and tokenizer_config.json, as Hugging Face's tokenizers read them."""
        self._handle.save(os.fspath(folder), replace)

    def json(self):
        """Its tokenizer.json."""
        return self._handle.files()[0]

    def __eq__(self, other):
        return isinstance(other, Tokenizer) and (
            self._handle is other._handle or self._handle.files() == other._handle.files())

    def __hash__(self):
        return hash((self.kind, self.size))

    def __repr__(self):
        return f"<rapt.Tokenizer: {self.kind}, {self.size:,} tokens>"

    def __reduce__(self):
        return _of_files, self._handle.files()


def _of_files(tokenizer, config):
    return Tokenizer._of(_rapt.tokenizer_of_files(tokenizer, config))


def read_texts(path):
    """The text of a file, or those of a folder's files in the order of their names."""
    if os.path.isdir(path):
        names = [os.path.join(folder, name) for folder, _, files in os.walk(path) for name in files
                 if not name.startswith(".")]
        if not names:
            raise UsageError(f"{path}: holds no files")
    elif os.path.exists(path):
        names = [path]
    else:
        raise NotFound(f"{path}: there is no such file or folder; texts themselves are given as a list")
    return [_read(name) for name in sorted(names)]


def _read(path):
    if path.endswith(".gz"):
        import gzip
        with gzip.open(path, "rb") as file:
            return file.read().decode()
    with open(path, "rb") as file:
        return file.read().decode()


Tokenizer.__module__ = "rapt"
