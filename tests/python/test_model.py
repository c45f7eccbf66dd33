# SPDX-License-Identifier: Apache-2.0
"""Models: what they are, numbers of texts, vectors, classes, translations, files, errors. Values are compared
with the command line's."""
import json
import math
import os
import pickle
import struct
import subprocess
import sys

import pytest

import rapt

TEXT = "To be, or not to be, that is the question"


def f32(path):
    """Numbers of a .npy file of f32, and its shape, without NumPy."""
    data = path.read_bytes()
    length = struct.unpack("<H", data[8:10])[0]
    head = eval(data[10:10 + length])
    assert head["descr"] == "<f4" and not head["fortran_order"]
    return data[10 + length:], head["shape"]


def raw(x):
    return bytes(memoryview(x).cast("B")) if not hasattr(x, "tobytes") else x.tobytes()


def shape(x):
    return memoryview(x).shape


def numbers(x):
    return memoryview(x).tolist()


def test_what_a_model_says_of_itself(model, cli):
    shown = {row["name"]: row for row in json.loads(cli("list", "--json"))}["default.gguf"]
    assert (model.name, model.family, model.format) == ("default", shown["family"], "gguf")
    assert (model.parameters, model.context) == (shown["parameters"], shown["context"])
    assert os.path.basename(model.path) == os.path.basename(shown["path"])
    assert model.writes and not model.translates and not model.classes and model.has_tokenizer
    assert model.recipe == rapt.Recipe("default")
    with pytest.raises(AttributeError):
        model.recipe.width = 3
    assert "default" in repr(model) and "<table" in model._repr_html_()
    listed = {m.name: m for m in rapt.models()}["default.gguf"]
    assert (listed.path, listed.parameters, listed.type) == (model.path, shown["parameters"], shown["type"])
    assert rapt.models().columns()["name"] == [m.name for m in rapt.models()]


def test_unknown_attributes_name_the_nearest(model):
    with pytest.raises(AttributeError, match="generate"):
        model.genrate


def test_logits_are_the_command_line_s(model, cli, tmp_path):
    ids = model.tokenizer.encode(TEXT, frame=True)
    cli("logits", "default", "--ids", " ".join(map(str, ids)), "--out", tmp_path / "x.npy", "-q")
    values, sizes = f32(tmp_path / "x.npy")
    x = model.logits(ids)
    assert shape(x) == sizes and raw(x) == values
    last = model.logits(ids, last_only=True)
    assert shape(last) == sizes[1:] and raw(last) == values[-4 * sizes[1]:]


def test_ids_may_come_in_any_form(model):
    np = pytest.importorskip("numpy")
    ids = [5, 6, 7]
    expected = raw(model.logits(ids))
    for form in (tuple(ids), np.array(ids), np.array(ids, dtype=np.int32), np.array(ids, dtype=np.uint8)):
        assert raw(model.logits(form)) == expected
    for wrong in ([5.5], ["a"], np.array([1.0, 2.0]), None, 5):
        with pytest.raises((rapt.UsageError, TypeError)):
            model.logits(wrong)
    with pytest.raises(rapt.UsageError, match="vocabulary"):
        model.logits([10**6])
    with pytest.raises(rapt.UsageError):
        model.logits([])


def test_score_is_log_softmax_of_logits(model):
    np = pytest.importorskip("numpy")
    s = model.score(TEXT, top=3)
    x = model.logits(s.ids).astype(np.float64)
    p = x - np.log(np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True)) - x.max(-1, keepdims=True)
    expected = [p[i, s.ids[i + 1]] for i in range(len(s.ids) - 1)]
    assert np.allclose(s.logprobs[1:], expected, atol=1e-5) and math.isnan(s.logprobs[0])
    assert s.total == pytest.approx(sum(expected), abs=1e-4)
    for i in range(1, len(s.ids)):
        assert [t[0] for t in s.top[i]] == list(np.argsort(-p[i - 1], kind="stable")[:3])
    assert s.columns()["ids"] == s.ids and "".join(s.tokens).endswith(TEXT)
    assert "<span" in s._repr_html_()


