# SPDX-License-Identifier: Apache-2.0
"""The report's page in a notebook, and the small HTML of results: no script, the notebook's own colours."""
import html as _html
import os

from . import _rapt
from ._errors import Error
from ._inside import read_ids

_MOST_INLINE = 8 << 20  # bytes of a page that a cell holds; notebooks grow with it
_MOST_ROWS, _MOST_COLUMNS = 20, 64


class Report:
    """One page about a model on one text; a notebook cell shows it. `html` is all of it."""

    __slots__ = ("html", "title")

    def __init__(self, html, title):
        self.html, self.title = html, title

    def save(self, path, *, force=False):
        """Writes it to a file that opens in any browser and needs no network."""
        try:
            with open(path, "w" if force else "x", encoding="utf-8") as f:
                f.write(self.html)
        except FileExistsError:
            raise Error(f"{os.fspath(path)} exists already; save(path, force=True) replaces it") from None

    def __repr__(self):
        return f"Report({self.title!r}, {len(self.html):,} characters; .save(path) writes it)"

    def _repr_html_(self):
        if len(self.html.encode()) > _MOST_INLINE:
            import tempfile
            with tempfile.NamedTemporaryFile("w", prefix="rapt-", suffix=".html", encoding="utf-8",
                                             delete=False) as f:
                f.write(self.html)
            return f'<a href="{_html.escape(f.name)}" target="_blank">{_html.escape(self.title)}</a>'
        # The page's own content policy and script hold inside the frame.
        return (f'<iframe srcdoc="{_html.escape(self.html)}" title="{_html.escape(self.title)}" '
                'style="width:100%;height:720px;border:0" sandbox="allow-scripts allow-downloads"></iframe>')


def report(model, text, *, target=None, pixels=0, keys=0, lens=True, stack=None):
    """All there is to see of the model on a text, on one page: linked maps, arcs, the lens, lengths, sinks.

    >>> r = rapt.load("default").report("To be, or not to be")
    >>> r.html.startswith("<!doctype html>"), "srcdoc" in r._repr_html_()
    (True, True)
    """
    ids, source = read_ids(model, text, target)
    page = _rapt.inspect_report(model._state, ids, source, pixels, keys, lens, stack)
    return Report(page.decode(), "rapt report")


# ------------------------------------------------------------------------------------------------ small HTML


def _cell(x):
    if isinstance(x, float) or hasattr(x, "dtype") and x.dtype.kind == "f":
        return f"{float(x):.4g}"
    return _html.escape(str(x))


def table_html(columns):
    """A table of columns, its first rows."""
    names, count = list(columns), len(next(iter(columns.values()), ()))
    rows = "".join("<tr>" + "".join(f"<td>{_cell(columns[name][i])}</td>" for name in names) + "</tr>"
                   for i in range(min(count, _MOST_ROWS)))
    more = f"<caption>{_MOST_ROWS} of {count} rows</caption>" if count > _MOST_ROWS else ""
    head = "".join(f"<th>{_html.escape(name)}</th>" for name in names)
    return f"<table>{more}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _shade(x):
    x = min(1.0, max(0.0, x))
    return f"background:rgba(31,119,180,{x:.2f})"


def grid_html(title, values):
    """Means over the last axis of [layers, heads, T], as shaded cells."""
    import math
    rows = []
    for layer in range(min(len(values), _MOST_COLUMNS)):
        cells = []
        for head in range(min(len(values[layer]), _MOST_COLUMNS)):
            numbers = [float(x) for x in values[layer][head] if not math.isnan(x)]
            mean = sum(numbers) / len(numbers) if numbers else None
            where = f"layer {layer}, head {head}"
            cells.append(f'<td title="{where}: {mean:.3f}" style="{_shade(mean)}">{mean:.2f}</td>'
                         if mean is not None else "<td></td>")
        rows.append(f"<tr><th>{layer}</th>{''.join(cells)}</tr>")
    return f"<table><caption>{_html.escape(title)}</caption><tbody>{''.join(rows)}</tbody></table>"


def lens_html(lens):
    """The most probable word of each layer and token, shaded by its probability; the last tokens."""
    first = max(0, len(lens.tokens) - _MOST_ROWS)
    head = "".join(f"<th>{_html.escape(word)}</th>" for word in lens.tokens[first:])
    rows = []
    for r in range(len(lens.rows) - 1, -1, -1):
        cells = "".join(
            f'<td style="{_shade(float(lens.probabilities[r, t, 0]))}" '
            f'title="{float(lens.probabilities[r, t, 0]):.3f}">{_html.escape(lens.words[r][t][0])}</td>'
            for t in range(first, len(lens.tokens)))
        rows.append(f"<tr><th>{lens.rows[r]}</th>{cells}</tr>")
    return f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


Report.__module__ = "rapt"
