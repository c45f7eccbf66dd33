# SPDX-License-Identifier: Apache-2.0
"""Toys of decoders for make_families.py."""
import transformers as T


def define(toy, llama, rope, vocab):
    pass