def test_perplexity_is_the_command_line_s(model, cli, tmp_path):
    text = (TEXT + ". ") * 12
    (tmp_path / "text").write_text(text)
    said = json.loads(cli("eval", "default", "--perplexity", tmp_path / "text", "-c", 64, "--json"))
    p = model.perplexity(text, window=64)
    assert (p.value, p.error, p.loss) == (said["perplexity"], said["error"], said["nll"])
    assert (p.windows, p.tokens) == (said["chunks"], said["tokens"]) and float(p) == p.value
    assert model.perplexity(text, window=64, chunks=1).windows == 1
    assert model.perplexity(text * 3) == model.perplexity(text * 3, window=model.context)
    with pytest.raises(rapt.Error, match="window"):
        model.perplexity("short", window=64)


def test_embeddings_are_the_command_line_s(model, cli, tmp_path):
    texts = ["a cat", "a kitten", "To be, or not"]
    cli("embed", "default", *texts, "--out", tmp_path / "e.npy", "-q")
    values, sizes = f32(tmp_path / "e.npy")
    e = model.embed(texts)
    assert shape(e) == sizes and raw(e) == values
    assert raw(model.embed("a cat")) == values[:4 * sizes[1]]
    cli("embed", "default", *texts, "--pool", "mean", "--normalize", "--out", tmp_path / "n.npy", "-q")
    assert raw(model.embed(texts, pool="mean", normalize=True)) == f32(tmp_path / "n.npy")[0]
    with pytest.raises(rapt.UnknownName, match="mean"):
        model.embed(texts, pool="men")


def test_toys_of_every_kind(in_toys, cli):
    bert = rapt.load("bert-base-uncased")
    words = bert.fill("to be or [MASK]", top=3)
    said = json.loads(cli("fill", "bert-base-uncased", "to be or [MASK]", "-k", 3, "--json"))
    assert len(words) == 1 and len(words[0]) == 3
    assert words[0][0].probability >= words[0][1].probability
    assert json.dumps(words[0][0].word) in json.dumps(said)
    with pytest.raises(rapt.UsageError, match="mask"):
        bert.fill("no mask")
    with pytest.raises(rapt.Error, match="encoder"):
        bert.generate("a")

    sentences = rapt.load("all-MiniLM-L6-v2")
    assert shape(sentences.embed(["a", "b"])) == (2, sentences.width)

    both = rapt.load("opus-mt-de-en")
    lines = ["Ein Hund läuft.", "", "Zwei Männer."]
    said = [json.loads(line) for line in cli("translate", "opus-mt-de-en", "--json", "--max-tokens", 12,
                                             "--in", "-", "-q", input="\n".join(lines) + "\n").splitlines()]
    out = both.translate(lines, max_tokens=12)
    assert [t.text for t in out] == [row["text"] for row in said]
    assert [t.ids for t in out if t.answers] == [row["answers"][0]["ids"] for row in said if row["answers"]]
    assert str(out[0]) == out[0].text and out[1].answers == []
    one = both.translate(lines[0], max_tokens=12, beam=4, alignment=True)
    assert one.ids == out[0].ids
    look = one.alignment
    assert shape(look.weights) == (len(look.target), len(look.source))
    assert len(both.translate(lines, n_best=2, max_tokens=5)[0].answers) == 2
    # the same words through the engine that all threads share
    greedy = both.translate(lines[0], beams=1, max_tokens=12)
    assert both.generate(lines[0], beams=1, max_tokens=12).ids == greedy.ids
    with pytest.raises(rapt.UsageError, match="encoder"):
        rapt.load("default").translate("a")


