# SPDX-License-Identifier: Apache-2.0
"""Points, caches and views: values against the command line's, and against TransformerLens and transformers
on toys (tests/golden/use)."""
import gc
import json
import pickle
import re

import pytest

np = pytest.importorskip("numpy")

import golden_toys
import rapt

TEXT = "To be, or not to be, that is the question: whether it is nobler in the mind to suffer."


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """toy("gpt2"): that toy, opened once."""
    folder, models = tmp_path_factory.mktemp("toys"), {}

    def open_toy(name):
        if name not in models:
            models[name] = rapt.load(golden_toys.write(name, folder), exact=True)
        return models[name]

    return open_toy


# What TransformerLens caches and we do not: tables of angles, token types, norms of embeddings and of single
# heads, sums that its versions call differently (the refusal says which is which), inputs of its unembedding.
REFUSED = re.compile(r"rotary_emb|hook_cos|hook_sin|token_type_embed|embed_ln|mlm_head|hook_hidden_states"
                     r"|[qk]_norm.hook_(scale|normalized)|ln_final.hook_in|unembed.hook_in")
REFUSED_IN = {"bert": re.compile(r"hook_mlp_in|hook_resid_mid|hook_resid_post|ln_final")}
# Where its Bridge means something else than its older versions, transformers and we: of BERT all embeddings
# behind their norm (not those of the words), attention with the residual stream and its norm (not what
# attention adds), and weights in the place of scores.
ANOTHER = {("bert", "hook_embed"), ("bert", "blocks.1.attn.hook_out"), ("bert", "blocks.1.hook_attn_out"),
           ("bert", "blocks.1.attn.hook_attn_scores")}


@pytest.mark.parametrize("case", golden_toys.cases("hooks.json"), ids=lambda c: c["toy"])
def test_transformer_lens_names_and_values(toy, case):
    m, named = toy(case["toy"]), []
    for p in case["points"]:
        name = p["name"]
        if REFUSED.search(name) or (case["toy"] in REFUSED_IN and REFUSED_IN[case["toy"]].search(name)):
            with pytest.raises(rapt.UsageError):
                m.run_with_cache(case["tokens"], name)
        elif (case["toy"], name) not in ANOTHER:
            named.append(name)
    logits, cache = m.run_with_cache(case["tokens"], named)
    golden_toys.near(logits[-1], case["logits"], case["toy"])
    for p in case["points"]:
        if p["name"] in named:
            x = cache[p["name"]]
            if re.search(r"\.[qk]_norm\.|_normed", p["name"]):  # head by head there, token by token here
                x = x.transpose(1, 0, 2)
            golden_toys.check(x, p, f"{case['toy']} {p['name']}")
    assert len(named) >= 36


@pytest.mark.parametrize("case", golden_toys.cases("inside.json"), ids=lambda c: c["toy"])
def test_tensors_equal_transformers(toy, case):
    m = toy(case["toy"])
    names = [p["name"] for p in case["points"]] + [p["lens"] for p in case["points"] if "lens" in p]
    if case["source"]:
        logits, cache = m.run_with_cache(case["source"], names, target=case["tokens"])
    else:
        logits, cache = m.run_with_cache(case["tokens"], names)
    assert list(cache) == names
    for p in case["points"]:
        golden_toys.check(cache[p["name"]], p, f"{case['toy']} {p['name']}")
        if "lens" in p:
            golden_toys.check(cache[p["lens"]], p, f"{case['toy']} {p['lens']}")
            if rapt._rapt.point_names(m._state, p["lens"]) == rapt._rapt.point_names(m._state, p["name"]):
                assert cache[p["lens"]] is cache[p["name"]]  # two names, one array


# ---------------------------------------------------------------------------------------- against the program


@pytest.fixture(scope="module")
def inspect(cli):
    """inspect("heads", "default", …): what the program says of TEXT, and the ids that it read."""

    def ask(view, model, *more):
        told = json.loads(cli("inspect", view, model, TEXT, "--json", "-q", *more))
        return told["data"], told["text"]["ids"]

    return ask


def same(ours, theirs):
    """Equal to the last bit; null is NaN, and a missing key is what has no such value."""
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs):
        if b is None:
            assert np.isnan(a)
        elif isinstance(b, list):
            same(a, b)
        else:
            assert a == b, (a, b)


