# SPDX-License-Identifier: Apache-2.0
"""`python -m rapt` is the command `rapt`."""
from ._main import main

if __name__ == "__main__":
    main()
