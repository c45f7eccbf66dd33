# SPDX-License-Identifier: Apache-2.0
"""What goes wrong. Texts say what, where, why and what to do, in the words of the C++ library."""


class Error(RuntimeError):
    """A file, the memory or a number was not as it should be."""


class UsageError(Error, ValueError):
    """What was asked for cannot be meant."""


class UnknownName(UsageError, KeyError):
    """There is nothing of that name; the text names the nearest one."""

    def __str__(self):  # KeyError would quote it
        return str(self.args[0]) if self.args else ""


class NotFound(Error, FileNotFoundError):
    """There is no such file or model."""

    def __str__(self):
        return str(self.args[0]) if self.args else ""


class Cancelled(Error):
    """The work was stopped before its end; what it belongs to is usable."""


for _class in (Error, UsageError, UnknownName, NotFound, Cancelled):
    _class.__module__ = "rapt"
