from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field
from tieline import signature
from tieline.errors import TielineError
from tieline.remote import Call


class Point(BaseModel):
    x: float
    y: float = 0.0


async def open_tab(url: str, call: Call, background: bool = False) -> str:
    """Open a page and stay on it.

    Args:
        url: the address of
            the page
        background (bool): whether the tab stays behind

    Returns:
        What happened.
    """
    return url


def test_a_function_is_offered_as_its_hints_and_docstring_say():
    read = signature.of(open_tab, Call)

    assert read.as_registered() == {
        "name": "open_tab",
        "description": "Open a page and stay on it.",
        "parameters": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "url": {"type": "string", "description": "the address of the page"},
                "background": {
                    "type": "boolean",
                    "default": False,
                    "description": "whether the tab stays behind",
                },
            },
            "required": ["url"],
        },
    }
    assert read.context == "call"


def test_parameters_may_be_described_without_a_heading():
    def f(city: str):
        """Weather.

        city: where
        and: this is no parameter
        """

    read = signature.of(f, Call)

    assert read.parameters["properties"]["city"]["description"] == "where"
    assert read.description == "Weather.\n\nand: this is no parameter"


def test_a_function_without_hints_docstring_or_parameters_can_be_offered_too():
    def f(a, b=1): ...

    def g(): ...

    assert signature.of(f, Call).parameters["required"] == ["a"]
    assert signature.of(g, Call, "other").as_registered() == {
        "name": "other",
        "description": "",
        "parameters": {"type": "object", "additionalProperties": False, "properties": {}},
    }


def test_arguments_come_in_the_types_of_the_hints():
    def f(
        where: Point, mode: Literal["a", "b"] = "a", size: Annotated[int, Field(gt=0)] = 1, more: Any = None
    ): ...

    arguments = signature.of(f, Call).arguments({"where": {"x": 1}, "size": 2})

    assert arguments == {"where": Point(x=1.0), "size": 2}


@pytest.mark.parametrize("args", [{}, {"url": 7}, {"url": "x", "other": 1}, [], "x", None])
def test_arguments_that_do_not_fit_are_named(args):
    with pytest.raises(TielineError) as caught:
        signature.of(open_tab, Call).arguments(args)

    assert caught.value.code == "invalid_arguments"


def test_a_function_that_cannot_be_called_by_names_is_refused_when_it_is_declared():
    def f(*args: int): ...

    with pytest.raises(TypeError, match="by name"):
        signature.of(f, Call)
