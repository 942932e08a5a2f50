from typing import Any

import pytest
from tieline_agentctl.mcp_catalogue import BadTools, Catalogue, Snapshot, snapshot


def tool(name: str = "page__title", **more: Any) -> dict[str, Any]:
    return {"plugin_id": "page", "local_name": "title", "exposed_name": name, "description": "d", **more}


def tools(*names: str, generation: str | int = "g", revision: int = 1) -> Snapshot:
    return snapshot({"generation": generation, "revision": revision, "tools": [tool(name) for name in names]})


def names(catalogue: Catalogue, surface: str = "kanban-task") -> list[str]:
    return list(catalogue.tools(surface))


def test_a_tool_is_shown_as_mcp_spells_it():
    given = tool(
        plugin_display_name="The page",
        input_schema={"properties": {"upper": {"type": "boolean"}}},
        output_schema={"type": "object"},
        read_only_hint=True,
        destructive_hint=False,
        idempotent_hint=None,
    )

    assert snapshot({"tools": [given]}).tools[0].shown == {
        "name": "page__title",
        "description": "d",
        "inputSchema": {"type": "object", "properties": {"upper": {"type": "boolean"}}},
        "outputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True, "destructiveHint": False, "title": "The page"},
    }


def test_a_tool_with_a_name_only_is_a_tool_without_arguments():
    bare = {"plugin_id": "p", "local_name": "l", "exposed_name": "e", "description": None}

    assert snapshot({"tools": [bare]}).tools[0].shown == {
        "name": "e",
        "description": "",
        "inputSchema": {"type": "object"},
        "annotations": {},
    }


@pytest.mark.parametrize("output", [{"type": "array"}, {}, None, "text"])
def test_an_output_schema_that_agents_do_not_know_is_not_shown(output: Any):
    assert "outputSchema" not in snapshot({"tools": [tool(output_schema=output)]}).tools[0].shown


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ([], "not a JSON object"),
        ({"generation": True}, "generation: not a string"),
        ({"generation": ["g"]}, "generation: not a string"),
        ({"revision": "1"}, "revision: not a whole number"),
        ({"revision": True}, "revision: not a whole number"),
        ({"tools": {"a": 1}}, "tools: not a list"),
        ({"tools": ["a"]}, "tools.0: not a JSON object"),
        ({"tools": [tool(), tool(plugin_id="")]}, "tools.1.plugin_id is required"),
        ({"tools": [tool(local_name=None)]}, "tools.0.local_name is required"),
        ({"tools": [tool(exposed_name=3)]}, "tools.0.exposed_name is required"),
        ({"tools": [tool(surfaces="all")]}, "tools.0.surfaces: not a list"),
        ({"tools": [tool(input_schema=[1])]}, "tools.0.input_schema: not a JSON object"),
    ],
)
def test_what_is_no_snapshot_is_refused_with_the_place(wrong: Any, told: str):
    with pytest.raises(BadTools) as caught:
        snapshot(wrong)

    assert str(caught.value) == told


def test_one_malformed_tool_in_an_answer_takes_no_other_with_it():
    found = snapshot({"tools": [tool("a"), {"exposed_name": "b"}, tool("c")]}, lenient=True)

    assert [one.exposed_name for one in found.tools] == ["a", "c"]


def test_an_empty_answer_is_a_snapshot_without_tools():
    assert snapshot({}) == Snapshot()
    assert snapshot({"tools": None, "generation": None, "revision": None}) == Snapshot()


def test_pushed_and_answered_tools_of_different_backends_are_both_offered():
    catalogue = Catalogue()
    catalogue.push(tools("a", "both", generation="one"))
    catalogue.answer(tools("b", "both", generation="two"))

    assert names(catalogue) == ["a", "both", "b"]
    assert catalogue.answered is not None
    assert catalogue.tools("")["both"] is catalogue.answered.tools[1]


def test_of_one_generation_only_the_newest_counts():
    catalogue = Catalogue()
    catalogue.push(tools("a", "b", revision=4))
    catalogue.answer(tools("a", revision=5))
    assert names(catalogue) == ["a"]

    catalogue.push(tools("c", revision=6))
    assert names(catalogue) == ["c"]


def test_an_older_push_of_the_same_generation_changes_nothing():
    catalogue = Catalogue()
    newest = catalogue.push(tools("a", revision=4))

    assert catalogue.push(tools("old", revision=3)) is newest
    assert names(catalogue) == ["a"]


def test_a_push_of_another_generation_replaces_the_one_before():
    catalogue = Catalogue()
    catalogue.push(tools("a", generation="one", revision=9))
    catalogue.push(tools("b", generation="two", revision=1))

    assert names(catalogue) == ["b"]


def test_a_tool_is_offered_on_its_surfaces_only():
    catalogue = Catalogue()
    catalogue.push(snapshot({"tools": [tool("here", surfaces=["kanban-task"]), tool("everywhere")]}))

    assert names(catalogue, "kanban-task") == ["here", "everywhere"]
    assert names(catalogue, "configuration") == ["everywhere"]
