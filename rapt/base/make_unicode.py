#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes unicode_categories.cc and unicode_decompositions.cc beside itself from Python's unicodedata.

Run with Python 3.13 (Unicode 15.1). What Unicode 16.0 added to the categories stands below, because the
pattern engine of Hugging Face's tokenizers knows it already. Its normal forms and its BERT steps come from
older tables, which are followed too: ids must be equal.
"""
import pathlib
import unicodedata

NAMES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co Cn".split()
# first-last:category
ADDED_IN_16 = """897:Mn 1b4e-1b4f:Po 1b7f:Po 1c89:Lu 1c8a:Ll 2427-2429:So 31e4-31e5:So a7cb-a7cc:Lu
a7cd:Ll a7da:Lu a7db:Ll a7dc:Lu 105c0-105f3:Lo 10d40-10d49:Nd 10d4a-10d4d:Lo 10d4e:Lm 10d4f:Lo
10d50-10d65:Lu 10d69-10d6d:Mn 10d6e:Pd 10d6f:Lm 10d70-10d85:Ll 10d8e-10d8f:Sm 10ec2-10ec4:Lo 10efc:Mn
11380-11389:Lo 1138b:Lo 1138e:Lo 11390-113b5:Lo 113b7:Lo 113b8-113ba:Mc 113bb-113c0:Mn 113c2:Mc 113c5:Mc
113c7-113ca:Mc 113cc-113cd:Mc 113ce:Mn 113cf:Mc 113d0:Mn 113d1:Lo 113d2:Mn 113d3:Lo 113d4-113d5:Po
113d7-113d8:Po 113e1-113e2:Mn 116d0-116e3:Nd 1171e:Mc 11bc0-11be0:Lo 11be1:Po 11bf0-11bf9:Nd 11f5a:Mn
13460-143fa:Lo 16100-1611d:Lo 1611e-16129:Mn 1612a-1612c:Mc 1612d-1612f:Mn 16130-16139:Nd 16d40-16d42:Lm
16d43-16d6a:Lo 16d6b-16d6c:Lm 16d6d-16d6f:Po 16d70-16d79:Nd 18cff:Lo 1cc00-1ccef:So 1ccf0-1ccf9:Nd
1cd00-1ceb3:So 1e5d0-1e5ed:Lo 1e5ee-1e5ef:Mn 1e5f0:Lo 1e5f1-1e5fa:Nd 1e5ff:Po 1f8b2-1f8bb:So
1f8c0-1f8c1:So 1fa89:So 1fa8f:So 1fabe:So 1fac6:So 1fadc:So 1fadf:So 1fae9:So 1fbcb-1fbef:So"""
# Hugging Face's BERT steps know the categories of Unicode 8.0: punctuation, marks and format characters that
# are newer.
NEWER_THAN_8 = """61d 7fd 890-891 897-89f 8ca-8e2 9fd-9fe a76 afa-aff b55 c04 c3c c77 c84 d00 d3b-d3c
d81 eba ece 180f 1885-1886 1abf-1ace 1b4e-1b4f 1b7d-1b7f 1df6-1dfb 2e43-2e4f 2e52-2e5d a82c a8c5 a8ff
a9bd 10d24-10d27 10d69-10d6e 10eab-10ead 10efc-10eff 10f46-10f50 10f55-10f59 10f82-10f89 11070
11073-11074 110c2 110cd 111c9 111cf 1123e 11241 1133b 113bb-113c0 113ce 113d0 113d2 113d4-113d5
113d7-113d8 113e1-113e2 11438-1143f 11442-11444 11446 1144b-1144f 1145a-1145b 1145d-1145e 11660-1166c
116b9 1182f-11837 11839-1183b 1193b-1193c 1193e 11943-11946 119d4-119d7 119da-119db 119e0 119e2
11a01-11a0a 11a33-11a38 11a3b-11a47 11a51-11a56 11a59-11a5b 11a8a-11a96 11a98-11a9c 11a9e-11aa2
11b00-11b09 11be1 11c30-11c36 11c38-11c3d 11c3f 11c41-11c45 11c70-11c71 11c92-11ca7 11caa-11cb0
11cb2-11cb3 11cb5-11cb6 11d31-11d36 11d3a 11d3c-11d3d 11d3f-11d45 11d47 11d90-11d91 11d95 11d97
11ef3-11ef4 11ef7-11ef8 11f00-11f01 11f36-11f3a 11f40 11f42-11f4f 11f5a 11fff 12ff1-12ff2 13430-13440
13447-13455 1611e-16129 1612d-1612f 16d6d-16d6f 16e97-16e9a 16f4f 16fe2 16fe4 1cf00-1cf2d 1cf30-1cf46
1e000-1e006 1e008-1e018 1e01b-1e021 1e023-1e024 1e026-1e02a 1e08f 1e130-1e136 1e2ae 1e2ec-1e2ef
1e4ec-1e4ef 1e5ee-1e5ef 1e5ff 1e944-1e94a 1e95e-1e95f"""
# Its normal forms know Unicode 9.0: marks, and characters with a decomposition or combining class, that are
# newer (to 15.1).
NEWER_THAN_9 = """7fd 898-89f 8ca-8d3 9fe afa-aff b55 c04 c3c cf3 d00 d3b-d3c d81 eba ece 1715 180f
1abf-1ace 1cf7 1df6-1dfa 32ff a7f2-a7f4 a82c a8ff ab69 10781-10785 10787-107b0 107b2-107ba 10d24-10d27
10eab-10eac 10efd-10eff 10f46-10f50 10f82-10f85 11070 11073-11074 110c2 11145-11146 111ce-111cf 11241
1133b 1145e 1182c-1183a 11930-11935 11937-11938 1193b-1193e 11940 11942-11943 119d1-119d7 119da-119e0
119e4 11a01-11a0a 11a33-11a39 11a3b-11a3e 11a47 11a51-11a5b 11a8a-11a99 11d31-11d36 11d3a 11d3c-11d3d
11d3f-11d45 11d47 11d8a-11d8e 11d90-11d91 11d93-11d97 11ef3-11ef6 11f00-11f01 11f03 11f34-11f3a
11f3e-11f42 13440 13447-13455 16f4f 16f7f-16f87 16fe4 16ff0-16ff1 1cf00-1cf2d 1cf30-1cf46 1e030-1e06d
1e08f 1e130-1e136 1e2ae 1e2ec-1e2ef 1e4ec-1e4ef 1f16c 1fbf0-1fbf9"""
# Lower case of letters that Unicode 16.0 and 17.0 added: first-last:distance
LOWER_ADDED = ("1c89:1 a7cb:-42567 a7cc:1 a7ce:1 a7d2:1 a7d4:1 a7da:1 a7dc:-42561 10d50-10d65:32 "
               "16ea0-16eb8:27")
VERSION = unicodedata.unidata_version
HEAD = f"""// SPDX-License-Identifier: Apache-2.0
// Made by make_unicode.py (Unicode {VERSION}, categories with what 16.0 added); do not edit.
#include "rapt/base/unicode_tables.h"

