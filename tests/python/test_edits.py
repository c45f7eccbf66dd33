# SPDX-License-Identifier: Apache-2.0
"""Handles with edits: against transformers' hooks on toys (tests/golden/use/inside.json), and everything such
a handle computes against the command line or against functions at the same points."""
import pytest

np = pytest.importorskip("numpy")

import golden_toys
import rapt

TEXT = "To be, or not to be, that is the question."


@pytest.mark.parametrize("case", golden_toys.cases("inside.json"), ids=lambda c: c["toy"])
def test_edits_equal_transformers(case, tmp_path):
    m = rapt.load(golden_toys.write(case["toy"], tmp_path), exact=True)
    text = (case["source"], case["tokens"]) if case["source"] else (case["tokens"], None)

    def last_row(model, ids=text[0], target=text[1]):
        return model.run_with_cache(ids, [], target=target)[0][-1]

    plain = last_row(m)
    for e in case["edits"]:
        edit = e["edit"]
        if edit.endswith("=direction"):
            edit = (edit[:-10], golden_toys.direction(m.width))
        elif edit.endswith("=other"):
            point = edit.split("@")[0]
            other = (case["source"], case["other"]) if case["source"] else (case["other"], None)
            edit = (edit[:-6], m.run_with_cache(other[0], point, target=other[1])[1][point])
        golden_toys.near(last_row(m.edited(edit)), e["logits"], f"{case['toy']} {e['edit']}")
    assert (last_row(m) == plain).all()  # nothing has to be taken off again


def test_everything_carries_the_edits(model):
    e = model.edited("L3H1:zero", ("resid_post.2:scale", 0.5))

    def zero(z, at):
        z[:, 1] = 0

    hooks = {"z.3": zero, "resid_post.2": lambda x, at: x * 0.5}
    want = model.run_with_hooks(TEXT, hooks)
    plain = model.run_with_hooks(TEXT)
    assert not (want == plain).all()
    logits, cache = e.run_with_cache(TEXT, ["z.3", "resid_post.5"])
    assert (logits == want).all() and not cache["z.3"][:, 1].any()
    assert (e.run_with_hooks(TEXT) == want).all()
    assert (e.logits(TEXT) == model.logits(TEXT)).all() == False  # noqa: E712
    assert e.perplexity(TEXT * 40, chunks=1).value != model.perplexity(TEXT * 40, chunks=1).value
    # Views look at the edited pass.
    kept = {}
    model.run_with_hooks(TEXT, hooks, watch={"resid_post.*": lambda x, at: kept.__setitem__(at.layer, x),
                                             "pattern5": lambda x, at: kept.__setitem__("pattern", x)})
    lengths = np.linalg.norm(kept[5].astype(np.float64), axis=-1)
    assert np.allclose(e.norms(TEXT).residual[6], lengths, rtol=1e-5)
    assert np.allclose(e.massive(TEXT).largest[6], np.abs(kept[5]).max(-1))
    assert np.abs(e.attention(TEXT).map(5) - kept["pattern"]).max() < 1e-6
    assert not (e.lens(TEXT).probabilities == model.lens(TEXT).probabilities).all()
    assert not (e.sinks(TEXT * 12).alpha == model.sinks(TEXT * 12).alpha).all()
    # The other handle is as it was.
    assert (model.run_with_hooks(TEXT) == plain).all() and model.edits == [] and len(e.edits) == 2


def test_generation_is_the_programs(model, cli):
    e = model.edited("L3H1:zero", "resid_post.2:scale=0.7")
    a = e.generate("The sky is", max_tokens=24, temperature=0)
    told = cli("run", "default", "The sky is", "-n", 24, "--temp", 0, "-q", "--edit", "L3H1:zero", "--edit",
               "resid_post.2:scale=0.7")
    assert str(a) != str(model.generate("The sky is", max_tokens=24, temperature=0))
    assert str(a).strip() in told


def test_arrays_and_handles_of_handles(model):
    width = model.run_with_cache(TEXT, "resid_post.0")[1]["resid_post.0"].shape[1]
    way = np.linspace(-1, 1, width)
    added = model.run_with_hooks(TEXT, {"resid_post.4": lambda x, at: x + way.astype(np.float32)})
    for edit in (("resid_post.4:add", way), ("blocks.4.hook_out:add", way.astype(np.float32).tolist()),
                 {"point": "resid_post.4", "op": "add", "value": way.astype(np.float32).tolist()}):
        assert (model.edited(edit).run_with_cache(TEXT, [])[0] == added).all()
    two = model.edited(("resid_post.4:add", way)).edited("L5H0:zero")
    assert (two.run_with_cache(TEXT, [])[0] ==
            model.edited(("resid_post.4:add", way), "L5H0:zero").run_with_cache(TEXT, [])[0]).all()
    # A whole text's tensor fits that text alone, and cannot be written with.
    _, cache = model.run_with_cache(TEXT, "resid_post.1")
    patched = model.edited(("resid_post.1:replace", cache["resid_post.1"]))
    assert (patched.run_with_cache(TEXT, [])[0] == model.run_with_cache(TEXT, [])[0]).all()
    with pytest.raises(rapt.Error, match="shape"):
        patched.run_with_cache(TEXT + " More.", [])
    with pytest.raises(rapt.UsageError, match="in one"):
        patched.generate("x", max_tokens=2)


def test_values_in_a_dict(model):
    steer = np.linspace(-1, 1, model.width, dtype=np.float32)
    pair, named = ("resid_post.2@3:add", steer), dict(point="resid_post.2", pos=3, op="add", value=steer)
    assert (model.edited(pair).logits(TEXT) == model.edited(named).logits(TEXT)).all()


def test_what_is_refused(model):
    for edit in ("z.99:zero", "z.1:zreo", "z.1", ("z.1:add=2", np.ones(3)), 3, "attn_normalized.1:zero"):
        with pytest.raises(rapt.UsageError):
            model.edited(edit)
    with pytest.raises((TypeError, ValueError)):
        model.edited(("z.1:add", "text"))
    with pytest.raises(rapt.UsageError, match="no edit"):
        model.edited()
    with pytest.raises(rapt.Error, match="positions 0 to"):
        model.edited("resid_post.1@p500:zero").run_with_cache(TEXT, [])
    with pytest.raises(rapt.UsageError, match="without edits"):
        model.edited("L3H1:zero").report(TEXT)
