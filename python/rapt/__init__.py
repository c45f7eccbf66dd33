# SPDX-License-Identifier: Apache-2.0
"""Rapt: run, train and look inside Transformers. `rapt.load("default")` opens the model that comes along."""
from . import _rapt
from ._errors import Cancelled, Error, NotFound, UnknownName, UsageError

version = __version__ = _rapt.version

__all__ = ["Cancelled", "Error", "NotFound", "UnknownName", "UsageError", "version"]
