# SPDX-License-Identifier: Apache-2.0
"""Functions at points of a pass: against TransformerLens on toys (tests/golden/use/hooks.json), and the rules
of arrays, errors and threads."""
import contextvars
import gc
import threading

import pytest

np = pytest.importorskip("numpy")

import golden_toys
import rapt

TEXT = "To be, or not to be, that is the question."


# The functions of tests/golden/make_hooks.py.
def halve_head(x, at):
    x[:, 2] *= 0.5


def steer(x, at):
    return x + golden_toys.direction(x.shape[-1])


def silence(x, at):
    x[-1] = 0


def turn(x, at):
    return -x


@pytest.mark.parametrize("case", golden_toys.cases("hooks.json"), ids=lambda c: c["toy"])
def test_hooks_equal_transformer_lens(case, tmp_path):
    m = rapt.load(golden_toys.write(case["toy"], tmp_path), exact=True)
    for want in case["hooks"]:
        hooks = {where: globals()[name] for name, where in want["functions"].items()}
        got = m.run_with_hooks(case["tokens"], hooks)
        golden_toys.near(got[-1], want["logits"], f"{case['toy']} {want['functions']}")
        assert (m.run_with_hooks(case["tokens"], list(hooks.items())) == got).all()  # pairs are taken too


@pytest.mark.parametrize("case", golden_toys.cases("inside.json"), ids=lambda c: c["toy"])
def test_functions_do_what_edits_do(case, tmp_path):
    if case["source"]:
        pytest.skip("the functions below are of one text")
    m = rapt.load(golden_toys.write(case["toy"], tmp_path), exact=True)
    _, other = m.run_with_cache(case["other"], "attn_out.0")

    def zero(z, at):
        z[:, 2] = 0

    def mean(z, at):
        z[:, 1] = z[:, 1].astype(np.float64).mean(0)

    def scale(x, at):
        x[-1] *= 0.5

    def add(z, at):
        z[3, 0] += 0.25

    def patch(x, at):
        x[4] = other["attn_out.0"][4]

    def project(x, at):
        way = golden_toys.direction(x.shape[1]).astype(np.float64)
        return x - np.outer(x @ way / (way @ way), way)

    functions = {"zero": zero, "mean": mean, "scale=0.5": scale, "add=0.25": add, "replace=other": patch,
                 "project_out=direction": project}
    for e in case["edits"]:
        point, what = e["edit"].split(":")
        got = m.run_with_hooks(case["tokens"], {point.split("@")[0]: functions[what]})
        golden_toys.near(got[-1], e["logits"], f"{case['toy']} {e['edit']}")


def test_watching_changes_nothing_and_sees_everything(model):
    plain, cache = model.run_with_cache(TEXT, ["resid_post.*", "pattern2", "attn_scores.1", "normalized3ln2"])
    seen = {}

    def see(x, at):
        seen[at.name] = x
        assert at.rows == slice(0, len(cache.ids)) and at.stack == "decoder"

    got = model.run_with_hooks(TEXT, watch={name: see for name in
                                            ("resid_post.*", "pattern2", "attn_scores.1", "normalized3ln2")})
    assert (got == plain).all()
    assert set(seen) == {n for n in cache}
    for name, x in seen.items():
        assert (x == cache[name]).all(), name


def test_a_change_is_seen_behind_it(model):
    after = []
    model.run_with_hooks(TEXT, {"resid_post.1": lambda x, at: x * 0 + 7},
                         watch={"blocks.1.hook_resid_post": lambda x, at: after.append((at, x))})
    at, x = after[0]
    assert (x == 7).all() and at.layer == 1 and at.point == "resid_post.1"
    # Nothing was changed: the bits are the same.
    plain = model.run_with_hooks(TEXT)
    assert (model.run_with_hooks(TEXT, {"z.*": lambda x, at: None}) == plain).all()
    assert (model.run_with_hooks(TEXT, {"z.*": lambda x, at: x}) == plain).all()
    assert (model.run_with_hooks(TEXT, {"z.*": lambda x, at: x.copy()}) == plain).all()
    assert (model.run_with_hooks(TEXT, {"z.*": lambda x, at: x.astype(np.float64)}) == plain).all()
    assert (model.run_with_hooks(TEXT, {"z.*": lambda x, at: x.tolist()}) == plain).all()


