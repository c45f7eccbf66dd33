# SPDX-License-Identifier: Apache-2.0
"""Recipes as values: what the command line shows, in Python."""
import copy
import json
import pickle

import pytest

import rapt

SMALL = dict(width=64, layers=3, heads=4, kv_heads=2, ffn=96, vocab=300)


def test_a_preset_with_changes_is_what_the_command_line_makes(cli, tmp_path):
    r = rapt.Recipe("llama3", **SMALL)
    (tmp_path / "r.json").write_text(r.json())
    assert rapt.Recipe(tmp_path / "r.json") == r
    assert json.loads(cli("show", tmp_path / "r.json", "--json")) == json.loads(r.json())
    assert cli("show", tmp_path / "r.json", "--all") == r.json(all=True)
    assert cli("show", tmp_path / "r.json") == str(r.show()) == repr(r.show())
    assert cli("show", tmp_path / "r.json", "--svg", "-") == r.svg()
    assert cli("show", tmp_path / "r.json", "--latex") == r.latex()
    presets = {row["name"]: row for row in json.loads(cli("show", "--json"))}
    assert rapt.presets() == {name: row["note"] for name, row in presets.items()}
    for name, row in presets.items():
        assert rapt.Recipe(name).parameters == row["parameters"], name
        assert rapt.Recipe(rapt.Recipe(name).json(all=True)) == rapt.Recipe(name)


def test_fields_by_path():
    r = rapt.Recipe("llama3", SMALL)
    assert (r["width"], r["decoder.layers"], r["decoder.kinds.L.parts[0].self.kv_heads"]) == (64, 3, 2)
    assert r["decoder"]["layers"] == 3 and "encoder" in r and r["encoder"] is None
    assert "decoder.kinds.L.parts[1].ffn" in r and "decoder.kinds.L.parts[2]" not in r and "layers" not in r
    assert dict(r) == json.loads(r.json(all=True)) and len(r) == len(dict(r)) and list(r) == list(dict(r))
    r["decoder"]["layers"] = 7  # of a copy
    assert r["decoder.layers"] == 3
    with pytest.raises(rapt.UnknownName, match="did you mean 'layers'"):
        r["decoder.layer"]
    with pytest.raises(KeyError):
        r[""]
    with pytest.raises(TypeError):
        r[0]
    with pytest.raises(TypeError):
        r["width"] = 3
    with pytest.raises(AttributeError, match="replace"):
        r.width = 3


def test_dotted_keys_and_structs():
    gate = [{"at": "sdpa", "act": "sigmoid"}]
    path = "decoder.kinds.L.parts[0].self.gate"
    a = rapt.Recipe("llama3", {path: gate}, **SMALL)
    b = rapt.Recipe("llama3", **SMALL, **{path: gate})
    c = rapt.Recipe("llama3", **SMALL).replace(**{path: gate})
    assert a == b == c and len(a[path]) == 1
    plain = rapt.Recipe("llama3", **SMALL)
    assert [d[0] for d in plain.diff(a)] == [path + "[0]"] and a.diff(plain)[0][2] == "absent"
    assert plain.diff("gpt2")  # what a recipe is made of will do


def test_diff_is_that_of_the_command_line(cli):
    said = json.loads(cli("show", "--diff", "gpt2", "llama2", "--json"))
    assert [(d["path"], d["a"], d["b"]) for d in said] == rapt.Recipe("gpt2").diff(rapt.Recipe("llama2"))


def test_values():
    a, b = rapt.Recipe("gpt2", layers=2), rapt.Recipe("gpt2", layers=2)
    assert a == b and hash(a) == hash(b) and a != rapt.Recipe("gpt2", layers=3) and a != "gpt2"
    assert pickle.loads(pickle.dumps(a)) == a and copy.deepcopy(a) == a and copy.copy(a) == a
    assert rapt.Recipe(dict(a)) == a and rapt.Recipe(a.json()) == a and rapt.Recipe(a) == a
    assert "gpt2" in repr(a) and f"{a.parameters:,}" in repr(a) and "<svg" in a._repr_html_()
    assert a.sizes()["total"] == a.parameters


def test_numbers_of_numpy():
    np = pytest.importorskip("numpy")
    assert rapt.Recipe("gpt2", layers=np.int64(2), dropout=np.float64(0.5))["decoder.layers"] == 2


def test_what_cannot_be():
    with pytest.raises(rapt.UnknownName, match="did you mean 'layers'") as e:
        rapt.Recipe("gpt2", layer=2)
    assert "--set" not in str(e.value)
    with pytest.raises(rapt.UnknownName, match="heads"):
        rapt.Recipe("gpt2", **{"decoder.kinds.L.parts[0].self.head": 2})
    with pytest.raises(rapt.UsageError, match="heads") as e:
        rapt.Recipe("gpt2", heads=0)
    assert isinstance(e.value, ValueError)
    with pytest.raises(rapt.UsageError):
        rapt.Recipe("gpt2", width=65, heads=4)
    with pytest.raises(FileNotFoundError, match="gpt2"):
        rapt.Recipe("gtp2")
    with pytest.raises(FileNotFoundError):
        rapt.Recipe("no/such.json")
    with pytest.raises(rapt.Error):
        rapt.Recipe("{")
    for wrong in (3, None, [1]):
        with pytest.raises(TypeError):
            rapt.Recipe(wrong)
    with pytest.raises(TypeError):
        rapt.Recipe("gpt2", layers=object())


def test_of_a_model(model):
    assert rapt.Recipe("default")["vocab"] == model.recipe["vocab"]
