# SPDX-License-Identifier: Apache-2.0
"""Experiments: those of the command line, and one's own."""
import json
import pickle

import pytest

import rapt
import rapt.lab


def test_the_list_is_that_of_the_command_line(cli):
    said = json.loads(cli("lab", "--json"))
    ours = [e for e in rapt.lab.experiments() if not e.of_model]
    assert [(e["name"], e["question"], e["claim"], e["minutes"]) for e in said] == \
        [(e.name, e.question, e.claim, e.minutes) for e in ours]
    assert {e.name for e in rapt.lab.experiments() if e.of_model} >= {"massive", "sink", "quant"}
    assert rapt.lab.experiments("zh")[0].question != ours[0].question


@pytest.mark.parametrize("name", ["key-bias", "softmax", "query-bias"])
def test_findings_are_those_of_the_command_line(cli, name):
    said = json.loads(cli("lab", name, "--json", "--seed", 2))["facts"]
    r = rapt.lab.run(name, seed=2)
    assert [f["measured"] for f in said["findings"]] == [f.measured for f in r.findings]
    assert [f["what"] for f in said["findings"]] == r.findings.columns()["what"]
    assert [f["holds"] for f in said["findings"]] == [f.holds for f in r.findings]
    assert r.verdict == said["verdict"] and r.seed == 2 and r.seconds > 0
    assert json.loads(r.json())["facts"]["findings"] == said["findings"]
    assert r.verdict in " ".join(r.text().split()) and r.markdown().startswith("#")
    assert "<!doctype html>" in r.report().html.lower()
    assert r.findings_in("zh")[0].what != r.findings[0].what
    again = pickle.loads(pickle.dumps(r))
    assert again == r == rapt.lab.run(name, seed=2) and again.text() == r.text()
    assert r.findings[:1].columns()["holds"] == [r.findings[0].holds]


def test_an_experiment_that_trains_with_less_effort():
    told = []
    r = rapt.lab.run("sink", effort=0.02, progress=lambda *x: told.append(x))
    assert r.effort == 0.02 and len(r.findings) > 3 and told and all(len(x) == 3 for x in told)


def test_asked_of_a_model():
    r = rapt.lab.run("gate", model="default-gated")
    assert r.findings and r.name == "gate"
    with pytest.raises(rapt.UnknownName, match="not asked of a model"):
        rapt.lab.run("softmax", model="default")
    with pytest.raises(rapt.UsageError, match="save it first"):
        rapt.lab.run("gate", model=rapt.Model("gpt2", width=16, layers=1, heads=2, vocab=50))


def test_own_experiments():
    @rapt.lab.experiment(name="mine", question="Is it so?", claim="It is.")
    def mine(lab):
        lab.words("A paragraph.")
        lab.table({"x": [1, 2], "name": ["a", "b"]}, "A table")
        lab.chart({"line": ([1, 2, 3], [1.0, float("nan"), 9.0])}, "A chart", x="x", y="y")
        lab.progress("half", 1, 2)
        even = lab.seed % 2 == 0
        return [rapt.lab.Finding("seed", lab.seed, "even", even, unit="nats", paper="nobody 2026"),
                rapt.lab.Finding("nothing", float("nan"), every_seed=False, holds=False)]
    told = []
    r = rapt.lab.run("mine", seed=3, progress=lambda *x: told.append(x))
    assert told == [("half", 1, 2)]
    assert [f.holds for f in r.findings] == [False, False] and not r.holds and r.findings[0].measured == 3
    assert r.findings[1].measured != r.findings[1].measured
    text = r.text()
    for words in ("Is it so?", "It is.", "A paragraph.", "A table", "0 of 2 hold", "nobody 2026", "even"):
        assert words in text
    assert "<svg" in r.report().html
    assert rapt.lab.run("mine", seed=2).findings[0].holds
    assert [e.question for e in rapt.lab.experiments() if e.name == "mine"] == ["Is it so?"]
    assert mine.__name__ == "mine" and pickle.loads(pickle.dumps(r)) == r

    rapt.lab.experiment(name="mine", question="Again?")(
        lambda lab: (rapt.lab.Finding("one", 1), "A verdict of its own."))
    assert rapt.lab.run("mine").verdict == "A verdict of its own."


def test_what_cannot_be():
    with pytest.raises(rapt.UnknownName, match="did you mean 'softmax'"):
        rapt.lab.run("softmaks")
    with pytest.raises(rapt.UsageError, match="effort"):
        rapt.lab.run("softmax", effort=2)
    with pytest.raises(rapt.UsageError, match="already"):
        rapt.lab.experiment(name="softmax", question="?")
    with pytest.raises(TypeError):
        rapt.lab.run(3)

    @rapt.lab.experiment(name="broken", question="?")
    def broken(lab):
        raise KeyError("mine")
    with pytest.raises(KeyError, match="mine"):
        rapt.lab.run("broken")
    rapt.lab.experiment(name="broken", question="?")(lambda lab: [1])
    with pytest.raises(rapt.UsageError, match="Finding"):
        rapt.lab.run("broken")


def test_what_the_listener_raises_ends_it():
    def stop(what, done, of):
        raise InterruptedError("enough")
    with pytest.raises(InterruptedError):
        rapt.lab.run("sink", effort=0.5, progress=stop)
    assert rapt.lab.run("softmax").holds
