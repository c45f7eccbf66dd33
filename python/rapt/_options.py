# SPDX-License-Identifier: Apache-2.0
"""Keyword arguments: unknown ones are errors that name the nearest."""
import functools

from ._errors import UnknownName, UsageError


def named(f):
    """A function whose unknown keyword arguments are errors that name the nearest."""
    code = f.__code__
    known = code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]

    @functools.wraps(f)
    def call(*given, **options):
        check(options, known, f.__name__)
        return f(*given, **options)

    return call


def text_of(x, what):
    if not isinstance(x, str):
        raise UsageError(f"{what}: a text is wanted, not {x!r}")
    return x


def check(given, known, what):
    """Fails for the first key of `given` that is not in `known`."""
    for name in given:
        if name not in known:
            import difflib
            near = difflib.get_close_matches(name, known, 1, 0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sorted(known))}"
            raise UnknownName(f"{what}: there is no option {name!r}; {hint}")
