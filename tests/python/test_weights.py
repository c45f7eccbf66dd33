# SPDX-License-Identifier: Apache-2.0
"""Weights and gradients as arrays, steps by hand, models made of recipes."""
import pytest

import rapt
from training import bits, options, recipe, text

np = pytest.importorskip("numpy")


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "book.txt"
    path.write_text(text())
    return path


@pytest.mark.parametrize("more", [{}, dict(optimizer="muon"), dict(optimizer=dict(kind="sgd", momentum=0.9)),
                                  dict(smoothing=0.1)])
def test_a_step_by_hand_is_a_step(book, more):
    """gradients(**batch) and optimizer.step() are what Trainer.step() does."""
    a, b = (rapt.Trainer(recipe(dropout=0.1), book, **options(**more)) for _ in range(2))
    for number in range(5):
        report = a.step()
        loss, grads = b.model.gradients(**b.batch(number), number=number, seed=3,
                                        smoothing=more.get("smoothing", 0))
        mine = b.optimizer.step(grads if number % 2 else dict(grads))
        assert (loss, mine.step, mine.norm) == (report.loss, report.step, report.norm)
        assert mine.rate == report.rate
        assert bits(a.model.weights) == bits(b.model.weights)
    for name in a.model.weights:
        mine, theirs = b.optimizer.state(name), a.optimizer.state(name)
        assert mine.keys() == theirs.keys()
        for key in mine:
            assert mine[key].tobytes() == theirs[key].tobytes()
    assert b.steps == 5 and len(b.metrics.columns()["step"]) == 5


def test_gradients_are_slopes():
    m = rapt.Model(recipe(vocab=30), seed=2)
    tokens = np.random.default_rng(0).integers(0, 30, (2, 10))
    loss, grads = m.gradients(tokens)
    assert set(grads) <= set(m.weights) and len(grads) == len(list(grads)) and grads.loss == loss
    for name in ("decoder.0.self.q.weight", "decoder.1.ffn.up.weight", "embed.tokens"):
        if name not in m.weights:
            continue
        w, g = m.weights[name], grads[name]
        assert g.shape == w.shape and g.dtype == np.float32
        at = np.unravel_index(np.abs(g).argmax(), g.shape)
        sides = []
        for sign in (1, -1):
            moved = w.copy()
            moved[at] += sign * 1e-2
            m.weights[name] = moved
            sides.append(m.gradients(tokens)[0])
        m.weights[name] = w
        assert (sides[0] - sides[1]) / 2e-2 == pytest.approx(float(g[at]), rel=2e-2)
    assert m.gradients(tokens)[0] == loss


def test_weights_go_out_and_come_back():
    m = rapt.Model(recipe(vocab=30), seed=2)
    before = bits(m.weights)
    for name, w in m.weights.items():
        assert w.dtype == np.float32 and w.flags.c_contiguous and w.shape == m.weights.shapes()[name]
        m.weights[name] = w
        assert m.weights[name].tobytes() == w.tobytes()
    assert bits(m.weights) == before and set(m.weights.formats().values()) == {"f32"}
    assert len(m.weights) == len(list(m.weights)) and "no.such" not in m.weights
    name = next(n for n, shape in m.weights.shapes().items() if len(shape) == 2 and min(shape) > 1)
    logits = m.logits([1, 2, 3])
    m.weights[name] = m.weights[name].astype(np.float64) * 2  # any type of number
    assert m.logits([1, 2, 3]).tobytes() != logits.tobytes()
    w = m.weights[name]
    w[0, 0] += 1  # of a copy
    assert m.weights[name][0, 0] != w[0, 0]
    assert len(m.weights.raw(name)) >= w.nbytes


def test_wrong_weights_are_refused():
    m = rapt.Model(recipe(vocab=30), seed=2)
    name = next(n for n, shape in m.weights.shapes().items() if len(shape) == 2 and shape[0] != shape[1])
    w = m.weights[name]
    for wrong in (w.T, w.reshape(-1), w[:-1], w[None]):
        with pytest.raises(rapt.UsageError, match="shape"):
            m.weights[name] = wrong
    with pytest.raises(rapt.UsageError, match="numbers"):
        m.weights[name] = np.array(["a"])
    with pytest.raises(rapt.UnknownName, match="did you mean"):
        m.weights[name + "s"] = w
    with pytest.raises(KeyError):
        m.weights["no.such.thing.at.all"]
    assert m.weights[name].tobytes() == w.tobytes()


def test_weights_of_a_file(model):
    """A quantized file's weights read as numbers; only exact ones can be written."""
    exact = rapt.load("default", exact=True)
    blocks = [n for n, kind in model.weights.formats().items() if kind not in ("f32", "f16", "bf16")]
    assert blocks and set(exact.weights.formats().values()) == {"f32"}
    for name in blocks[:3]:
        assert model.weights[name].tobytes() == exact.weights[name].tobytes()
    with pytest.raises(rapt.UsageError, match="exact"):
        model.weights[blocks[0]] = model.weights[blocks[0]]
    with pytest.raises(rapt.UsageError, match="exact"):
        model.gradients([1, 2, 3])
    said = exact.generate("The sky", max_tokens=6, temperature=0)
    old = exact.weights[blocks[0]]
    exact.weights[blocks[0]] = np.zeros_like(old)
    assert exact.generate("The sky", max_tokens=6, temperature=0, logprobs=True).ids is not None
    exact.weights[blocks[0]] = old
    assert exact.generate("The sky", max_tokens=6, temperature=0).ids == said.ids
    assert rapt.load("default", exact=True).weights[blocks[0]].tobytes() == old.tobytes()


def test_what_was_read_with_other_weights_is_read_again():
    """Kept keys of earlier weights are not used: a chat and prompts that begin alike see the new ones."""
    m = rapt.load("default", exact=True)
    prompt = "Once upon a time there was a house at the edge of a wood, and in it lived an old man. " * 3
    first = m.generate(prompt, max_tokens=12, temperature=0)
    name = "decoder.0.self.v.weight"
    w = m.weights[name]
    m.weights[name] = -w
    changed = m.generate(prompt, max_tokens=12, temperature=0)
    other = rapt.load("default", exact=True)
    other.weights[name] = -w
    assert changed.ids == other.generate(prompt, max_tokens=12, temperature=0).ids != first.ids
    m.weights[name] = w
    assert m.generate(prompt, max_tokens=12, temperature=0).ids == first.ids


def test_a_model_of_a_recipe(tmp_path):
    a, b, c = (rapt.Model(recipe(vocab=30), seed=seed) for seed in (0, 0, 1))
    assert bits(a.weights) == bits(b.weights) != bits(c.weights)
    assert a.recipe == recipe(vocab=30)
    a.save(str(tmp_path / "a"))
    assert bits(rapt.load(str(tmp_path / "a"), exact=True).weights) == bits(a.weights)


def test_numbers_that_are_not_finite_never_reach_the_weights(book):
    t = rapt.Trainer(recipe(), book, **options())
    before = bits(t.model.weights)
    loss, grads = t.model.gradients(**t.batch(0))
    name = next(iter(grads))
    bad = grads[name].copy()
    bad.flat[0] = np.nan
    grads[name] = bad
    with pytest.raises(rapt.Error, match="norm"):
        t.optimizer.step(grads)
    assert bits(t.model.weights) == before and t.steps == 0
    other = rapt.Model(recipe(vocab=t.recipe["vocab"]))
    with pytest.raises(rapt.UsageError, match="another model"):
        t.optimizer.step(other.gradients(**t.batch(0))[1])
    with pytest.raises(TypeError):
        t.optimizer.step(3)
