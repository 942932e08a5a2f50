"""Tools as the loop and the model see them."""

from typing import Any

from tieline_agent import tools
from tieline_agent.tools import OnProgress, RemoteToolSpec
from tieline_ops.scripted_model import validation
from tieline_protocol.naming import Pair
from tieline_protocol.remotes import RemoteFunction


async def echo(
    remotename: str,
    function: str,
    args: dict[str, Any],
    timeout: float,
    on_progress: OnProgress | None = None,
    traceparent: str | None = None,
) -> Any:
    """A call that answers with what it was given."""
    return [remotename, function, args, timeout]


def function(name: str, description: str = "", **parameters: Any) -> RemoteFunction:
    return RemoteFunction(name=name, description=description, parameters=parameters)


class Clock:
    """A tool of the agent's own."""

    name = "cal__now"
    description = "The time."

    def to_openai_dict(self) -> dict[str, Any]:
        return {"type": "function", "function": {"name": self.name, "description": self.description}}

    async def execute_async(self, /, **args: Any) -> Any:
        return 12


def specs(*functions: RemoteFunction, remotename: str = "cal") -> list[RemoteToolSpec]:
    return tools.specs([(remotename, functions)], echo)


async def test_a_tool_reaches_its_function_under_the_names_that_the_remote_gave():
    """B09: a mapped call reaches the remote under the original name, byte for byte."""
    (spec,) = specs(function("respond to.Event", "Answer."), remotename="my cal")

    assert await spec.execute_async(self=1, name="x") == [
        "my cal",
        "respond to.Event",
        {"self": 1, "name": "x"},
        30,
    ]
    assert spec.description == "Answer."
    assert spec.pair == ("my cal", "respond to.Event")


def test_no_function_makes_the_provider_refuse_the_others():
    """B12: odd schemas, a description of 5,000 characters; the good functions work in the same request."""
    odd = [
        function("none"),
        function("string", type="string"),
        function("list", type="object", properties=[]),
        function("long", "d" * 5_000),
        function("good", "Good.", type="object", properties={"a": {"type": "string"}}, required=["a"]),
    ]
    box = tools.toolbox([], specs(*odd))
    validation.check({"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": box.to_openai()})

    assert box.to_openai()[-1]["function"] == {
        "name": "cal__good",
        "description": "Good.",
        "parameters": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
    }


def test_a_tool_of_the_agents_own_keeps_its_name():
    """B11: a remote function named as a built-in tool."""
    box = tools.toolbox([Clock()], specs(function("now")))
    own, remote = box.tools.values()

    assert (own.name, box.pairs["cal__now"]) == ("cal__now", ("", "cal__now"))
    assert remote.name != "cal__now"
    assert box.pairs[remote.name] == Pair("cal", "now")
    assert remote.to_openai_dict()["function"]["name"] == remote.name


def test_the_model_never_gets_more_tools_than_it_takes():
    """B14: the request carries 128, the rest is named."""
    box = tools.toolbox([Clock()], specs(*[function(f"f{number}") for number in range(150)]))

    assert len(box.to_openai()) == 128
    assert len(box.dropped) == 23
