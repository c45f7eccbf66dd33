# SPDX-License-Identifier: Apache-2.0
"""Adapters (LoRA) and guessed tokens: what the command line gives with them, what a model gives whose weights
were changed by hand, and the same bits whoever else computes."""
import gc
import json
import pickle
import threading
import urllib.request

import pytest

np = pytest.importorskip("numpy")

import rapt
from adapters import write_adapter

TEXT = "To be, or not to be, that is the question"


class Made:
    def __init__(self, root):
        shapes = rapt.load("default").weights.shapes()
        self.a, self.b = root / "style", root / "facts"
        self.adds = {f: write_adapter(f, shapes, seed) for seed, f in enumerate((self.a, self.b))}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return Made(tmp_path_factory.mktemp("adapters"))


def ids_of_program(cli, *flags):
    said = cli("run", "default", TEXT, "--raw", "--json", "-q", "-n", 24, "--seed", 3, *flags)
    return json.loads(said)["samples"][0]["ids"]


OPTIONS = dict(max_tokens=24, seed=3)


def test_answers_are_the_command_line_s(made, model, cli):
    plain = ids_of_program(cli)
    one, half = ids_of_program(cli, "--lora", made.a), ids_of_program(cli, "--lora", f"{made.a}=0.5")
    two = ids_of_program(cli, "--lora", f"{made.a}=0.5", "--lora", made.b)
    assert len({tuple(x) for x in (plain, one, half, two)}) == 4
    of = lambda lora: rapt.load("default", lora=lora).generate(TEXT, **OPTIONS).ids  # noqa: E731
    assert of(made.a) == of(str(made.a)) == of([made.a]) == one
    assert of({made.a: 0.5}) == of(f"{made.a}=0.5") == half
    assert of({made.a: 0.5, made.b: 1}) == of([f"{made.a}=0.5", made.b]) == two
    # … and asked for with the answer
    for lora, ids in ((made.a, one), ({made.a: 0.5}, half), (model.adapter(made.a, 0.5), half),
                      ([model.adapter(made.a, 0.5), made.b], two), ((), plain), ({made.a: 0}, plain)):
        assert model.generate(TEXT, lora=lora, **OPTIONS).ids == ids
        assert "".join(model.stream(TEXT, lora=lora, **OPTIONS)) == model.tokenizer.decode(ids)
    assert rapt.load("default", lora=made.a).generate(TEXT, lora=(), **OPTIONS).ids == plain


def test_numbers_are_those_of_changed_weights(made):
    adapted = rapt.load("default", exact=True, lora={made.a: 0.5, made.b: 1})
    changed = rapt.load("default", exact=True)
    plain = changed.logits(TEXT)
    for folder, scale in ((made.a, 0.5), (made.b, 1)):
        for name, add in made.adds[folder].items():
            changed.weights[name] = changed.weights[name] + scale * add
    x = adapted.logits(TEXT)
    assert np.abs(x - changed.logits(TEXT)).max() < 1e-4 * np.abs(x).max() < np.abs(x - plain).max()
    names = ["resid_post.*", "z.3", "logits"]
    logits, cache = adapted.run_with_cache(TEXT, names)
    expected = changed.run_with_cache(TEXT, names)[1]
    assert (logits == x).all()
    for name in cache:
        assert np.abs(cache[name] - expected[name]).max() < 1e-4 * np.abs(cache[name]).max(), name
    # functions and edits stand on the same pass
    seen = []
    assert (adapted.run_with_hooks(TEXT, watch={"z.3": lambda z, at: seen.append(z)}) == x).all()
    assert (seen[0] == cache["z.3"]).all()
    without = [m.edited("L3H1:zero").run_with_cache(TEXT, [])[0] for m in (adapted, changed)]
    assert np.abs(without[0] - without[1]).max() < 1e-4 * np.abs(x).max()
    assert adapted.score(TEXT).total == pytest.approx(changed.score(TEXT).total, rel=1e-4)
    assert adapted.perplexity(TEXT * 8, window=32).value == pytest.approx(
        changed.perplexity(TEXT * 8, window=32).value, rel=1e-4)
    assert np.abs(adapted.embed(TEXT) - changed.embed(TEXT)).max() < 1e-4 * np.abs(adapted.embed(TEXT)).max()


