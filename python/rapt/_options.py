# SPDX-License-Identifier: Apache-2.0
"""Keyword arguments: unknown ones are errors that name the nearest."""
import difflib

from ._errors import UnknownName


def check(given, known, what):
    """Fails for the first key of `given` that is not in `known`."""
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sorted(known))}"
            raise UnknownName(f"{what}: there is no option {name!r}; {hint}")
