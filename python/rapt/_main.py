# SPDX-License-Identifier: Apache-2.0
"""The command line: the same program, inside the module."""
import signal
import sys


def main():
    # The program handles its signals itself.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from . import _rapt
    sys.exit(_rapt.main(["rapt", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
