"""Shapes of JSON as the wire page writes them: `name?` may be absent, all else must be there, nothing more may be."""

from __future__ import annotations

import re
from typing import Any

Shape = Any

SECONDS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
NANO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)")
THREE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(Z|[+-]\d\d:\d\d)")
SHA = re.compile(r"[0-9a-f]{40}")
ANY = object()


class Map:
    """An object with any names and values of one shape."""

    def __init__(self, of: Shape) -> None:
        self.of = of


class Either:
    """One of several shapes; `None` is null."""

    def __init__(self, *shapes: Shape) -> None:
        self.shapes = shapes


def check(value: Any, shape: Shape, where: str = "$") -> None:
    """An AssertionError names the place that is not as the shape says."""
    if shape is ANY:
        return
    if isinstance(shape, Either):
        assert any(_fits(value, one, where) for one in shape.shapes), f"{where}: {value!r}"
    elif isinstance(shape, dict):
        assert isinstance(value, dict), f"{where}: {value!r} is no object"
        names = {name.removesuffix("?"): name for name in shape}
        assert value.keys() <= names.keys(), f"{where}: unknown {sorted(value.keys() - names.keys())}"
        for plain, name in names.items():
            assert plain in value or name.endswith("?"), f"{where}.{plain} is missing"
            if plain in value:
                check(value[plain], shape[name], f"{where}.{plain}")
    elif isinstance(shape, Map):
        assert isinstance(value, dict), f"{where}: {value!r} is no object"
        for name, item in value.items():
            check(item, shape.of, f"{where}.{name}")
    elif isinstance(shape, list):
        assert isinstance(value, list), f"{where}: {value!r} is no list"
        for number, item in enumerate(value):
            check(item, shape[0], f"{where}[{number}]")
    elif isinstance(shape, re.Pattern):
        assert isinstance(value, str), f"{where}: {value!r} is no string"
        assert shape.fullmatch(value), f"{where}: {value!r}"
    elif isinstance(shape, type):
        assert type(value) is shape, f"{where}: {value!r} is no {shape.__name__}"
    else:
        assert value == shape, f"{where}: {value!r} is not {shape!r}"
        assert type(value) is type(shape), f"{where}: {value!r}"


def _fits(value: Any, shape: Shape, where: str) -> bool:
    try:
        check(value, shape, where)
    except AssertionError:
        return False
    return True
