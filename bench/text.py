"""Text such as agents write and programs print: the sources of Python's own library, the same on every machine.

A batch of it packs as real output does (batch.py), which one sentence again and again would not.
"""

from __future__ import annotations

import argparse
import functools
import inspect
import typing

_PLAIN = str.maketrans(dict.fromkeys('"\\\n\t', " "))


@functools.cache
def text() -> str:
    """A third of a megabyte of it, in characters that JSON needs no escapes for."""
    whole = "".join(inspect.getsource(module) for module in (argparse, inspect, typing))
    return "".join(letter for letter in whole.translate(_PLAIN) if " " <= letter <= "~")


def excerpt(length: int, at: int = 0) -> str:
    """`length` characters from position `at` on; after its end it begins again."""
    whole = text()
    at %= len(whole)
    return (whole[at : at + length] + whole * (length // len(whole) + 1))[:length]
