# SPDX-License-Identifier: Apache-2.0
"""Data that a program makes: the bits of the same data from a file, whatever stops the training."""
import threading

import pytest

import rapt
from test_train import killed
from training import bits, file_bits, options, recipe, text

np = pytest.importorskip("numpy")


def plain(**more):
    """Options without those that say what is learned from a file."""
    o = options(**more)
    return {key: value for key, value in o.items() if key not in ("batch", "length", "vocab")}


def drawn(number, vocab=40, rows=4, length=16):
    return np.random.default_rng(number).integers(0, vocab, (rows, length))


def data(f=lambda number: {"tokens": drawn(number)}, **more):
    held = [{"tokens": drawn(10**6 + i)} for i in range(3)]
    return rapt.Data(f, **{**dict(vocab=40, identity="drawn", held_out=held), **more})


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    out = tmp_path_factory.mktemp("own") / "out"
    t = rapt.Trainer(recipe(dropout=0.1), data(), out, **plain(steps=20, save_every=7))
    return out, [s.loss for s in t], bits(t.model.weights)


def test_the_same_data_from_a_file_is_the_same_bits(tmp_path):
    book = tmp_path / "book.txt"
    book.write_text(text())
    for more in ({}, dict(accumulate=2), dict(optimizer=dict(kind="sgd", rate=1e-2, ema=0.9))):
        o = options(**more) if "optimizer" not in more else {**options(**more), "rate": None}
        o = {key: value for key, value in o.items() if value is not None}
        file = rapt.Trainer(recipe(dropout=0.2), book, **o)
        batches = {n: file.batch(n) for n in range(30)}
        own = rapt.Data(lambda number: batches[number], vocab=file.recipe["vocab"], identity="book")
        mine = rapt.Trainer(recipe(dropout=0.2), own,
                            **{k: v for k, v in o.items() if k not in ("batch", "length", "vocab")})
        assert [s.loss for s in file] == [s.loss for s in mine]
        assert bits(file.model.weights) == bits(mine.model.weights)


def test_every_way_to_write_a_batch_is_the_same(straight):
    def table(number):
        return {"tokens": drawn(number)}

    def rows(number):
        return {"tokens": drawn(number).tolist()}

    def flat(number):
        x = drawn(number).astype(np.int64)
        targets = np.full(x.shape, -1, np.int32)
        targets[:, :-1] = x[:, 1:]
        return dict(tokens=x.reshape(-1), lengths=[16] * 4, targets=targets)

    def bare(number):
        x = drawn(number)
        return dict(tokens=[int(i) for i in x.reshape(-1)], lengths=np.array([16] * 4))
    for f in (table, rows, flat, bare):
        for ahead in (True, False):
            t = rapt.Trainer(recipe(dropout=0.1), data(f, ahead=ahead), **plain(steps=20))
            assert [s.loss for s in t] == straight[1] and bits(t.model.weights) == straight[2]


def test_batches_are_fetched_ahead_and_never_twice():
    threads, asked = set(), []

    def f(number):
        threads.add(threading.get_ident())
        asked.append(number)
        return {"tokens": drawn(number)}
    t = rapt.Trainer(recipe(), data(f), **plain(steps=6))
    asked.clear()  # a first one was looked at to see what a step takes
    list(t)
    assert sorted(asked) == list(range(6)) and len(threads) > 1


def test_judging_reads_the_held_out_part():
    d = data()
    t = rapt.Trainer(recipe(), d, **plain(steps=2))
    all_of_it = t.judge()
    assert all_of_it.counted == 3 * 4 * 15 and t.judge(1).counted == 4 * 15
    m = t.model
    losses = [m.gradients(**batch)[0] for batch in d.held_out]
    assert all_of_it.loss == pytest.approx(sum(losses) / 3, rel=1e-6)


def test_stopped_and_resumed(straight, tmp_path):
    for stop in (3, 9, 20):
        for s in rapt.Trainer(recipe(dropout=0.1), data(), tmp_path / "out", **plain(steps=20, save_every=7)):
            if s.step == stop:
                break
    assert file_bits(tmp_path / "out") == file_bits(straight[0])


