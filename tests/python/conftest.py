# SPDX-License-Identifier: Apache-2.0
"""What the tests of the Python package share: models, the command line beside it, a folder of toys.

They run with the installed package (scripts/test-python), or with any `rapt` on PYTHONPATH:
  PYTHONPATH=… python -m pytest tests/python [-k NAME]
RAPT_PROGRAM names the program to compare with; without it, it is the one inside the package.
"""
import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(1, str(SOURCE / "tests"))
sys.dont_write_bytecode = True
os.environ.setdefault("RAPT_THREADS", "2")
# What a script begins in the background ignores Ctrl-C, and so does Python there; tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def program():
    """The words that a command line begins with."""
    named = os.environ.get("RAPT_PROGRAM")
    return [named] if named and os.access(named, os.X_OK) else [sys.executable, "-m", "rapt"]


class Command:
    """The command line of the same library: what Python gives is what it gives."""

    @staticmethod
    def env():
        """Text is as wide as in a pipe, whatever the terminal."""
        return {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}

    def __call__(self, *words, input=None, binary=False):
        done = subprocess.run([*program(), *map(str, words)], capture_output=True, env=self.env(),
                              input=input.encode() if input is not None else None,
                              stdin=None if input is not None else subprocess.DEVNULL)
        assert done.returncode == 0, f"rapt {' '.join(map(str, words))}: {done.stderr.decode()[-2000:]}"
        return done.stdout if binary else done.stdout.decode()


@pytest.fixture(scope="session")
def cli():
    """cli("run", "default", "Hello", "-q"): what it prints."""
    return Command()


@pytest.fixture(scope="session")
def model():
    """The embedded model. It is shared: a test that changes a model opens its own."""
    import rapt
    return rapt.load("default")


@pytest.fixture(scope="session")
def gated():
    import rapt
    return rapt.load("default-gated")


class Toys:
    """Small texts (`data`) and models (`models`) under the names that the docs use."""

    def __init__(self, root):
        import docs_test
        self.root, self.data, self.models, self.made = root, root / "data", root / "models", root / "made"
        for p in (self.data, self.models):
            p.mkdir()
        docs_test.make_data(self.data)
        # docs_test calls a program by its name alone
        script = root / "rapt"
        words = " ".join(f"'{word}'" for word in program())
        script.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        script.chmod(0o755)
        docs_test.make_models(script, self.models, self.made, self.data)
        # What the pages call SmolLM2 is the embedded model here, with a chat template.
        import rapt
        chat, folder = self.models / "SmolLM2-135M-Instruct.Q4_1.gguf", root / "chat"
        rapt.load("default").save(folder)
        config = json.loads((folder / "tokenizer_config.json").read_text())
        config["chat_template"] = ("{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
                                   "{% if add_generation_prompt %}assistant: {% endif %}")
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        chat.unlink()
        rapt.convert(folder, chat)


@pytest.fixture(scope="session")
def toys(tmp_path_factory):
    return Toys(tmp_path_factory.mktemp("toys"))


@pytest.fixture
def in_toys(toys, tmp_path, monkeypatch):
    """The present folder is a new one with all toy data, and the models of the docs have their names."""
    for p in toys.data.iterdir():
        (tmp_path / p.name).symlink_to(p)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAPT_MODELS", str(toys.models))
    return tmp_path
