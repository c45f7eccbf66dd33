# SPDX-License-Identifier: Apache-2.0
"""The wheel as a file: one for every CPython from 3.10 on and for every Linux with glibc 2.34, with what it
should hold and nothing else. RAPT_WHEEL names it (scripts/test-python)."""
import os
import pathlib
import re
import subprocess
import zipfile

import pytest

WHEEL = os.environ.get("RAPT_WHEEL", "")
pytestmark = pytest.mark.skipif(not WHEEL, reason="RAPT_WHEEL names no wheel")
MOST = 14e6  # bytes, with both models


@pytest.fixture(scope="module")
def names():
    with zipfile.ZipFile(WHEEL) as file:
        return {i.filename: i.file_size for i in file.infolist()}


def test_its_name_says_what_it_fits():
    name = pathlib.Path(WHEEL).name
    assert re.fullmatch(r"rapt_engine-\d+\.\d+\.\d+-cp310-abi3-manylinux_2_34_x86_64\.whl", name), name


def test_it_is_small():
    assert os.path.getsize(WHEEL) <= MOST


def test_it_holds_what_it_should(names):
    assert "rapt/_rapt.abi3.so" in names and "rapt/__init__.py" in names and "rapt/py.typed" in names
    assert {n for n in names if n.endswith(".gguf")} == {"rapt/models/default.gguf",
                                                         "rapt/models/default-gated.gguf"}
    strange = [n for n in names if not re.match(r"rapt/|rapt_engine-[^/]*\.dist-info/|rapt_engine\.libs/", n)
               or n.endswith((".pyc", ".cc", ".h", ".a"))]
    assert strange == []
    notices = [n for n in names if "/licenses/" in n]
    assert any(n.endswith("/LICENSE") for n in notices)
    if any("libjpeg" in n for n in names):  # who brings a library along brings its notice along
        assert any("libjpeg" in n for n in notices)


def test_its_metadata():
    with zipfile.ZipFile(WHEEL) as file:
        name = next(n for n in file.namelist() if n.endswith(".dist-info/METADATA"))
        text = file.read(name).decode()
        points = file.read(name.replace("METADATA", "entry_points.txt")).decode()
    head = text.partition("\n\n")[0]
    assert "Name: rapt-engine" in head and "Requires-Python: >=3.10" in head
    needs = re.findall(r"^Requires-Dist: (.*)$", head, re.M)
    assert [n for n in needs if "extra" not in n] == ["nanobind-backend>=1.0"]
    assert "rapt = rapt._main:main" in points


def test_it_uses_the_stable_interface_alone():
    tools = os.environ.get("RAPT_TOOLS")
    if not tools:
        pytest.skip("RAPT_TOOLS names no environment with abi3audit")
    done = subprocess.run([f"{tools}/bin/abi3audit", "--strict", "--assume-minimum-abi3", "3.10", WHEEL],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_module_shows_its_entry_alone(tmp_path):
    with zipfile.ZipFile(WHEEL) as file:
        file.extract("rapt/_rapt.abi3.so", tmp_path)
    said = subprocess.run(["nm", "-D", "--defined-only", tmp_path / "rapt/_rapt.abi3.so"],
                          capture_output=True, text=True)
    if said.returncode != 0:
        pytest.skip("there is no nm")
    shown = [line.split()[-1].split("@")[0] for line in said.stdout.splitlines()]
    assert "PyInit__rapt" in shown
    # The error that users of the C++ library catch is everybody's (rapt/error.h).
    inside = [n for n in shown if "4rapt" in n and not n.endswith("4rapt5ErrorE") or n == "rapt_main"]
    assert inside == []
