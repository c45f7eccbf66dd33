# SPDX-License-Identifier: Apache-2.0
"""The package by itself: what is installed, what an import does, the command line inside. All of it runs
without NumPy, too (scripts/test-python runs it in an environment that has none)."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import rapt

HERE = pathlib.Path(rapt.__file__).parent


def python(code, *words, env=None, check=True):
    """Code in a fresh interpreter: what it did."""
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})})
    assert not check or done.returncode == 0, done.stderr[-3000:]
    return done


def command(*words, **more):
    return subprocess.run([sys.executable, "-m", "rapt", *words], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, **more)


def test_installed_files():
    assert (HERE / "py.typed").exists()
    for name in ("default", "default-gated"):
        assert (HERE / "models" / f"{name}.gguf").stat().st_size > 1_000_000
    assert re.fullmatch(r"\d+\.\d+\.\d+", rapt.version)
    assert rapt.__version__ == rapt.version


def test_every_public_name_is_there():
    for name in rapt.__all__:
        assert getattr(rapt, name) is not None
    assert set(rapt.__all__) <= set(dir(rapt))
    with pytest.raises(AttributeError, match="modle"):
        rapt.modle


def test_an_import_brings_nothing_heavy():
    heavy = ("numpy", "asyncio", "json.tool", "tqdm", "pandas", "matplotlib", "torch", "multiprocessing")
    said = python(f"import sys, rapt; print([m for m in {heavy!r} if m in sys.modules])").stdout
    assert said.strip() == "[]"


def test_an_import_writes_nothing():
    done = python("import rapt; rapt.load('default')")
    assert (done.stdout, done.stderr) == ("", "")


def test_generate_says_nothing_by_itself():
    done = python("import rapt; a = rapt.load('default').generate('The sky', max_tokens=8, temperature=0); "
                  "assert str(a)")
    assert (done.stdout, done.stderr) == ("", "")


def test_generate_on_every_instruction_set_of_this_machine():
    from rapt import _rapt
    said = {python("import rapt; m = rapt.load('default'); "
                   "print(m.generate('The sky', max_tokens=12, temperature=0).ids)",
                   env={"RAPT_ISA": isa}).stdout for isa in _rapt.instruction_sets()}
    assert all(re.match(r"\[\d+(, \d+)*\]", s) for s in said)


@pytest.mark.skipif(not os.environ.get("RAPT_LONG"), reason="left out: scripts/test --long python")
def test_a_processor_without_avx2():
    qemu = shutil.which("qemu-x86_64")
    if not qemu:
        pytest.skip("there is no qemu-x86_64 (Debian: qemu-user)")
    code = ("import rapt; m = rapt.load('default'); a = m.generate('The sky', max_tokens=12, temperature=0); "
            "print(m.device.isa, a.ids, a.hash)")
    there = subprocess.run([qemu, "-cpu", "Nehalem", sys.executable, "-c", code], capture_output=True,
                           text=True, env={k: v for k, v in os.environ.items() if k != "RAPT_ISA"})
    assert there.returncode == 0, there.stderr[-3000:]
    assert there.stdout == python(code, env={"RAPT_ISA": "scalar"}).stdout


def test_errors_are_those_of_python():
    with pytest.raises(FileNotFoundError) as e:
        rapt.load("no-such-model.gguf")
    assert isinstance(e.value, rapt.NotFound) and "no-such-model" in str(e.value)
    with pytest.raises(rapt.UsageError) as e:
        rapt.load("default").generate("a", temperature=-1)
    assert isinstance(e.value, ValueError)
    with pytest.raises(rapt.UnknownName, match="temperature") as e:
        rapt.load("default").generate("a", temprature=0)
    assert isinstance(e.value, KeyError) and not str(e.value).startswith("'")


def test_the_command_line_is_inside():
    done = command("--version")
    assert done.returncode == 0 and done.stdout.startswith(f"rapt {rapt.version} (")
    assert command("frobnicate").returncode == 2
    assert command("show", "no-such-file.gguf").returncode != 0
    installed = pathlib.Path(sys.executable).parent / "rapt"
    if installed.exists():  # where pip has put it
        said = subprocess.run([installed, "--version"], capture_output=True, text=True)
        assert said.stdout == done.stdout


def test_the_command_line_says_what_python_says():
    said = command("run", "default", "The sky", "-n", "12", "--temperature", "0", "-q").stdout
    assert str(rapt.load("default").generate("The sky", max_tokens=12, temperature=0)).strip() in said


def test_the_command_line_stops_with_its_pipe():
    done = subprocess.run(["bash", "-c", f"'{sys.executable}' -m rapt help --man | head -n 1"],
                          capture_output=True, text=True)
    assert "Traceback" not in done.stderr and done.stdout


def test_no_module_of_the_package_needs_numpy_to_be_imported():
    names = [p.stem for p in HERE.glob("_*.py") if p.stem not in ("__init__", "__main__", "_main")]
    code = ("import importlib, sys; sys.modules['numpy'] = None\n"
            f"for name in {names!r}: importlib.import_module('rapt.' + name)")
    python(code)
