# SPDX-License-Identifier: Apache-2.0
"""Every example of docs/python.md, of README.md and of the package's own docstrings runs.

A block (```python) either holds >>> with what it prints, or is a program. Those of a page share their names
and run from top to bottom, in a folder with toy texts and with toy models under the names that docs use. A
mark before a block scales it, as in tests/docs_test.py:
  <!-- run: quick | steps=2000 => steps=4 -->      <!-- run: no (why) -->
"""
import ast
import asyncio
import doctest
import importlib
import inspect
import pathlib
import pkgutil

import pytest

import rapt
import rapt._lab as _lab
from conftest import SOURCE

np = pytest.importorskip("numpy")
from adapters import write_adapter  # noqa: E402
from docs_test import FENCE, MARK, Mark  # noqa: E402

PAGES = ["docs/python.md", "README.md"]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Block:
    def __init__(self, page, line, mark):
        self.page, self.line, self.mark, self.text = page, line, mark, ""

    def scaled(self):
        text = self.text
        for a, b in self.mark.changes if self.mark else ():
            assert a in text, f"{self.page}:{self.line}: the mark changes '{a}', which is not there"
            text = text.replace(a, b)
        return text


def blocks_of(page):
    blocks, fence, block, mark, comment = [], None, None, None, None
    for n, line in enumerate((SOURCE / page).read_text().splitlines(), 1):
        if fence:
            if line.startswith(fence):
                fence = block = mark = None
            elif block:
                block.text += line + "\n"
        elif comment is not None or line.startswith("<!--"):
            comment = (comment or "") + line + "\n"
            if "-->" in line:
                if found := MARK.search(comment):
                    mark = Mark(" ".join(found[1].split()), f"{page}:{n}")
                comment = None
        elif start := FENCE.match(line.strip()):
            fence = start[1]
            if start[2] in ("python", "py", "pycon"):
                block = Block(page, n, mark)
                blocks.append(block)
        elif line.strip():
            mark = None
    return [b for b in blocks if not (b.mark and b.mark.kind == "no")]


BLOCKS = [b for page in PAGES for b in blocks_of(page)]


def execute(text, name, line, names):
    """A program, statement by statement, with `await` and `async for` at the top."""
    module = ast.parse("\n" * line + text, name)
    for statement in module.body:
        code = compile(ast.Module([statement], []), name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if code.co_flags & inspect.CO_COROUTINE:
            async def waited(code=code):
                await eval(code, names)
            asyncio.run(waited())
        else:
            exec(code, names)


def check(text, name, line, names):
    """Lines with >>> and what they print."""
    said = []
    runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
    test = doctest.DocTestParser().get_doctest(text, names, name, name, line)
    runner.run(test, out=said.append, clear_globs=False)
    names.update(test.globs)
    assert runner.failures == 0, "".join(said)


@pytest.fixture(scope="module")
def pages(toys, tmp_path_factory):
    """A folder and names for each page."""
    made = {}

    def of(page):
        if page not in made:
            folder = tmp_path_factory.mktemp("page")
            for p in toys.data.iterdir():
                (folder / p.name).symlink_to(p)
            (folder / "wiki.txt").symlink_to(toys.data / "text.txt")
            write_adapter(folder / "my-adapter", rapt.load("default").weights.shapes(), 1)
            made[page] = folder, {"__name__": "page"}
        return made[page]
    return of


@pytest.mark.parametrize("block", BLOCKS, ids=lambda b: f"{pathlib.Path(b.page).name}:{b.line}")
def test_page(block, pages, toys, monkeypatch, capsys):
    folder, names = pages(block.page)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("RAPT_MODELS", str(toys.models))
    monkeypatch.setattr(_lab, "_own", {})  # experiments of a page are no one else's
    text = block.scaled()
    (check if ">>>" in text else execute)(text, block.page, block.line, names)


def test_the_pages_have_examples():
    assert len([b for b in BLOCKS if b.page == "docs/python.md"]) >= 10


MODULES = ["rapt", *(f"rapt.{m.name}" for m in pkgutil.iter_modules(rapt.__path__)
                     if m.name not in ("__main__", "_main", "_rapt"))]


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name, toys, tmp_path, monkeypatch):
    for p in toys.data.iterdir():
        (tmp_path / p.name).symlink_to(p)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAPT_MODELS", str(toys.models))
    monkeypatch.setattr(_lab, "_own", {})
    module = importlib.import_module(name)
    finder, runner, said = doctest.DocTestFinder(), doctest.DocTestRunner(optionflags=FLAGS), []
    names = {**{n: getattr(rapt, n) for n in rapt.__all__}, **vars(module), "rapt": rapt, "np": np}
    for test in finder.find(module, name, globs=names):
        runner.run(test, out=said.append)
    assert runner.failures == 0, "".join(said)


def test_public_things_say_what_they_are():
    silent = [name for name in rapt.__all__ if callable(getattr(rapt, name))
              and not (getattr(rapt, name).__doc__ or "").strip()]
    assert silent == []