def test_heads_and_maps_are_the_programs(model, inspect):
    told, ids = inspect("heads", "default")
    att = model.attention(TEXT)
    assert att.ids == ids and len(att.heads) == len(told["heads"])
    for name in ("stack", "layer", "head", "label", "first", "entropy", "self", "previous", "induction",
                 "distance", "variance", "strongest", "max_logit", "sink"):
        same(att.heads[name], [h[name] for h in told["heads"]])
    assert set(att.columns()) >= {"layer", "head", "label", "entropy"}
    told, _ = inspect("attention", "default", "--layer", "5", "--head", "3")
    same(att.map(layer=5, head=3), told["weights"])
    same(att.map(layer=-1, head=3), told["weights"])
    assert (att.map(5)[3] == att.map(5, 3)).all()
    assert (att.map(5, 3, rows=slice(2, 5)) == att.map(5, 3)[2:5]).all()
    assert (att.map(5, 3, rows=-1) == att.map(5, 3)[-1]).all()
    assert (att.map(5, 3, rows=[4, 1]) == att.map(5, 3)[[4, 1]]).all()


def test_statistics_are_those_of_the_weights(model):
    att = model.attention(TEXT)
    T, stats = len(att.ids), att.stats
    layers, heads = stats["first"].shape[:2]
    assert stats["first"].shape == (layers, heads, T)
    for layer in range(layers):
        w = att.map(layer).astype(np.float64)  # [heads, T, T]
        rows = np.arange(T)
        want = {"first": w[:, :, 0], "self": w[:, rows, rows], "sum": w.sum(-1),
                "distance": (w * np.abs(rows[:, None] - rows[None])).sum(-1),
                "entropy": -(w * np.log(np.where(w > 0, w, 1))).sum(-1)}
        for name, x in want.items():
            assert np.abs(stats[name][layer] - x).max() < 2e-5 * max(1, np.abs(x).max()), name
        assert np.abs(stats["previous"][layer][:, 1:] - w[:, rows[1:], rows[:-1]]).max() < 1e-6
        top = stats["strongest"][layer].astype(int)
        assert (np.take_along_axis(w, top[..., None], -1)[..., 0] >= w.max(-1) - 1e-6).all()
    # … and of what run_with_cache captures.
    _, cache = model.run_with_cache(TEXT, ["pattern2", "attn_scores.2"])
    assert np.abs(att.map(2) - cache["pattern2"]).max() < 1e-6
    scores = cache["attn_scores.2"]
    assert np.abs(stats["max_logit"][2] - scores.max(-1)).max() < 1e-3
    assert np.isneginf(scores[:, 0, 1:]).all()


def test_views_are_the_programs(model, gated, inspect):
    told, _ = inspect("sinks", "default")
    ours = model.sinks(TEXT)
    same(ours.sink, told["sink"])
    same(ours.alpha, [h["alpha"] for h in told["heads"]])
    same(ours.heads["key_first"], [h["key_first"] for h in told["heads"]])
    assert model.attention(TEXT).sinks(epsilon=0.3) == ours

    told = inspect("massive", "default")[0]["stacks"][0]
    ours = model.massive(TEXT)
    same(ours.largest, told["largest"])
    same(ours.median, told["median"])
    same(ours.trace, told["trace"])
    assert ours.channels == told["channels"] and ours.found == told["found"]

    told, _ = inspect("lens", "default", "--top", "2")
    ours = model.lens(TEXT, top=2)
    for name, key in (("ids", "top_ids"), ("probabilities", "top_probabilities"), ("entropy", "entropy"),
                      ("kl", "kl"), ("rank", "rank"), ("truth", "truth_probability")):
        same(getattr(ours, name), told[key])
    assert ours.words == told["top_tokens"]
    assert model.lens(TEXT, last=3).ids.shape[1] == 3
    assert len(ours.columns()["row"]) == len(ours.rows) * len(ours.tokens)

    told, _ = inspect("norms", "default")
    ours = model.norms(TEXT)
    for name in ("residual", "attn_out", "ffn_out"):
        same(getattr(ours, name), told["stacks"][0][name])
    assert ours.cross_out is None
    same(ours.heads["others"], [h["others"] for h in told["heads"]])

    told, _ = inspect("gates", "default-gated")
    ours = gated.gates(TEXT)
    same(ours.table["mean"], [g["mean"] for g in told["gates"]])
    same(ours.histogram, [g["histogram"] for g in told["gates"]])
    with pytest.raises(rapt.Error, match="gate"):
        model.gates(TEXT)


# ------------------------------------------------------------------------------------------- names and caches


