# SPDX-License-Identifier: Apache-2.0
"""The command line: the same program, inside the module."""
import signal
import sys


def main() -> None:
    """Runs the program with the words of this process and ends it with the program's code."""
    # The program handles its signals itself, and a pipe that nobody reads ends it as it ends others.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    from . import _rapt
    sys.exit(_rapt.main(["rapt", *sys.argv[1:]]))