def test_a_classifier(in_toys, toys, cli):
    path = toys.made / "language" / "model"
    m = rapt.load(path)
    assert set(m.classes) == {"german", "english"}
    got = m.classify(["ein Hund", "a dog"])
    said = [json.loads(line) for line in
            cli("classify", path, "ein Hund", "a dog", "--json", "-q").splitlines()]
    for p, row in zip(got, said):
        assert list(p.values()) == sorted(p.values(), reverse=True) and sum(p.values()) == pytest.approx(1)
        assert next(iter(p)) in json.dumps(row)
    assert m.classify("ein Hund") == got[0]
    with pytest.raises(rapt.Error, match="encoder"):
        m.generate("a")
    with pytest.raises(rapt.Error, match="classif"):
        rapt.load("default").classify("a")


def test_pictures_by_array():
    np = pytest.importorskip("numpy")
    m = rapt.Model("vit", width=32, layers=2, heads=2, ffn=48)
    assert m.reads_pictures
    side = m.recipe["embed.patches"]["image"] if "image" in m.recipe["embed.patches"] else 224
    planes = np.linspace(-1, 1, 3 * side * side, dtype=np.float32).reshape(3, side, side)
    e = m.embed([planes, planes[:, ::-1].copy()])
    assert e.shape[0] == 2 and raw(m.embed(planes)) == raw(e[0])
    assert not (e[0] == e[1]).all()
    with pytest.raises(rapt.UsageError, match="uint8"):
        m.embed([planes.astype(np.float64)])
    with pytest.raises(rapt.UsageError, match="uint8"):
        m.embed([planes[:, ::-1]])
    with pytest.raises(rapt.UsageError, match="prepared"):
        m.embed("no-such-picture.png")


def test_weights_and_other_handles(model):
    assert len(model.weights) > 10
    name = next(iter(model.weights))
    assert name in model.weights and model.weights.raw(name)
    with pytest.raises(rapt.UnknownName, match=name.split(".")[0]):
        model.weights[name + "x"]
    with pytest.raises(KeyError):
        model.weights["nothing"]


def test_saved_models_compute_the_same(model, tmp_path):
    assert model.save(tmp_path / "again.gguf") == []
    again = rapt.load(tmp_path / "again.gguf")
    assert raw(again.logits(TEXT)) == raw(model.logits(TEXT))
    with pytest.raises(rapt.Error, match="replace=True"):
        model.save(tmp_path / "again.gguf")
    model.save(tmp_path / "again.gguf", replace=True)
    with pytest.raises(rapt.UnknownName, match="q8_0"):
        model.quantize("q8_00", tmp_path / "x.gguf")

    made = rapt.Model("llama3", seed=3, width=64, layers=2, heads=2, kv_heads=1, ffn=96, vocab=100,
                      context=64)
    made.save(tmp_path / "made")
    opened = rapt.load(tmp_path / "made")
    assert raw(opened.logits([1, 2, 3])) == raw(made.logits([1, 2, 3]))
    assert raw(rapt.Model(made.recipe, seed=3).logits([1, 2, 3])) == raw(made.logits([1, 2, 3]))
    assert raw(rapt.Model(made.recipe, seed=4).logits([1, 2, 3])) != raw(made.logits([1, 2, 3]))


