# SPDX-License-Identifier: Apache-2.0
"""Every call that returns arrays gives the numbers of the library, to the last bit: those that the command
line writes into files or says as JSON (which has every digit). What other files compare so already: logits
and embeddings of texts (test_model.py), figures of heads, maps and views (test_inside.py), attribution and
patching (test_attribution.py), steps by hand (test_weights.py), metrics and own data (test_train.py,
test_data.py)."""
import json
import struct
import urllib.request

import pytest

np = pytest.importorskip("numpy")

import rapt
from training import recipe

TEXT = "To be, or not to be, that is the question"


def exactly(ours, theirs, where=""):
    """f32 numbers, the others as a program prints them or as their bytes."""
    ours = np.asarray(ours)
    theirs = np.asarray(theirs, dtype=ours.dtype)
    assert ours.shape == theirs.shape, where
    assert ours.tobytes() == theirs.tobytes(), where


def tensors_of(path):
    """A .safetensors file of f32: {name: array}."""
    data = path.read_bytes()
    length, = struct.unpack("<Q", data[:8])
    head, body = json.loads(data[8:8 + length]), data[8 + length:]
    head.pop("__metadata__", None)
    assert all(t["dtype"] == "F32" for t in head.values())
    return {name: np.frombuffer(body[slice(*t["data_offsets"])], "<f4").reshape(t["shape"])
            for name, t in head.items()}


@pytest.mark.parametrize("name", ["default", "default-gated"])
def test_every_point(cli, tmp_path, name):
    m = rapt.load(name)
    names = [p.replace(".L", ".*", 1) for p in m.points()]
    cli("inspect", "tensors", name, TEXT, "--points", ",".join(names), "--out", tmp_path / "t.safetensors",
        "-q")
    theirs = tensors_of(tmp_path / "t.safetensors")
    logits, cache = m.run_with_cache(TEXT, names)
    assert set(cache) == set(theirs) and len(cache) > 60
    for point, x in cache.items():
        exactly(x, theirs[point], point)
    exactly(logits, theirs["logits"])
    seen = {}
    hooked = m.run_with_hooks(TEXT, watch={n: lambda x, at: seen.__setitem__(at.name, x) for n in names})
    exactly(hooked, theirs["logits"])
    assert set(seen) == set(theirs)
    for point, x in seen.items():
        exactly(x, theirs[point], point)


def test_edited_passes(cli, model, tmp_path):
    for number, edit in enumerate(("L3H1:zero", "resid_post.2@3:scale=0.5", "attn_weights.4@h2:zero")):
        file = tmp_path / f"{number}.safetensors"
        cli("inspect", "tensors", "default", TEXT, "--edit", edit, "--points", "logits,resid_post.5", "--out",
            file, "-q")
        theirs = tensors_of(file)
        logits, cache = model.edited(edit).run_with_cache(TEXT, ["resid_post.5"])
        exactly(logits, theirs["logits"], edit)
        exactly(cache["resid_post.5"], theirs["resid_post.5"], edit)
        exactly(model.edited(edit).logits(cache.ids), theirs["logits"], edit)


def test_gradients_at_points(cli, tmp_path):
    names = ["resid_post.*", "z.2", "mlp_out.4"]
    cli("inspect", "tensors", "default", TEXT, "--points", ",".join(names), "--gradient", "loss", "--out",
        tmp_path / "g.safetensors", "-q")
    theirs = tensors_of(tmp_path / "g.safetensors")
    _, cache = rapt.load("default", exact=True).gradients_at(TEXT, names)
    assert set(cache) == set(theirs) and len(cache) == 8
    for point, x in cache.items():
        exactly(x, theirs[point], point)