def test_bits_do_not_depend_on_the_company(made, model):
    loras = [(), made.a, {made.a: 0.5}, model.adapter(made.b)] * 2
    ask = lambda i: model.generate(TEXT[:20 + i], lora=loras[i], **OPTIONS)  # noqa: E731
    alone = [rapt.load("default").generate(TEXT[:20 + i], lora=loras[i] if i % 4 != 3 else made.b, **OPTIONS)
             for i in range(8)]
    got = [None] * 8

    def one(i):
        got[i] = ask(i)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert got == alone
    assert model.batch([TEXT, "The king"], lora=made.a, **OPTIONS) == [
        model.generate(p, lora=made.a, **OPTIONS) for p in (TEXT, "The king")]
    short = dict(temperature=0, max_tokens=8)
    chat, plain = model.chat(lora=made.a, **short), model.chat(**short)
    first, second = chat(TEXT), chat("More")
    assert first.ids == model.generate(TEXT, lora=made.a, **short).ids != plain(TEXT).ids
    assert second.times.reused_tokens > 0


def test_adapters_live_as_long_as_they_are_used(made):
    m = rapt.load("default")
    a = m.adapter(made.a)
    expected = m.generate(TEXT, lora=a, **OPTIONS)
    s = m.stream(TEXT, lora=a, **OPTIONS)
    first = next(s)
    del a, m
    gc.collect()
    assert first + "".join(s) == str(expected)


def test_what_is_refused(made, model, tmp_path):
    with pytest.raises(rapt.NotFound, match="nothing"):
        model.adapter(tmp_path / "nothing")
    with pytest.raises(rapt.NotFound):
        rapt.load("default", lora=tmp_path / "nothing")
    with pytest.raises(rapt.UsageError, match="no scale"):
        rapt.load("default", lora=f"{made.a}=x")
    for wrong in (3, [3]):
        with pytest.raises((rapt.UsageError, TypeError)):
            model.generate(TEXT, lora=wrong)
        with pytest.raises((rapt.UsageError, TypeError)):
            rapt.load("default", lora=wrong)
    with pytest.raises(rapt.UsageError, match="not loaded for this model"):
        rapt.load("default-gated").generate(TEXT, lora=model.adapter(made.a))
    adapted = rapt.load("default", lora=made.a)
    for call in (lambda: adapted.save(tmp_path / "x.gguf"), lambda: adapted.attention(TEXT).stats,
                 lambda: adapted.massive(TEXT), lambda: adapted.norms(TEXT), lambda: adapted.sinks(TEXT),
                 lambda: adapted.lens(TEXT), lambda: adapted.report(TEXT), lambda: adapted.attribution(TEXT),
                 lambda: adapted.gradients_at(TEXT, "resid_post.*"), lambda: adapted.gradients([1, 2, 3]),
                 lambda: rapt.Trainer(adapted, "copy", steps=1), lambda: rapt.serve(adapted)):
        with pytest.raises(rapt.UsageError, match="adapter"):
            call()
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(model.adapter(made.a))
    again = pickle.loads(pickle.dumps(adapted))
    assert (again.logits(TEXT) == adapted.logits(TEXT)).all()


def test_translations_and_what_they_look_at(in_toys):
    plain = rapt.load("opus-mt-de-en", exact=True)
    names = {f"decoder.{layer}.{part}": f"decoder.{layer}.{part}.weight"
             for layer in (0, 1) for part in ("cross.q", "ffn.down")}
    adds = write_adapter(in_toys / "adapter", plain.weights.shapes(), 4, names)
    adapted = rapt.load("opus-mt-de-en", exact=True, lora={"adapter": 20})
    changed = rapt.load("opus-mt-de-en", exact=True)
    for name, add in adds.items():
        changed.weights[name] = changed.weights[name] + 20 * add
    line, how = "Ein Hund läuft.", dict(max_tokens=8, beams=1, alignment=dict(words=False))
    a, b, c = (m.translate(line, **how) for m in (adapted, changed, plain))
    assert a.ids == b.ids and a.score == pytest.approx(b.score, rel=1e-3)
    assert np.abs(a.alignment.weights - b.alignment.weights).max() < 1e-4
    assert a.alignment.weights.shape != c.alignment.weights.shape or \
        np.abs(a.alignment.weights - c.alignment.weights).max() > 1e-3
    target = adapted.tokenizer.encode("A dog")
    x, y = (m.logits(line, target=target) for m in (adapted, changed))
    assert np.abs(x - y).max() < 1e-4 * np.abs(x).max()
    assert (adapted.run_with_cache(line, [], target=target)[0] == x).all()