KILLED = """
import sys, json
sys.path.insert(0, sys.argv[1])
import rapt
from test_data import data, plain
from training import recipe
t = rapt.Trainer(recipe(dropout=0.1), data(), sys.argv[2], **plain(steps=20, save_every=int(sys.argv[3])))
print("ready", flush=True)
for s in t:
    print(s.step, flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("seed", range(3))
def test_killed_and_resumed_it_has_the_same_bits(straight, tmp_path, seed):
    assert killed(KILLED, [tmp_path / "out", 1 + seed], seed)
    assert file_bits(tmp_path / "out") == file_bits(straight[0])


class Mine(Exception):
    pass


@pytest.mark.parametrize("ahead", (True, False))
def test_what_the_function_raises_arrives_and_leaves_no_trace(straight, tmp_path, ahead):
    broken = {5}

    def f(number):
        if number in broken:
            raise Mine(f"batch {number}")
        return {"tokens": drawn(number)}
    t = rapt.Trainer(recipe(dropout=0.1), data(f, ahead=ahead), tmp_path / "out", **plain(steps=20))
    with pytest.raises(Mine, match="batch 5") as e:
        list(t)
    assert any(frame.name == "f" for frame in e.traceback)
    assert t.steps == 5 and (tmp_path / "out/step-5").exists()
    broken.clear()
    list(t)
    assert bits(t.model.weights) == straight[2]


def test_what_a_held_out_batch_raises_arrives():
    class Held(list):
        def __getitem__(self, i):
            raise Mine("held")
    t = rapt.Trainer(recipe(), data(held_out=Held([1, 2])), **plain(steps=2))
    with pytest.raises(Mine):
        t.judge()
    t.step()
    assert t.steps == 1


@pytest.mark.parametrize("batch, said", [
    (dict(tokens=[1, 2, 3], lengths=[2]), "sum up to 2"),
    (dict(tokens=[1, 2, 3], lengths=[2, 2]), "more than"),
    (dict(tokens=[1, 40]), "token 40 at place 1"), (dict(tokens=[1, -1]), "token -1"),
    (dict(tokens=[1, 2], targets=[1]), "1 targets, wants 2"),
    (dict(tokens=[1, 2], targets=[1, 40]), "target 40"),
    (dict(tokens=[]), "no tokens"), (dict(lengths=[1]), "no tokens"),
    (dict(tokens=[1], lengths=[0, 1]), "0 tokens"),
    (dict(tokens=[1.5]), "whole numbers"), (dict(tokens=np.zeros(3)), "whole numbers"),
    (dict(tokens=[2**40]), "whole numbers"), (dict(tokens=np.array([2**40])), "32 bits"),
    (dict(tokens=[1, 2], source=[1]), "not translation"), ([1, 2], "dict"), (None, "dict")])
def test_a_batch_that_cannot_be_meant(batch, said):
    with pytest.raises(rapt.UsageError, match=said):
        rapt.Trainer(recipe(), data(lambda number: batch), **plain(steps=2))


def test_misspelt_keys():
    with pytest.raises(rapt.UnknownName, match="did you mean 'tokens'"):
        rapt.Trainer(recipe(), data(lambda number: dict(token=[1])), **plain(steps=2))
    with pytest.raises(rapt.UsageError, match="batch"):
        rapt.Trainer(recipe(), data(), batch=3)
    with pytest.raises(rapt.UnknownName, match="causal"):
        rapt.Trainer(recipe(), data(objective="causl"), **plain())
    with pytest.raises(rapt.UsageError, match="identity"):
        rapt.Trainer(recipe(), data(identity=""), **plain())
    with pytest.raises(TypeError):
        rapt.Data(3, vocab=3, identity="a")


def test_data_of_another_name_is_refused(straight):
    with pytest.raises(rapt.Error, match="other data"):
        rapt.Trainer(recipe(dropout=0.1), data(identity="other"), straight[0], **plain(steps=20))


def test_translation_and_classes():
    def pairs(number):
        x = drawn(number, rows=3, length=6)
        return dict(source=x, tokens=x[:, ::-1], targets=x)
    t = rapt.Trainer(rapt.Recipe("transformer-2017", width=32, layers=1, heads=2, ffn=64),
                     data(pairs, objective="translation", held_out=[pairs(-1 % 100)]), **plain(steps=3))
    assert len(list(t)) == 3 and t.judge().counted == 18

    def labelled(number):
        x = drawn(number, rows=5, length=6)
        return dict(tokens=x, targets=x[:, 0] % 2)
    t = rapt.Trainer(rapt.Recipe("bert", width=32, layers=1, heads=2, ffn=64),
                     data(labelled, objective="classification", class_names=["even", "odd"],
                          held_out=[labelled(7)]), **plain(steps=3))
    assert len(list(t)) == 3 and t.judge().counted == 5
    assert t.recipe["head.classes"] == 2


def test_a_tokenizer_goes_into_the_model(tmp_path):
    d = data(vocab=6000, tokenizer="default")
    t = rapt.Trainer(recipe(vocab=6000), d, tmp_path / "out", **plain(steps=2))
    list(t)
    m = rapt.load(t.folder)
    assert m.tokenizer.encode("the cat") == rapt.load("default").tokenizer.encode("the cat")
