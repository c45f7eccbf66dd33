# SPDX-License-Identifier: Apache-2.0
"""Models in others' processes and others' packages beside them: gunicorn's workers, those of a torch
DataLoader, tqdm's bars, pydantic's classes. Each is skipped where the package is not there."""
import json
import signal
import subprocess
import sys
import textwrap
import urllib.request

import pytest

import rapt


def test_gunicorn_with_preload(tmp_path):
    """The model is opened and used before the workers are forked; their answers have the same bits."""
    pytest.importorskip("gunicorn")
    (tmp_path / "app.py").write_text(textwrap.dedent("""
        import json, os
        import rapt
        m = rapt.load("default")
        used = m.generate("ROMEO:", max_tokens=8, temperature=0)
        def app(environ, start):
            a = m.generate("The king", max_tokens=16, seed=5)
            start("200 OK", [("Content-Type", "application/json")])
            return [json.dumps({"process": os.getpid(), "hash": a.hash, "parent": os.getppid()}).encode()]
        """))
    server = subprocess.Popen([sys.executable, "-m", "gunicorn", "--preload", "--workers", "2", "--bind",
                               "127.0.0.1:0", "app:app"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        url = None
        for line in server.stderr:
            if "Listening at: " in line:
                url = line.split("Listening at: ")[1].split()[0]
                break
        assert url, "it ended without listening"
        said = [json.loads(urllib.request.urlopen(url, timeout=60).read()) for _ in range(12)]
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)
    assert server.returncode == 0
    expected = rapt.load("default").generate("The king", max_tokens=16, seed=5).hash
    assert {s["hash"] for s in said} == {expected}
    assert {s["parent"] for s in said} == {server.pid} and server.pid not in {s["process"] for s in said}


def test_workers_of_a_torch_dataloader(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "main.py").write_text(textwrap.dedent("""
        import rapt, torch
        from torch.utils.data import DataLoader, Dataset
        class Texts(Dataset):
            def __init__(self, model): self.model = model
            def __len__(self): return 8
            def __getitem__(self, i): return torch.from_dlpack(self.model.embed(f"text {i}"))
        if __name__ == "__main__":
            m = rapt.load("default")
            alone = torch.stack([torch.from_dlpack(m.embed(f"text {i}")).clone() for i in range(8)])
            for way in ("fork", "spawn", "forkserver"):
                got = torch.cat(list(DataLoader(Texts(m), 2, num_workers=2, multiprocessing_context=way)))
                assert torch.equal(got, alone), way
            print("done")
        """))
    done = subprocess.run([sys.executable, "main.py"], cwd=tmp_path, capture_output=True, text=True,
                          timeout=300)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_torch_takes_arrays_without_a_copy(model):
    torch = pytest.importorskip("torch")
    x = model.logits("To be")
    t = torch.from_dlpack(x)
    assert t.data_ptr() == x.__array_interface__["data"][0] and t.shape == x.shape
    assert (model.logits(torch.tensor([5, 6, 7])) == model.logits([5, 6, 7])).all()


def test_tqdm_shows_a_bar_where_it_is_asked_for(tmp_path):
    pytest.importorskip("tqdm")
    code = ("import rapt, sys\n"
            "m = rapt.load('default', progress=%s)\n"
            "m.batch(['a'] * 3, max_tokens=2, progress=%s)\n"
            "print('tqdm' in sys.modules)")
    for asked, shown in (("True", True), ("False", False), ("None", False)):
        done = subprocess.run([sys.executable, "-c", code % (asked, asked)], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, f"{shown}\n"), done.stderr
        assert ("answers" in done.stderr) == ("loading" in done.stderr) == shown


def test_pydantic_s_classes_are_schemas(model):
    pydantic = pytest.importorskip("pydantic")

    class Colour(pydantic.BaseModel):
        name: str = pydantic.Field(pattern="^(red|blue)$")

    class Person(pydantic.BaseModel):
        age: int = pydantic.Field(ge=0, le=99)
        mood: str = pydantic.Field(pattern="^(glad|sad)$")
        colours: list[Colour] = pydantic.Field(max_length=2)
        properties: Colour | None

    for seed in range(3):
        person = Person.model_validate_json(str(model.generate("ROMEO:", schema=Person, seed=seed)))
        assert 0 <= person.age <= 99 and person.mood in ("glad", "sad") and len(person.colours) <= 2
        assert json.loads(person.model_dump_json()) == json.loads(str(model.generate("ROMEO:", schema=Person,
                                                                                     seed=seed)))


def test_what_is_said_goes_to_the_log(model, tmp_path, caplog):
    caplog.set_level("INFO", logger="rapt")
    model.save(tmp_path / "a.gguf", type="q4_0")
    rapt.convert(tmp_path / "a.gguf", tmp_path / "b.gguf", type="q8_0")
    assert any(r.levelname == "INFO" and "quantized before" in r.getMessage() for r in caplog.records)
    caplog.clear()
    model.embed(["To be, or not to be. " * 200])
    assert [r.levelname for r in caplog.records] == ["WARNING"] and "longer" in caplog.text