def test_served_under_names(made, model):
    def ask(server, route, **body):
        request = urllib.request.Request(server.url + route, json.dumps(body).encode() if body else None,
                                         {"Content-Type": "application/json"})
        return json.loads(urllib.request.urlopen(request, timeout=60).read())
    with rapt.serve({"base": model}, lora={"style": made.a, "half": f"{made.a}=0.5"}, cache="f32") as server:
        assert {m["id"] for m in ask(server, "/v1/models")["data"]} == {"base", "style", "half"}
        for name, lora in (("base", ()), ("style", made.a), ("half", {made.a: 0.5})):
            said = ask(server, "/v1/completions", model=name, prompt=TEXT, max_tokens=12, temperature=0)
            assert said["choices"][0]["text"] == str(model.generate(TEXT, max_tokens=12, temperature=0,
                                                                    lora=lora))
    two = {"a": model, "b": "default-gated"}
    for wrong in ({"x": made.a}, {"c:x": made.a}, {"a:b": made.a}, {"a:": made.a}, [made.a]):
        with pytest.raises(rapt.UsageError, match="lora"):
            rapt.serve(two, lora=wrong)
    with pytest.raises(rapt.UsageError, match="draft"):
        rapt.serve(two, draft="default")


def test_answers_are_kept_and_given_again(model, tmp_path, cli):
    log = tmp_path / "answers.jsonl"
    with rapt.serve({"base": model}, replay_log=log, cache="f32") as server:
        body = json.dumps({"prompt": TEXT, "max_tokens": 12, "seed": 1}).encode()
        request = urllib.request.Request(server.url + "/v1/completions", body,
                                         {"Content-Type": "application/json"})
        said = json.loads(urllib.request.urlopen(request, timeout=60).read())
        again = urllib.request.Request(f"{server.url}/v1/replay/{said['id']}", b"{}",
                                       {"Content-Type": "application/json"})
        assert json.loads(urllib.request.urlopen(again, timeout=60).read())["choices"][0]["text"] == \
            said["choices"][0]["text"]
    told = json.loads(cli("replay", log, "base=default", "--cache-type", "f32", "--json", "-q"))
    assert (told["answers"], told["equal"], told["different"]) == (1, 1, 0)
    with pytest.raises(rapt.UsageError, match="replay"):
        rapt.serve(model, replay_log=log, replay=False)


# -------------------------------------------------------------------------------------------- guessed tokens
REPEATS = "the king and the queen and the knave and the king and the queen and the knave and the king and"


def test_guesses_change_no_bit():
    off = rapt.load("default", speculate="off")
    drafted = rapt.load("default", draft="default-gated")
    models = [rapt.load("default"), rapt.load("default", speculate="lookup"), drafted,
              rapt.load("default", draft=rapt.load("default-gated"), speculate="draft")]
    guessed = [0] * len(models)
    for seed in range(20):
        options = dict(max_tokens=60, seed=seed, temperature=0.3, ignore_eos=True, logprobs=True)
        expected = off.generate(REPEATS, **options)
        assert expected.times.guessed_tokens == 0
        for i, m in enumerate(models):
            got = m.generate(REPEATS, **options)
            assert got == expected and list(got.logprobs) == list(expected.logprobs)
            assert 0 <= got.times.right_guesses <= got.times.guessed_tokens
            guessed[i] += got.times.guessed_tokens
            assert [p.id for p in m.stream(REPEATS, **options) if p.id is not None] == expected.ids
    # A function that hears every token may end the answer behind any: nothing is guessed for it.
    heard = models[0].generate(REPEATS, max_tokens=40, temperature=0, on_token=lambda piece: None)
    assert heard.times.guessed_tokens == 0 and heard == off.generate(REPEATS, max_tokens=40, temperature=0)
    assert pickle.loads(pickle.dumps(drafted)).generate(REPEATS, max_tokens=8, seed=1) == \
        off.generate(REPEATS, max_tokens=8, seed=1)


def test_how_to_guess_is_checked(tmp_path):
    for wrong, words in ((dict(speculate="of"), "'off', 'lookup', 'draft'"),
                         (dict(speculate="draft"), "draft="),
                         (dict(speculate="off", draft="default"), "asks none")):
        with pytest.raises(rapt.UsageError, match=words):
            rapt.load("default", **wrong)
        with pytest.raises(rapt.UsageError, match=words):
            rapt.serve("default", **wrong)
    with pytest.raises(rapt.NotFound):
        rapt.load("default", draft=tmp_path / "none.gguf")
