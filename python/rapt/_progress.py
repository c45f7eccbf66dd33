# SPDX-License-Identifier: Apache-2.0
"""How far long work is: a bar of tqdm where it is installed and somebody looks, or a callable of yours."""
import sys
import time


def _looked_at():
    kernel = sys.modules.get("IPython")
    shell = kernel.get_ipython() if kernel else None
    return (shell is not None and "IPKernelApp" in getattr(shell, "config", {})) or \
        (sys.stderr is not None and sys.stderr.isatty())


class bar:
    """with bar(progress, "train") as told: told(done, of). `progress`: None (where somebody looks), True,
    False, or a callable (what, done, of); it hears at most ten times a second, and of the end."""

    def __init__(self, progress, what):
        self._call, self._bar, self._last, self._what = None, None, 0.0, what
        if callable(progress):
            self._call = progress
        elif progress or (progress is None and _looked_at()):
            try:
                from tqdm.auto import tqdm
            except ImportError:
                if progress:
                    self._call = _line
            else:
                self._bar = tqdm(desc=what, leave=False)

    @property
    def named(self):
        """A callable (what, done, of), or None where nobody hears."""
        return self._tell if self._call or self._bar is not None else None

    def _tell(self, what, done, of):
        now = time.monotonic()
        if done < of and now - self._last < 0.1:
            return
        self._last = now
        if self._call:
            self._call(what, done, of)
        else:
            if self._bar.total != of or self._bar.n > done:
                self._bar.reset(of)
            self._bar.set_description(what, refresh=False)
            self._bar.update(done - self._bar.n)

    def __call__(self, done, of):
        if self._call or self._bar is not None:
            self._tell(self._what, done, of)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self._bar is not None:
            self._bar.close()


def _line(what, done, of):
    print(f"{what}: {done:g} of {of:g}", file=sys.stderr)
