# SPDX-License-Identifier: Apache-2.0
"""The report in a notebook is the program's page; results print well."""
import html
import os
import re
import shutil
import subprocess

import pytest

pytest.importorskip("numpy")

import rapt

TEXT = "To be, or not to be, that is the question."


def test_the_page_is_the_programs(model, cli, tmp_path):
    report = model.report(TEXT)
    cli("inspect", "report", "default", TEXT, "-q", "--html", tmp_path / "cli.html")
    report.save(tmp_path / "ours.html")
    assert (tmp_path / "ours.html").read_bytes() == (tmp_path / "cli.html").read_bytes()
    with pytest.raises(rapt.Error, match="exists already"):
        report.save(tmp_path / "ours.html")
    report.save(tmp_path / "ours.html", force=True)
    assert model.report(TEXT, lens=False).html != report.html


def test_a_cell_shows_it(model, monkeypatch, tmp_path):
    from rapt import _report
    report = model.report(TEXT)
    shown = report._repr_html_()
    srcdoc = re.search(r'srcdoc="([^"]*)"', shown)
    assert html.unescape(srcdoc[1]) == report.html and "allow-same-origin" not in shown
    monkeypatch.setattr(_report, "_MOST_INLINE", 1000)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    import tempfile
    monkeypatch.setattr(tempfile, "tempdir", None)
    link = re.search(r'href="([^"]*)"', report._repr_html_())
    assert open(html.unescape(link[1]), encoding="utf-8").read() == report.html


PROBE = """<script>
addEventListener('error', (e) => parent.postMessage('error: ' + e.message, '*'));
setTimeout(() => {
  const before = document.body.innerText;
  for (const button of document.querySelectorAll('button')) button.click();
  parent.postMessage('changed ' + (before !== document.body.innerText), '*');
}, 500);
</script>"""
PARENT = """<!doctype html><pre></pre><script>
addEventListener('message', (e) => { document.querySelector('pre').textContent += e.data + '\\n'; });
</script>"""


def test_the_page_works_in_a_frame(model, tmp_path):
    """A frame with srcdoc has no address, no storage and no origin: clicks must work all the same."""
    browser = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if not browser:
        pytest.skip("no chromium here")
    report = model.report(TEXT)
    # The probe is no part of the page: its content policy would keep it out.
    report.html = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", report.html) + PROBE
    page = tmp_path / "page.html"
    page.write_text(PARENT + report._repr_html_(), encoding="utf-8")
    words = ("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=8000", "--dump-dom")
    env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}  # a sanitizer's, of ours
    shown = subprocess.run([browser, *words, page.as_uri()], capture_output=True, text=True, env=env,
                           timeout=300).stdout
    assert re.search(r"<pre>(.*?)</pre>", shown, re.S)[1].split("\n") == ["changed true", ""]


def test_results_print_well(model, gated):
    att = model.attention(TEXT)
    shown = {"att": att, "heads": att.heads, "points": model.points(), "lens": model.lens(TEXT),
             "massive": model.massive(TEXT), "norms": model.norms(TEXT), "sinks": model.sinks(TEXT),
             "gates": gated.gates(TEXT)}
    for name, x in shown.items():
        assert len(repr(x)) < 6000 and "object at 0x" not in repr(x), name
        page = x._repr_html_()
        assert page.startswith("<table>") and "<script" not in page and len(page) < 60000, name
    assert "Attention(" in repr(att)
    html_of = model.lens("<script>alert(1)</script>")._repr_html_()
    assert "<script" not in html_of


def test_results_are_values(model):
    import json
    import pickle
    for x in (model.lens(TEXT), model.norms(TEXT), model.massive(TEXT), model.sinks(TEXT), model.points(),
              model.attention(TEXT).heads):
        again = pickle.loads(pickle.dumps(x))
        assert again == x and json.loads(x.json())
        columns = x.columns()
        assert len({len(column) for column in columns.values()}) == 1