def test_convert_check_and_show(model, cli, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    model.save(tmp_path / "folder")
    rapt.convert(tmp_path / "folder", tmp_path / "f.gguf", type="f16")
    cli("convert", tmp_path / "folder", tmp_path / "g.gguf", "--type", "f16", "-q")
    assert (tmp_path / "f.gguf").read_bytes() == (tmp_path / "g.gguf").read_bytes()
    assert rapt.check(model.path) == cli("check", model.path).splitlines()[:-1]
    (tmp_path / "f.gguf").write_bytes((tmp_path / "f.gguf").read_bytes()[:5000])
    with pytest.raises(rapt.Error):
        rapt.check(tmp_path / "f.gguf")
    assert str(rapt.show("llama3")).rstrip() == cli("show", "llama3").rstrip()
    assert "llama3" in rapt.presets() and rapt.devices()[0].threads >= 1


def test_exact_weights_devices_and_streaming(model):
    exact = rapt.load("default", exact=True)
    assert exact.bytes > model.bytes
    f64 = rapt.load("default", device=rapt.Device(isa="f64", threads=1))
    assert f64.device.isa == "f64" and f64.device.threads == 1
    a, b = exact.logits([1, 2, 3], last_only=True), f64.logits([1, 2, 3], last_only=True)
    assert max(abs(x - y) for x, y in zip(numbers(a), numbers(b))) < 1e-3
    assert raw(rapt.load("default", threads=1).logits(TEXT)) == raw(model.logits(TEXT))
    endless = rapt.load("default", streaming=(4, 32))
    a = endless.generate("To be", max_tokens=60, temperature=0, ignore_eos=True)
    assert len(a.ids) == 60 and a.times.dropped_tokens == 0
    with pytest.raises(rapt.UsageError, match="threads"):
        rapt.load("default", threads=1, device=rapt.Device())
    with pytest.raises(rapt.Error, match="nothing"):
        rapt.Device(isa="nothing")
    with pytest.raises(rapt.UsageError, match="f32, f16"):
        rapt.load("default", cache="q3").generate("a")


def test_errors_are_python_s_own(tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        rapt.load(tmp_path / "nothing.gguf")
    assert isinstance(error.value, rapt.NotFound) and "nothing.gguf" in str(error.value)
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + bytes(60))
    with pytest.raises(rapt.Error) as error:
        rapt.load(tmp_path / "broken.gguf")
    assert not isinstance(error.value, ValueError) and isinstance(error.value, RuntimeError)
    with pytest.raises(ValueError):
        rapt.load("default").generate("a", max_tokens=-5)
    with pytest.raises(KeyError, match="decoder.0.self.q.weight"):
        rapt.load("default").weights["no such weight"]
    with pytest.raises(rapt.UnknownName, match="temperature"):
        rapt.load("default").generate("a", temprature=0)
    with pytest.raises(rapt.UsageError, match="no number"):
        rapt.load("default").generate("a", temperature="hot")


WRONG = [  # what is asked for, and what the refusal must say
    (lambda m: rapt.load("default", contxt=3), "did you mean 'context'"),
    (lambda m: rapt.serve("default", prt=3), "did you mean 'port'"),
    (lambda m: rapt.load("default", context=-1), "context: -1"),
    (lambda m: rapt.load("default", context="a"), "context: 'a'"),
    (lambda m: rapt.load("default", streaming=3), "keep, window"),
    (lambda m: rapt.load("default", streaming=(4,)), "keep, window"),
    (lambda m: m.generate("a", stop=5), "stop: a text"),
    (lambda m: m.generate("a", on_token=5), "on_token: a function"),
    (lambda m: m.generate("a", hooks=5), "hooks is a dict"),
    (lambda m: m.generate("a", max_new_tokens=5), "did you mean 'max_tokens'"),
    (lambda m: m.embed(5), "embed: a list of texts"),
    (lambda m: m.batch(5), "batch: a list of texts"),
    (lambda m: m.perplexity(5), "perplexity: a text is wanted, not 5"),
    (lambda m: m.fill(5), "fill: a text is wanted"),
    (lambda m: m.tokenizer.encode(b"a"), "encode: a text is wanted"),
    (lambda m: m.tokenizer.decode("abc"), "token ids are whole numbers"),
    (lambda m: rapt.serve("default", port="x"), "port: 'x'"),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_wrong_arguments_are_told_in_words(model, number):
    call, words = WRONG[number]
    with pytest.raises(rapt.UsageError) as error:
        call(model)
    assert words in str(error.value)


def test_a_place_that_cannot_be_written_is_our_error(model):
    with pytest.raises(rapt.Error, match="/proc/x"):
        model.save("/proc/x")


def test_models_in_memory_are_not_pickled():
    made = rapt.Model("gpt2", width=32, layers=1, heads=2, vocab=64, context=32)
    with pytest.raises(rapt.UsageError, match="save it first"):
        pickle.dumps(made)
    again = pickle.loads(pickle.dumps(rapt.load("default", context=64)))
    assert again.context == 64 and again.name == "default"


def test_nothing_is_written_to_the_descriptors(tmp_path):
    code = """
import os, rapt
m = rapt.load("default")
m.generate("a", max_tokens=3, temperature=0); m.score("a b c"); m.embed(["a"])
m.perplexity("a b c " * 30, window=16)
m.save(sys.argv[1] + "/x.gguf"); rapt.check("default"); rapt.Tokenizer.train(["abc abd"], kind="characters")
with rapt.serve(m) as s: pass
try: rapt.load("nothing at all")
except rapt.NotFound: pass
os.write(1, b"end")
"""
    done = subprocess.run([sys.executable, "-c", "import sys" + code, str(tmp_path)], capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"end", b"")


def test_progress_is_told(model, tmp_path):
    told = []
    model.save(tmp_path / "x.gguf", progress=lambda *x: told.append(x))
    model.batch(["a"] * 3, max_tokens=2, progress=lambda *x: told.append(x))
    assert told[-1] == ("answers", 3, 3)
    assert any(what == "writing" for what, _, _ in told)
    with pytest.raises(ZeroDivisionError):
        rapt.load("default", progress=lambda *x: 1 / 0)


def test_serve(model):
    import urllib.error
    import urllib.request
    heard = []
    with rapt.serve({"small": model, "gated": "default-gated"}, log=heard.append) as server:
        def ask(path, body=None):
            data = None if body is None else json.dumps(body).encode()
            request = urllib.request.Request(server.url + path, data, {"Content-Type": "application/json"})
            return json.loads(urllib.request.urlopen(request, timeout=60).read())
        assert {m["id"] for m in ask("/v1/models")["data"]} == {"small", "gated"}
        said = ask("/v1/completions", {"model": "small", "prompt": "ROMEO:", "max_tokens": 8,
                                       "temperature": 0})
        expected = rapt.load("default", cache="f16").generate("ROMEO:", max_tokens=8, temperature=0)
        assert said["choices"][0]["text"] == str(expected)
        assert said["usage"]["completion_tokens"] == expected.openai()["usage"]["completion_tokens"]
        messages = [{"role": "user", "content": "ROMEO:"}]
        short = {"model": "small", "temperature": 0}
        for told in (  # every vendor's form is there, with the same words
                ask("/v1/chat/completions", {**short, "messages": messages, "max_tokens": 8})
                ["choices"][0]["message"]["content"],
                ask("/v1/messages", {**short, "messages": messages, "max_tokens": 8})["content"][0]["text"],
                ask("/v1/responses", {**short, "input": "ROMEO:", "max_output_tokens": 8})
                ["output"][0]["content"][0]["text"],
                ask("/api/generate", {"model": "small", "prompt": "ROMEO:", "stream": False,
                                      "options": {"num_predict": 8, "temperature": 0}})["response"]):
            assert told == str(expected)
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": ["yes", "no"]}}}
        told = ask("/v1/chat/completions", {**short, "messages": messages, "response_format": form})
        assert told["choices"][0]["message"]["content"] in ('"yes"', '"no"')
        looked = ask("/v1/look", {"model": "small", "ids": expected.prompt, "want": ["tokens"]})
        assert looked["tokens"]["ids"] == expected.prompt
        assert ask("/v1/monitor?once=1")["models"]
        url = server.url
    assert server.closed and any(line.get("model") == "small" for line in heard)
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url, timeout=5)
    with pytest.raises(rapt.UsageError, match="key"):
        rapt.serve(model, host="0.0.0.0")
