# SPDX-License-Identifier: Apache-2.0
"""Tokenizers against the command line, and vocabularies made from texts."""
import gzip
import json
import pickle

import pytest

import rapt

TEXTS = ["Good morrow, cousin.", "naïve café – déjà vu", "鱼和熊掌", "🙂 <|im_end|> x", "",
         "  two  spaces\n\n"]


@pytest.mark.parametrize("text", TEXTS)
def test_ids_are_the_command_line_s(model, cli, text):
    t = model.tokenizer
    ids = t.encode(text)
    assert ids == [int(i) for i in cli("tokenize", "default", "-", input=text).split()]
    assert t.encode(text, frame=True) == [int(i) for i in cli("tokenize", "default", "-", "--frame",
                                                              input=text).split()]
    assert t.decode(ids) == text
    rows = json.loads(cli("tokenize", "default", "-", "--json", input=text))
    assert [t.spelled(i) for i in ids] == [row["token"] for row in rows]
    assert b"".join(t.bytes(i) for i in ids) == text.encode()


def test_special_tokens_stay_text_unless_asked(model):
    t = model.tokenizer
    special = next(i for i in range(t.size) if t.role(i) == "control")
    name = t.spelled(special)
    assert special not in t.encode(name)
    assert t.encode(name, special=True) == [special]
    assert t.decode([special]) == "" and t.decode([special], special=True) == name
    assert t.id(name) == special and t.id("no such token") is None


def test_texts_of_tokens_are_whole_characters(model):
    t = model.tokenizer
    ids = t.encode("é鱼")
    shown = t.texts(ids)
    assert len(shown) == len(ids) and "é" in "".join(shown) and "鱼" in "".join(shown)


def test_ids_outside_are_refused(model):
    for ids in ([-1], [model.tokenizer.size]):
        with pytest.raises(rapt.UsageError, match="vocabulary"):
            model.tokenizer.decode(ids)


def test_loaded_without_weights(model):
    t = rapt.Tokenizer.load("default")
    assert t == model.tokenizer and t.size == model.tokenizer.size
    assert pickle.loads(pickle.dumps(t)) == t
    with pytest.raises(rapt.NotFound):
        rapt.Tokenizer.load("nothing here")


def test_trained_saved_and_loaded(tmp_path, cli):
    text = "low lower lowest new newer newest wide wider widest " * 30
    t = rapt.Tokenizer.train([text], size=270, special={"bos": "<s>", "eos": "</s>"})
    assert t.size == 270 and t.kind == "bpe" and t.decode(t.encode(text)) == text
    assert len(t.encode(text)) < len(text) / 2
    t.save(tmp_path / "t")
    again = rapt.Tokenizer.load(tmp_path / "t")
    assert again.encode(text) == t.encode(text) and again.bos == t.bos == t.id("<s>")
    with pytest.raises(rapt.Error, match="replace=True"):
        t.save(tmp_path / "t")
    t.save(tmp_path / "t", replace=True)
    assert [int(i) for i in cli("tokenize", tmp_path / "t", "newest low").split()] == t.encode("newest low")

    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "a.txt").write_text(text[:400])
    with gzip.open(tmp_path / "books" / "b.txt.gz", "wb") as file:
        file.write(text[400:].encode())
    books = rapt.Tokenizer.train(tmp_path / "books", size=270)
    parts = rapt.Tokenizer.train([text[:400], text[400:]], size=270)
    assert books.json() == parts.json()


def test_kinds(tmp_path):
    t = rapt.Tokenizer.train(["abba"], kind="characters")
    assert t.decode(t.encode("baab")) == "baab"
    t = rapt.Tokenizer.train(["abba"], kind="bytes")
    assert t.size == 256 and t.decode(t.encode("zürich")) == "zürich"
    with pytest.raises(rapt.UnknownName, match="bpe"):
        rapt.Tokenizer.train(["a"], kind="bp")
    with pytest.raises(rapt.UnknownName, match="bos"):
        rapt.Tokenizer.train(["a"], kind="characters", special={"boss": "<s>"})
    with pytest.raises(rapt.UsageError, match="257"):
        rapt.Tokenizer.train(["a"], size=20)
    with pytest.raises(FileNotFoundError):
        rapt.Tokenizer.train(str(tmp_path / "nothing"))