def test_points_and_their_other_names(model):
    points = model.points()
    assert points["resid_post.L"] == points["blocks.L.hook_resid_post"] == points["l_out-L"]
    assert points["layers_output[L]"].name == "resid_post.L" and points["logits"].layers == 0
    assert "blocks.L.attn.hook_pattern" in points["attn_weights.L"].aliases
    for point in points.values():  # every name that is shown finds what it stands for
        for name in (point.name, *point.aliases):
            here = name
            if point.layers:
                here = name.replace(".L", ".1").replace("[L]", "[1]").replace("-L", "-1")
            assert rapt._rapt.point_names(model._state, here) == [point.name.replace(".L", ".1", 1)], name
    assert len(points.columns()["name"]) == len(points) and "resid_post.L" in repr(points)
    with pytest.raises(rapt.UnknownName):
        points["resid_pots.L"]


def test_a_cache_takes_every_name(model):
    logits, cache = model.run_with_cache(TEXT, ["blocks.*.hook_resid_post", "z.3", "resid_post.2"])
    layers = len(cache) - 1
    assert list(cache)[:2] == ["blocks.0.hook_resid_post", "blocks.1.hook_resid_post"]
    assert logits.shape == (len(cache.ids), model.run_with_cache(TEXT, "logits")[1]["logits"].shape[1])
    for name in ("resid_post.2", "blocks.2.hook_resid_post", "blocks.2.hook_out", "l_out-2",
                 "layers_output[2]", "resid_post2", ("resid_post", 2)):
        assert cache[name] is cache["blocks.2.hook_resid_post"]
    assert cache["resid_post.-1"] is cache[f"blocks.{layers - 2}.hook_resid_post"]
    assert len(cache["resid_post.*"]) == layers - 1
    assert "z.3" in cache and "z.2" not in cache and "blocks.3.attn.hook_z" in cache
    with pytest.raises(rapt.UnknownName, match="was not asked for"):
        cache["z.2"]
    with pytest.raises(KeyError):
        cache["nonsense"]
    again = pickle.loads(pickle.dumps(cache))
    assert (again["z.3"] == cache["z.3"]).all() and list(again) == list(cache)
    assert cache.nbytes == sum(x.nbytes for x in {id(x): x for x in cache.values()}.values())


def test_a_function_chooses_names(model):
    _, cache = model.run_with_cache(TEXT, lambda name: name.endswith("hook_z"))
    assert set(cache) == {f"blocks.{i}.attn.hook_z" for i in range(len(cache))} and len(cache) > 1
    with pytest.raises(rapt.UsageError, match="chose no point"):
        model.run_with_cache(TEXT, lambda name: False)


def test_arrays_are_not_copied_and_outlive_all(toy):
    m = rapt.load("default")
    logits, cache = m.run_with_cache(TEXT, ["resid_post.*", "pattern1"])
    arrays = [logits, *cache.values()]
    assert not any(x.flags.owndata for x in arrays)
    before = [x.copy() for x in arrays]
    del m, cache, logits
    gc.collect()
    other = rapt.load("default-gated")
    other.run_with_cache(TEXT, ["resid_post.*", "pattern1"])
    assert all((a == b).all() for a, b in zip(arrays, before))


def test_results_do_not_depend_on_who_watches(model):
    ids = model.run_with_cache(TEXT, "embeddings")[1].ids
    plain, _ = model.run_with_cache(ids, "embeddings")
    watched, _ = model.run_with_cache(np.array(ids), [p.replace(".L", ".*", 1) for p in model.points()])
    assert (plain == watched).all()


def test_what_is_refused(model):
    with pytest.raises(rapt.Error, match="1.0 KiB|1,000|1000|KiB|kB"):
        model.run_with_cache(TEXT, "resid_post.*", limit=1000)
    with pytest.raises(rapt.UnknownName, match="resid_post"):
        model.run_with_cache(TEXT, "resid_pots.3")
    with pytest.raises(rapt.UsageError):
        model.run_with_cache(TEXT, "resid_post")  # of which layer?
    with pytest.raises(rapt.Error):
        model.run_with_cache([], "resid_post.0")
    with pytest.raises(rapt.UsageError, match="target"):
        model.run_with_cache(TEXT, "resid_post.0", target="x")
    with pytest.raises(rapt.Error, match="no head|head 99"):
        model.attention(TEXT).map(layer=0, head=99)
    with pytest.raises(rapt.Error):
        model.attention(TEXT).map(layer=99)
    with pytest.raises(rapt.Error, match="more than"):
        model.attention(TEXT).map(layer=0, limit=10)