namespace rapt::unicode {{
// clang-format off
"""
FOOT = "// clang-format on\n\n}  // namespace rapt::unicode\n"


def array(kind, name, values):
    lines, line = [], " "
    for v in values:
        text = f" {v},"
        if len(line) + len(text) > 108:
            lines.append(line)
            line = " "
        line += text
    lines.append(line)
    body = "\n".join(lines)
    count = f"const std::size_t {name}Count = sizeof({name}) / sizeof({name}[0]);"
    return f"\nconst {kind} {name}[] = {{\n{body}\n}};\n{count}\n"


def spans(text):
    for span in text.split():
        first, last = (span.split("-") * 2)[:2]
        yield int(first, 16), int(last, 16)


def main():
    here = pathlib.Path(__file__).parent
    points = range(0x110000)
    category = [unicodedata.category(chr(c)) for c in points]
    for entry in ADDED_IN_16.split():
        span, name = entry.split(":")
        for first, last in spans(span):
            category[first:last + 1] = [name] * (last + 1 - first)
    runs = [c << 5 | NAMES.index(category[c]) for c in points if c == 0 or category[c] != category[c - 1]]

    def is_plain(c):
        return 0xAC00 <= c <= 0xD7A3 or 0xD800 <= c <= 0xDFFF

    lower = []  # runs of [first, last, step, delta]: every step-th letter moves by delta
    for c in points:
        if is_plain(c):
            continue
        to = chr(c).lower()
        if len(to) != 1 or ord(to) == c:
            continue
        delta = ord(to) - c
        if lower and lower[-1][3] == delta and c - lower[-1][1] in (1, 2) and (
                lower[-1][0] == lower[-1][1] or lower[-1][2] == c - lower[-1][1]):
            lower[-1][2] = c - lower[-1][1]
            lower[-1][1] = c
        else:
            lower.append([c, c, 1, delta])
    for entry in LOWER_ADDED.split():
        span, delta = entry.split(":")
        lower += [[first, last, 1, int(delta)] for first, last in spans(span)]
    newer9 = sorted(list(spans(NEWER_THAN_9)) + [s for entry in ADDED_IN_16.split()
                                                 for s in spans(entry.split(":")[0]) if ":M" in entry
                                                 and entry != "1171e:Mc"])
    too_new = {c for first, last in newer9 for c in range(first, last + 1)}
    classes = []
    combining = [0 if c in too_new else unicodedata.combining(chr(c)) for c in points]
    for c in points:  # canonical combining classes as runs
        if c == 0 or combining[c] != combining[c - 1]:
            classes.append(c << 8 | combining[c])
    (here / "unicode_categories.cc").write_text(
        HEAD + array("std::uint32_t", "kCategoryRuns", runs) +
        array("std::int32_t", "kLowerRuns", [v for run in lower for v in run]) +
        array("std::uint32_t", "kCombiningRuns", classes) +
        array("std::uint32_t", "kNewerThan8", [v for s in spans(NEWER_THAN_8) for v in s]) +
        array("std::uint32_t", "kNewerThan9", [v for s in newer9 for v in s]) + FOOT)

    index, pool, pairs = [], [], []
    for c in points:
        parts = unicodedata.decomposition(chr(c)).split()
        if not parts or is_plain(c) or c in too_new:
            continue
        compat = parts[0].startswith("<")
        to = [int(p, 16) for p in (parts[1:] if compat else parts)]
        index.append(c << 8 | compat << 7 | len(to))
        pool += to
        if not compat and len(to) == 2 and unicodedata.normalize("NFC", chr(c)) == chr(c):
            pairs.append((to[0], to[1], c))
    (here / "unicode_decompositions.cc").write_text(
        HEAD + array("std::uint32_t", "kDecompositions", index) +
        array("std::uint32_t", "kDecompositionPool", pool) +
        array("std::uint32_t", "kCompositions", [v for p in sorted(pairs) for v in p]) + FOOT)


if __name__ == "__main__":
    main()
