#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes grids.h: the lattice points that the iq formats name by their place in a list.

    python make_grids.py > grids.h

The lists are part of the format and follow no short rule; they are taken from GGUF's reference (the Python
package gguf of llama.cpp, MIT licence). Each is sorted by its points read as numbers in base 3 (eight
elements) or base 8 (four), the last element first, so a set of bits says it all: bit n is one where n is a
point. Hexadecimal digits, the lowest bit of a digit first.
"""
import numpy as np
from gguf import quants

GRIDS = {"kGrid256": (quants.IQ2_XXS, 3), "kGrid512": (quants.IQ2_XS, 3), "kGrid1024": (quants.IQ2_S, 3),
         "kGrid2048": (quants.IQ1_S, 3), "kGrid256x4": (quants.IQ3_XXS, 8), "kGrid512x4": (quants.IQ3_S, 8)}

print("// SPDX-License-Identifier: Apache-2.0")
print("// Made by make_grids.py (which says what this is) from the tables of llama.cpp's gguf package (MIT);")
print("// do not edit.")
print("#pragma once\n\nnamespace rapt {\n\n// clang-format off")
for name, (kind, base) in GRIDS.items():
    kind.init_grid()
    grid = kind.grid.reshape(kind.grid_shape)
    levels, digits = np.unique(grid), None
    assert len(levels) == base
    digits = np.searchsorted(levels, grid)
    width = grid.shape[1]
    points = (digits * base ** np.arange(width)).sum(axis=1)
    assert (np.diff(points) > 0).all()
    bits = np.zeros((base**width + 3) // 4 * 4, dtype=int)
    bits[points] = 1
    text = "".join(f"{int(n):x}" for n in (bits.reshape(-1, 4) * [1, 2, 4, 8]).sum(axis=1))
    print(f"inline constexpr char {name}[] =  // {len(points)} points of {width} elements")
    lines = [text[i:i + 100] for i in range(0, len(text), 100)]
    print("\n".join(f'    "{line}"' for line in lines) + ";")
print("// clang-format on\n\n}  // namespace rapt")
