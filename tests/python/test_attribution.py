# SPDX-License-Identifier: Apache-2.0
"""Edits of attention, attribution, patching and gradients: against TransformerLens on toys
(tests/golden/use/attribution.json) and, to the last bit, against the command line."""
import json

import pytest

np = pytest.importorskip("numpy")

import golden_toys
import rapt

CLEAN, CORRUPTED = "To be, or not to be", "To be, or not to me"
CASES = golden_toys.cases("attribution.json")


@pytest.fixture(scope="module", params=CASES, ids=lambda c: c["toy"])
def case(request, tmp_path_factory):
    folder = golden_toys.write(request.param["toy"], tmp_path_factory.mktemp("toys"))
    return request.param, rapt.load(folder, exact=True)


def close(got, want):
    got, want = np.asarray(got, np.float64), np.asarray(want)
    assert got.shape == want.shape and (np.abs(got - want) <= 1e-4 * np.maximum(1, np.abs(want))).all()


def test_edits_of_attention_equal_transformer_lens(case):
    c, m = case
    _, other = m.run_with_cache(c["other"], "attn_weights.1")
    for e in c["edits"]:
        edit = e["edit"]
        if edit.endswith("=other"):
            pattern = other["attn_weights.1"]
            edit = (edit[:-6], pattern[2] if "@h2" in edit else pattern)
        close(m.edited(edit).run_with_cache(c["tokens"], [])[0][-1], e["logits"])


def test_sweeps_equal_transformer_lens(case):
    c, m = case
    want = c["patching"]
    got = m.patching(c["other"], c["tokens"], ("difference", c["right"], c["wrong"]))
    close([got.clean, got.corrupted], [want["clean"], want["corrupted"]])
    for grid in got.grids:
        close(grid.value, want[grid.what])
        between = want["clean"] - want["corrupted"]
        close(grid.recovered, (np.array(want[grid.what]) - want["corrupted"]) / between)


def test_gradients_equal_transformer_lens(case):
    c, m = case
    value, cache = m.gradients_at(c["tokens"], [g["point"] for g in c["gradients"]],
                                  f"difference=id:{c['right']},id:{c['wrong']}")
    logits, _ = m.run_with_cache(c["tokens"], [])
    close(value, logits[-1, c["right"]] - logits[-1, c["wrong"]])
    for g in c["gradients"]:
        x = cache[g["point"]].astype(np.float64)
        assert list(x.shape) == g["shape"]
        close((x * x).sum(), g["squares"])
        close(x.reshape(-1)[g["at"]], g["values"])


def test_attribution_equals_transformer_lens(case):
    c, m = case
    got = m.attribution(c["tokens"], ("difference", c["right"], c["wrong"]))
    want = c["attribution"]
    close(got.logit, want["logit"])
    heads = dict(zip(got.heads["name"], got.heads["value"]))
    for name, value in want["heads"].items():
        close(heads[name], value)
    close(got.grid()[1, 2], want["heads"]["L1H2"])
    close(got.parts["value"].sum() + got.rest, got.logit)


def same(ours, theirs):
    assert np.array_equal(np.asarray(ours, np.float64), np.asarray(theirs, np.float64))


def test_all_of_it_is_the_programs(model, cli):
    def told(*words):
        return json.loads(cli("inspect", *words, "--json", "-q"))["data"]

    want, got = told("attribution", "default", CLEAN), model.attribution(CLEAN)
    assert got.logit == want["logit"] and got.metric.token == want["metric"]["token"]
    same(got.parts["value"], [p["value"] for p in want["parts"]])
    same(got.heads["value"], [h["value"] for h in want["heads"]])
    assert list(got.parts["name"]) == [p["name"] for p in want["parts"]]

    want = told("patching", "default", CLEAN, "--corrupted", CORRUPTED)
    got = model.patching(CLEAN, CORRUPTED)
    assert (got.clean, got.corrupted) == (want["clean"], want["corrupted"])
    for grid in want["grids"]:
        same(got[grid["what"]].value, grid["value"])
    assert len(got.columns()["value"]) == sum(g.value.size for g in got.grids)
    assert [g.what for g in model.patching(CLEAN, CORRUPTED, what="heads").grids] == ["heads"]

    want = told("tensors", "default", CLEAN, "--points", "resid_post.2", "--gradient", "loss")
    with pytest.raises(rapt.Error, match="float matrices"):
        model.gradients_at(CLEAN, "resid_post.2")
    value, cache = rapt.load("default", exact=True).gradients_at(CLEAN, "resid_post.2")  # as the program does
    assert value == want["metric_value"]
    assert abs(cache["resid_post.2"].mean() - want["tensors"][0]["mean"]) < 1e-9


def test_gradients_are_differences(model):
    """A step along the gradient at a point changes the loss as the gradient says."""
    exact = rapt.load("default", exact=True)
    value, cache = exact.gradients_at(CLEAN, "resid_post.2")
    slope = cache["blocks.2.hook_resid_post"].astype(np.float64)
    step = 1e-2 * slope / np.linalg.norm(slope)
    losses = []
    for sign in (1, -1):
        moved = {"resid_post.2": lambda x, at: x + sign * step}
        logits = exact.run_with_hooks(cache.ids, moved).astype(np.float64)
        top = logits.max(-1, keepdims=True)
        logs = logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))
        losses.append(-np.mean([logs[i, t] for i, t in enumerate(cache.ids[1:])]))
    assert abs((losses[0] - losses[1]) / 2 - (slope * step).sum()) < 2e-3 * abs((slope * step).sum())


def test_what_is_refused(model):
    with pytest.raises(rapt.UnknownName):
        model.patching(CLEAN, CORRUPTED, what="resid_pots")
    with pytest.raises(rapt.Error, match="tokens"):
        model.patching(CLEAN, CORRUPTED + " and more")
    with pytest.raises(rapt.UsageError):
        model.attribution(CLEAN, "logits")
    with pytest.raises(rapt.UsageError, match="without edits"):
        model.edited("L3H1:zero").attribution(CLEAN)
    with pytest.raises(rapt.Error):
        model.gradients_at(CLEAN, "attn_weights.1")
