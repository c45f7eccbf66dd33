# SPDX-License-Identifier: Apache-2.0
"""Functions at points of a pass: against TransformerLens on toys (tests/golden/use/hooks.json), and the rules
of arrays, errors and threads."""
import contextvars
import gc
import threading
import weakref

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


# ------------------------------------------------------------------------------------- while it writes
def zero_head(z, at):
    z[:, 1] = 0


def test_a_function_does_what_an_edit_does_in_an_answer(model):
    options = dict(max_tokens=24, seed=3)
    want = model.edited("L3H1:zero").generate(TEXT, **options)
    assert want != model.generate(TEXT, **options)
    for name in ("z.3", "blocks.3.attn.hook_z"):
        assert model.generate(TEXT, hooks={name: zero_head}, **options) == want
    with model.stream(TEXT, hooks={"z.3": zero_head}, **options) as s:
        assert "".join(s) == str(want) and s.answer == want
    # On an edited handle both are done.
    both = model.edited("L3H1:zero", "L4H2:zero").generate(TEXT, **options)
    assert model.edited("L4H2:zero").generate(TEXT, hooks={"z.3": zero_head}, **options) == both
    # And nothing of it is left, neither on the weights nor in the cache.
    assert model.generate(TEXT, **options) == rapt.load("default").generate(TEXT, **options)


@pytest.mark.parametrize("chunk", [4, 512])
def test_a_function_sees_every_row_once(model, chunk):
    seen = {}

    def see(x, at):
        seen.setdefault(at.name, []).append((at.rows, x))

    options = dict(max_tokens=6, temperature=0, chunk=chunk)
    plain = model.generate(TEXT, **options)
    got = model.generate(TEXT, hooks={"resid_post.*": see, "z.2": see, "logits": see}, **options)
    assert got == plain
    ids = got.prompt + got.ids[:-1]  # nobody reads the last one
    result, cache = model.run_with_cache(ids, ["resid_post.*", "z.2"])
    assert [rows for rows, _ in seen["logits"]] == [None] * 6
    assert (np.concatenate([x for _, x in seen.pop("logits")]) == result[-6:]).all()
    assert len(seen) == 7
    for name, parts in seen.items():
        assert [i for rows, _ in parts for i in range(rows.start, rows.stop)] == list(range(len(ids)))
        assert max(len(x) for _, x in parts) <= chunk
        assert (np.concatenate([x for _, x in parts]) == cache[name]).all()


def test_a_function_may_choose_the_words(model):
    options = dict(max_tokens=12, temperature=0)
    never = model.generate(TEXT, **options).ids[2]

    def ban(logits, at):
        logits[:, never] = -1e9

    got = model.generate(TEXT, hooks={"logits": ban}, **options)
    assert never not in got.ids and len(got.ids) == 12
    assert got.ids == model.generate(TEXT, logit_bias={never: -1e9}, **options).ids


def test_errors_in_an_answer_arrive_unchanged(model):
    plain = model.generate(TEXT, max_tokens=8, seed=1)
    error = Mine("stop here")
    calls = []

    def f(x, at):
        calls.append(at)
        if len(calls) % 3 == 0:
            raise error

    for ask in (lambda: model.generate(TEXT, max_tokens=8, hooks={"z.1": f}),
                lambda: list(model.stream(TEXT, max_tokens=8, hooks={"z.1": f}))):
        with pytest.raises(Mine) as caught:
            ask()
        assert caught.value is error and any(entry.name == "f" for entry in caught.traceback)
    assert len(calls) == 6
    assert model.generate(TEXT, max_tokens=8, seed=1) == plain


def test_what_a_function_in_an_answer_may_not(model):
    s = model.stream("a", max_tokens=100, ignore_eos=True)
    for inside in (lambda: model.generate("x", max_tokens=1), lambda: list(s)):
        with pytest.raises(rapt.UsageError, match="cannot ask for an answer"):
            model.generate(TEXT, max_tokens=2, hooks={"z.1": lambda x, at: inside() and None})
    with pytest.raises(rapt.UnknownName):
        model.generate(TEXT, hooks={"zz.1": zero_head})
    with pytest.raises(rapt.UsageError, match="cannot be changed"):
        model.generate(TEXT, hooks={"pattern1": zero_head})
    with pytest.raises(rapt.UsageError, match=r"shape \(1, 2\)"):
        model.generate(TEXT, max_tokens=2, hooks={"z.1": lambda x, at: np.zeros((1, 2), np.float32)})
    # It may compute passes.
    other, inner = model.logits("Another text."), []

    def f(x, at):
        inner.append(model.logits("Another text."))

    model.generate(TEXT, max_tokens=1, hooks={"z.1": f})
    assert (inner[0] == other).all()


def test_answers_with_functions_side_by_side(model):
    def of(i):
        def scale(x, at):
            x *= 1 + 0.1 * i
        return {"resid_post.2": scale} if i % 2 else None

    def work(i):
        return model.generate(TEXT[:20 + i], max_tokens=16, seed=i, hooks=of(i))

    alone = [work(i) for i in range(6)]
    got = [None] * 6

    def one(i):
        got[i] = work(i)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert got == alone


def test_functions_are_let_go_of():
    m = rapt.load("default")

    class Function:
        def __call__(self, x, at):
            pass

    gone = []
    for left in (False, True):
        f = Function()
        gone.append(weakref.ref(f))
        if left:
            next(m.stream(TEXT, max_tokens=50, ignore_eos=True, hooks={"z.1": f}))
        else:
            m.generate(TEXT, max_tokens=2, hooks={"z.1": f})
        del f
    for _ in range(1000):  # what was left ends with a step of another thread
        gc.collect()
        if all(g() is None for g in gone):
            break
        m.generate("a", max_tokens=1)
    assert [g() for g in gone] == [None, None]