def test_arrays_may_be_kept(model):
    kept = []

    def keep(x, at):
        kept.append((x, x[1:3]))
        x += 1

    model.run_with_hooks(TEXT, {"resid_post.*": keep}, watch={"z.*": lambda x, at: kept.append((x, x[1:3]))})
    copies = [(a.copy(), b.copy()) for a, b in kept]
    for _ in range(3):
        model.run_with_hooks(TEXT * 3, {"resid_post.*": lambda x, at: x * 2})
    gc.collect()
    for (a, b), (c, d) in zip(kept, copies):
        assert (a == c).all() and (b == d).all()
        a[:] = 0  # touches nothing but itself
    assert np.isfinite(model.run_with_hooks(TEXT)).all()


class Mine(Exception):
    pass


@pytest.mark.parametrize("where", ["hooks", "watch"])
def test_errors_arrive_unchanged(model, where):
    plain = model.run_with_hooks(TEXT)
    error = Mine("stop here")

    def f(x, at):
        if at.layer == 2:
            raise error

    with pytest.raises(Mine) as caught:
        model.run_with_hooks(TEXT, **{where: {"resid_post.*": f}})
    assert caught.value is error
    assert any(entry.name == "f" for entry in caught.traceback)
    assert (model.run_with_hooks(TEXT) == plain).all()


def test_what_is_refused(model):
    with pytest.raises(rapt.UsageError, match=r"shape \(1, 2\)"):
        model.run_with_hooks(TEXT, {"z.1": lambda x, at: np.zeros((1, 2), np.float32)})
    with pytest.raises((TypeError, ValueError)):
        model.run_with_hooks(TEXT, {"z.1": lambda x, at: "text"})
    with pytest.raises(rapt.UsageError, match="cannot be changed"):
        model.run_with_hooks(TEXT, {"attn_normalized.1": lambda x, at: x})
    with pytest.raises(rapt.UnknownName):
        model.run_with_hooks(TEXT, {"zz.1": lambda x, at: x})
    with pytest.raises(rapt.UsageError, match="dict of names"):
        model.run_with_hooks(TEXT, {"z.1": 3})
    with pytest.raises(rapt.Error, match="more than"):
        model.run_with_hooks(TEXT, watch={"pattern1": lambda x, at: None}, limit=10)


def test_functions_may_use_the_model(model):
    plain = model.run_with_hooks(TEXT)
    other, _ = model.run_with_cache("Another text.", "embeddings")
    inner = []

    def f(x, at):
        inner.append(model.run_with_cache("Another text.", "embeddings")[0])

    assert (model.run_with_hooks(TEXT, {"resid_post.2": f}) == plain).all()
    assert (inner[0] == other).all()
    with pytest.raises(rapt.UsageError, match="cannot ask for an answer"):
        model.run_with_hooks(TEXT, {"resid_post.2": lambda x, at: model.generate("x", max_tokens=1) and None})


def test_functions_run_in_the_callers_context(model):
    name = contextvars.ContextVar("name", default="nobody")
    name.set("me")
    seen = []
    model.run_with_hooks(TEXT, watch={"resid_post.0": lambda x, at: seen.append(name.get())})
    assert seen == ["me"]


def test_threads_side_by_side(model):
    texts = [TEXT * (i + 1) for i in range(4)]
    change = {"resid_post.2": lambda x, at: x * 1.5}
    want = [model.run_with_hooks(t, change) for t in texts]
    got = [None] * len(texts)

    def work(i):
        for _ in range(3):
            got[i] = model.run_with_hooks(texts[i], change)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(texts))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all((a == b).all() for a, b in zip(got, want))
