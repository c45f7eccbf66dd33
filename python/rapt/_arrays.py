# SPDX-License-Identifier: Apache-2.0
"""Arrays: NumPy's where it is installed (imported with the first array), else neutral ones, which have the
buffer protocol and DLPack. Neither copies."""
import importlib.util

_numpy = None


def numpy():
    """NumPy, or None where it is not installed."""
    global _numpy
    if _numpy is None:
        _numpy = importlib.import_module("numpy") if importlib.util.find_spec("numpy") else False
    return _numpy or None


def array(x):
    """What the library hands out, as NumPy's array if there is NumPy."""
    np = numpy()
    return x if np is None or x is None else np.asarray(x)
