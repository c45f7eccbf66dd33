# SPDX-License-Identifier: Apache-2.0
"""Types: the stub says what is there, and a strict checker knows every call of the examples."""
import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest

import rapt

HERE = pathlib.Path(__file__).resolve().parent
if importlib.util.find_spec("mypy") is None or importlib.util.find_spec("numpy") is None:
    pytest.skip("mypy and NumPy are not installed", allow_module_level=True)

# Methods that a Model takes from other files with their first use; what they take is compared below.
LATER = ("attention attribution edited gates gradients gradients_at lens massive norms patching points "
         "report run_with_cache run_with_hooks sinks").split()

# What the package makes and nobody else: how is its own affair.
MADE_INSIDE = ("Adapter At Attention Cache Chat Gradients Lab Optimizer Report Result Server Stream "
               "Weights").split()


def mypy(*words, cwd, module="mypy"):
    where = pathlib.Path(rapt.__file__).parent.parent  # a checker looks into site-packages by itself
    env = {**os.environ, "MYPYPATH": "" if where.name == "site-packages" else str(where)}
    return subprocess.run([sys.executable, "-m", module, *map(str, words)], capture_output=True, text=True,
                          cwd=cwd, env=env)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """What the checker has read of NumPy serves every check."""
    return tmp_path_factory.mktemp("cache")


def test_a_strict_checker_knows_the_examples(tmp_path, cache):
    file = tmp_path / "examples.py"
    file.write_text((HERE / "typed_examples.py").read_text())
    done = mypy("--strict", "--cache-dir", cache, file, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_finds_what_is_wrong(tmp_path, cache):
    wrong = ['m.generate("a", temprature=0)', 'm.generate("a", max_tokens="many")',
             'rapt.load("a", cache="f8")', "m.tokenizer.encode(3)", 'rapt.Trainer(3, data="a")',
             'm.atention("a")', 'm.generate("a").txt']
    file = tmp_path / "wrong.py"
    file.write_text('import rapt\nm = rapt.load("default")\n' + "\n".join(wrong) + "\n")
    done = mypy("--strict", "--cache-dir", cache, file, cwd=tmp_path)
    found = {int(n) for n in re.findall(r"^wrong\.py:(\d+): error", done.stdout, re.M)}
    assert found == set(range(3, 3 + len(wrong))), done.stdout


def test_the_stub_says_what_is_there(tmp_path):
    (tmp_path / "allowed").write_text("".join(f"rapt\\.Model\\.{name}\n" for name in LATER) +
                                      "rapt\\._.*\nrapt\\.__main__\nrapt\\.lab\\._.*\n" +
                                      "".join(f"rapt\\.(lab\\.)?{name}\\.__init__\n" for name in MADE_INSIDE))
    # What stands behind the stub has no types of its own.
    (tmp_path / "mypy.ini").write_text("[mypy]\n[mypy-rapt.*]\nignore_errors = True\n")
    done = mypy("rapt", "--mypy-config-file", "mypy.ini", "--allowlist", "allowed",
                "--ignore-unused-allowlist", "--ignore-missing-stub",
                "--ignore-disjoint-bases", cwd=tmp_path, module="mypy.stubtest")
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr


def test_every_public_name_has_a_type(tmp_path, cache):
    names = [n for n in rapt.__all__ if n != "lab"]
    file = tmp_path / "names.py"
    file.write_text("import rapt\n" + "".join(f"reveal_type(rapt.{n})\n" for n in names) +
                    "m: rapt.Model = rapt.load()\n" + "".join(f"reveal_type(m.{n})\n" for n in LATER))
    done = mypy("--strict", "--cache-dir", cache, file, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    shown = [line for line in done.stdout.splitlines() if "Revealed type" in line]
    assert len(shown) == len(names) + len(LATER) and not any('is "Any"' in line for line in shown)
