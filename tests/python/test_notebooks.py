# SPDX-License-Identifier: Apache-2.0
"""examples/notebooks: every cell runs, in order, and what is shown can be shown; no outputs are kept in them.

Cells run here as IPython runs them: the last expression of a cell is displayed (its _repr_html_, else its
repr), and so is what `display` gets. With RAPT_JUPYTER=1 a kernel of Jupyter runs them instead
(scripts/test --long python). RAPT_MODELS names real models; without them the notebooks take the small one.
"""
import ast
import json
import os

import pytest

from conftest import SOURCE

pytest.importorskip("numpy")
NOTEBOOKS = sorted((SOURCE / "examples/notebooks").glob("*.ipynb"))


def test_there_are_notebooks():
    assert len(NOTEBOOKS) >= 5


def cells_of(path):
    return json.loads(path.read_text())["cells"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_nothing_is_kept_in_it(path):
    book = json.loads(path.read_text())
    assert book["nbformat"] == 4 and book["cells"]
    assert "SPDX-License-Identifier: Apache-2.0" in "".join(book["cells"][0]["source"])
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None
            assert all(len(line.rstrip("\n")) <= 110 for line in cell["source"])


class Shown(list):
    def __call__(self, *things):
        for x in things:
            if x is not None:
                self.append(x._repr_html_() if hasattr(x, "_repr_html_") else repr(x))


def run_cell(source, name, names, shown):
    tree = ast.parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), names)
    if last is not None:
        shown(eval(compile(ast.Expression(last.value), name, "eval"), names))


@pytest.mark.skipif(bool(os.environ.get("RAPT_JUPYTER")), reason="left out: Jupyter runs them")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_cells(path, tmp_path, monkeypatch):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    shown = Shown()
    names = {"__name__": "__main__", "display": shown}
    for number, cell in enumerate(cells_of(path)):
        if cell["cell_type"] == "code":
            run_cell("".join(cell["source"]), f"{path.name}[{number}]", names, shown)
    import matplotlib.pyplot as plt
    assert shown or plt.get_fignums()
    plt.close("all")


@pytest.mark.skipif(not os.environ.get("RAPT_JUPYTER"), reason="left out: scripts/test --long python")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_in_jupyter(path, tmp_path):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    book = nbformat.read(path, 4)
    nbformat.validate(book)
    client = nbclient.NotebookClient(book, timeout=300, kernel_name="python3",
                                     resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    assert any(cell.get("outputs") for cell in book.cells if cell.cell_type == "code")
