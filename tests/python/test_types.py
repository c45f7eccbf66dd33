# SPDX-License-Identifier: Apache-2.0
"""Types: the stub says what is there, and a strict checker knows every call of the examples."""
import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

import rapt

HERE = pathlib.Path(__file__).resolve().parent
if importlib.util.find_spec("mypy") is None or importlib.util.find_spec("numpy") is None:
    pytest.skip("mypy and NumPy are not installed", allow_module_level=True)

# Methods that a Model takes from other files with their first use; what they take is compared below.
LATER = ("attention edited gates gradients lens massive norms points report run_with_cache run_with_hooks "
         "sinks").split()


def mypy(*words, cwd, module="mypy"):
    env = {**os.environ, "MYPYPATH": ""}
    return subprocess.run([sys.executable, "-m", module, *map(str, words)], capture_output=True, text=True,
                          cwd=cwd, env=env)


def test_a_strict_checker_knows_the_examples(tmp_path):
    file = tmp_path / "examples.py"
    file.write_text((HERE / "typed_examples.py").read_text())
    done = mypy("--strict", "--cache-dir", tmp_path / "cache", file, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("line", [
    'm.generate("a", temprature=0)', 'm.generate("a", max_tokens="many")', 'rapt.load("a", cache="f8")',
    'm.tokenizer.encode(3)', 'rapt.Trainer(3, data="a")', 'm.atention("a")', 'm.generate("a").txt'])
def test_it_finds_what_is_wrong(line, tmp_path):
    file = tmp_path / "wrong.py"
    file.write_text(f'import rapt\nm = rapt.load("default")\n{line}\n')
    done = mypy("--strict", "--cache-dir", tmp_path.parent / "wrong-cache", file, cwd=tmp_path)
    assert done.returncode == 1 and "wrong.py:3: error" in done.stdout, done.stdout


def test_the_stub_says_what_is_there(tmp_path):
    (tmp_path / "allowed").write_text("".join(f"rapt\\.Model\\.{name}\n" for name in LATER) +
                                      "rapt\\._.*\nrapt\\.__main__\nrapt\\.lab\\._.*\n")
    done = mypy("rapt", "--allowlist", "allowed", "--ignore-unused-allowlist", "--ignore-missing-stub",
                "--ignore-disjoint-bases", cwd=tmp_path, module="mypy.stubtest")
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr


def test_every_public_name_has_a_type(tmp_path):
    names = [n for n in rapt.__all__ if n != "lab"]
    file = tmp_path / "names.py"
    file.write_text("import rapt\n" + "".join(f"reveal_type(rapt.{n})\n" for n in names) +
                    "m: rapt.Model = rapt.load()\n" + "".join(f"reveal_type(m.{n})\n" for n in LATER))
    done = mypy("--strict", "--cache-dir", tmp_path / "cache", file, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    shown = [line for line in done.stdout.splitlines() if "Revealed type" in line]
    assert len(shown) == len(names) + len(LATER) and not any('is "Any"' in line for line in shown)