def test_log_probabilities(cli, model):
    said = json.loads(cli("run", "default", TEXT, "--raw", "--json", "-q", "-n", 20, "--seed", 5,
                          "--logprobs", 4))
    row = said["samples"][0]["logprobs"]
    a = model.generate(TEXT, max_tokens=20, seed=5, logprobs=4)
    exactly(a.logprobs, [t["logprob"] for t in row])
    exactly(np.array([[p for _, p, _ in top] for top in a.top], np.float32),
            [[t["logprob"] for t in one["top"]] for one in row])
    s = model.stream(TEXT, max_tokens=20, seed=5, logprobs=4)
    exactly(np.array([p.logprob for p in s if p.id is not None], np.float32), a.logprobs)
    exactly(model.batch([TEXT] * 3, max_tokens=20, seed=5, logprobs=4)[1].logprobs, a.logprobs)
    # of a text: as the server echoes it
    with rapt.serve(model, cache="f32") as server:
        body = json.dumps({"prompt": TEXT, "max_tokens": 0, "echo": True, "logprobs": 0}).encode()
        asked = urllib.request.Request(server.url + "/v1/completions", body,
                                       {"Content-Type": "application/json"})
        echoed = json.loads(urllib.request.urlopen(asked, timeout=60).read())["choices"][0]["logprobs"]
    exactly(model.score(TEXT).logprobs[1:], [p for p in echoed["token_logprobs"] if p is not None])


def test_statistics_of_rows(model):
    """att.stats are what the kernel says: the same whoever else asks, and sums of them the figures of heads,
    which are the program's (test_inside.py)."""
    att = model.attention(TEXT)
    stats, again = att.stats, model.attention(att.ids).stats
    for name, x in stats.items():
        exactly(x, again[name], name)
    layers, heads, T = stats["first"].shape
    table = {name: np.asarray(att.heads[name]).reshape(layers, heads) for name in ("entropy", "max_logit")}
    exactly(stats["max_logit"].max(-1), table["max_logit"].astype(np.float32))
    assert np.abs(stats["entropy"].astype(np.float64).mean(-1) - table["entropy"]).max() < 1e-6


def test_words_for_masks_classes_and_alignments(in_toys, toys, cli):
    got = rapt.load("bert-base-uncased").fill("to be or [MASK]", top=4)
    said = json.loads(cli("fill", "bert-base-uncased", "to be or [MASK]", "-k", 4, "--json"))
    masks = said.get("masks") or said["guesses"]
    rows = masks[0].get("guesses", masks[0]) if isinstance(masks[0], dict) else masks[0]
    assert [g.probability for g in got[0]] == [row["probability"] for row in rows]
    path = toys.made / "language" / "model"
    said = [json.loads(line) for line in
            cli("classify", path, "ein Hund", "a dog", "--json", "-q").splitlines()]
    for row, line in zip(rapt.load(path).classify(["ein Hund", "a dog"]), said):
        told = {c["label"]: c["probability"] for c in line["classes"]}
        assert row == told
    m = rapt.load("opus-mt-de-en")
    line = json.loads(cli("translate", "opus-mt-de-en", "Ein Hund läuft.", "--max-tokens", 8, "--json",
                          "-q"))
    t = m.translate("Ein Hund läuft.", max_tokens=8)
    assert (t.ids, t.score) == (line["answers"][0]["ids"], line["answers"][0]["score"])


def test_pictures(cli, tmp_path):
    """A file, its bytes as an array, and what the model makes of them: one vector."""
    plt = pytest.importorskip("matplotlib.image")
    made = rapt.Model("vit", width=32, layers=2, heads=2, ffn=48)
    made.save(tmp_path / "vit")
    (tmp_path / "vit/preprocessor_config.json").write_text(json.dumps(
        {"do_resize": True, "size": {"height": 224, "width": 224}, "resample": 2, "do_rescale": True,
         "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
         "image_processor_type": "ViTImageProcessor"}))
    y, x = np.mgrid[0:60, 0:80]
    picture = np.stack([(3 * x) % 256, (4 * y) % 256, (x * y) % 256], -1).astype(np.uint8)
    plt.imsave(tmp_path / "a.png", picture)
    m = rapt.load(tmp_path / "vit")
    cli("embed", tmp_path / "vit", "--image", tmp_path / "a.png", "--out", tmp_path / "e.npy", "-q")
    theirs = np.load(tmp_path / "e.npy")
    exactly(m.embed([tmp_path / "a.png"]), theirs)
    exactly(m.embed([picture, picture]), np.concatenate([theirs, theirs]))
    exactly(m.embed(picture), theirs[0])


def test_weights_are_those_of_the_file(tmp_path):
    m = rapt.Model(recipe(vocab=30), seed=2)
    m.save(tmp_path / "model")
    file = tensors_of(tmp_path / "model" / "model.safetensors")
    values = sorted(x.tobytes() for x in file.values())
    ours = sorted(m.weights[name].tobytes() for name in m.weights)
    assert ours == values and len(ours) > 10
