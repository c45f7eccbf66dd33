#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes formats.h: what GGUF's reference (the Python package gguf) reads from and writes into blocks of
every format.

    python make_formats.py > formats.h

Inputs are not stored: rapt/tensor/formats_test.cc computes them by the same rules (bytes, numbers below).
Results are stored as the bits of the first numbers and a checksum (FNV-1a, 64 bit) over all.
"""
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import quants

BLOCKS = 64
FIRST = 6
# type: elements, bytes, where the halves are
FORMATS = {
    "f16": (1, 2, [0]), "bf16": (1, 2, []), "q4_0": (32, 18, [0]), "q4_1": (32, 20, [0, 2]),
    "q5_0": (32, 22, [0]),
    "q5_1": (32, 24, [0, 2]), "q8_0": (32, 34, [0]), "q2_k": (256, 84, [80, 82]), "q3_k": (256, 110, [108]),
    "q4_k": (256, 144, [0, 2]), "q5_k": (256, 176, [0, 2]), "q6_k": (256, 210, [208]),
    "mxfp4": (32, 17, []), "iq4_nl": (32, 18, [0]), "iq4_xs": (256, 136, [0]), "iq3_s": (256, 110, [0]),
    "iq3_xxs": (256, 98, [0]), "iq2_s": (256, 82, [0]), "iq2_xs": (256, 74, [0]), "iq2_xxs": (256, 66, [0]),
    "iq1_m": (256, 56, []), "iq1_s": (256, 50, [0]), "tq2_0": (256, 66, [64]), "tq1_0": (256, 54, [52]),
    "nvfp4": (64, 36, []), "q2_0": (64, 18, [0]), "q1_0": (128, 18, [0]),
}
WRITTEN = ["f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "mxfp4"]


def fnv(data):
    h = 14695981039346656037
    for byte in data:
        h = (h ^ byte) * 1099511628211 % 2**64
    return h


def mixed(name, count):
    with np.errstate(over="ignore"):
        z = np.uint64(fnv(name.encode())) + np.arange(1, count + 1,
                                                      dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def blocks(name):
    """Random bytes; a half that would be infinite or NaN loses the highest bit of its exponent."""
    elements, size, halves = FORMATS[name]
    count = BLOCKS if elements > 1 else 1024
    data = (mixed(name, count * size) >> np.uint64(56)).astype(np.uint8).reshape(count, size)
    for at in halves:
        full = (data[:, at + 1] & 0x7C) == 0x7C
        data[full, at + 1] &= 0xBF
    if name == "iq1_m":  # the half lies in four nibbles
        data[:, 55] &= 0xBF
    if name == "bf16":
        full = ((data[:, 1] & 0x7F) == 0x7F) & ((data[:, 0] & 0x80) == 0x80)
        data[full, 1] &= 0xBF
    return data


def numbers(name):
    """Multiples of 2^-23 in [-1, 1), times a power of two by block of 32; some blocks are zero, some not
    negative."""
    i = np.arange(BLOCKS * 32)
    x = (mixed(name + " numbers", BLOCKS * 32) >> np.uint64(40)).astype(np.float64) * 2.0**-23 - 1
    x = x * 2.0 ** ((i // 32) % 24 - 16)
    x = np.where((i // 32) % 7 == 3, np.abs(x), x)
    return np.where((i // 32) % 13 == 5, 0, x).astype(np.float32)


def plain(name, data):
    """q1_0 and q2_0, which the package only knows by name: d where a bit is one, else -d; d (q - 1)."""
    d = data[:, :2].copy().view(np.float16).astype(np.float32)
    bits = np.unpackbits(data[:, 2:], axis=1, bitorder="little")
    if name == "q1_0":
        return d * (2.0 * bits - 1).astype(np.float32)
    return d * (bits[:, 0::2] + 2.0 * bits[:, 1::2] - 1).astype(np.float32)


def main():
    print("// SPDX-License-Identifier: Apache-2.0")
    print("// Made by make_formats.py from the reference's own results; do not edit.")
    print("#pragma once\n#include <cstdint>\n\n#include \"rapt/tensor/dtype.h\"\n\nnamespace rapt::test {\n")
    print(
        "struct FormatGolden {\n  DType type;\n  std::uint64_t read;          // checksum of the numbers in "
        "the blocks")
    print(f"  std::uint32_t first[{FIRST}];      // their first bits")
    print("  std::uint64_t written;       // checksum of the blocks made from numbers; 0: not compared\n};")
    print("inline constexpr FormatGolden kFormatGoldens[] = {")
    for name in FORMATS:
        data = blocks(name)
        if name == "f16":
            out = data.reshape(-1).view(np.float16).astype(np.float32)
        elif name in ("q1_0", "q2_0"):
            out = plain(name, data)
        else:
            out = quants.dequantize(data.reshape(-1), Type[name.upper()])
        out = np.ascontiguousarray(out.reshape(-1), dtype=np.float32)
        written = 0
        if name in WRITTEN:
            x = numbers(name)
            made = x.astype(np.float16) if name == "f16" else quants.quantize(x, Type[name.upper()])
            written = fnv(made.tobytes())
        bits = ", ".join(f"{b:#010x}" for b in out.view(np.uint32)[:FIRST])
        print(f"    {{DType::{name}, {fnv(out.tobytes()):#018x}, {{{bits}}}, {written:#018x}}},")
    print("};\n\n}  // namespace rapt::test")


main()
