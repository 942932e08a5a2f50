import pytest
from tieline_agentctl import acp_shapes as shapes


def test_values_of_the_wrong_type_are_nothing():
    assert (shapes.text("a"), shapes.text(1)) == ("a", "")
    assert (shapes.mapping({"a": 1}), shapes.mapping([])) == ({"a": 1}, {})
    assert (shapes.objects([{}, 1]), shapes.objects({})) == ([{}], [])
    assert [shapes.count(value) for value in (3, 0, -3, True, "3")] == [3, 0, 0, 0, 0]


def test_an_image_block_keeps_its_data():
    block = {"type": "image", "data": "aGk=", "mimeType": "image/png"}

    assert shapes.content_block(block) == {"type": "image", "data": "aGk=", "mime_type": "image/png"}


def test_an_embedded_resource_is_laid_flat():
    block = {"type": "resource", "resource": {"uri": "file:///a", "text": "x", "mimeType": "text/plain"}}

    assert shapes.content_block(block) == {
        "type": "resource",
        "text": "x",
        "uri": "file:///a",
        "mime_type": "text/plain",
    }


def test_a_link_keeps_what_is_known_of_its_target():
    link = {
        "type": "resource_link",
        "uri": "file:///a",
        "name": "a",
        "title": "A",
        "description": "d",
        "size": 3,
    }

    assert shapes.content_block(link) == link


def test_config_options_come_in_the_wires_spelling():
    told = [
        {
            "type": "select",
            "id": "model",
            "name": "Model",
            "category": "model",
            "description": "d",
            "currentValue": "small",
            "options": [{"value": "small", "name": "Small", "description": "cheap"}],
        },
        {
            "type": "select",
            "id": "g",
            "name": "Grouped",
            "currentValue": "a",
            "options": [{"group": "1", "name": "One", "options": [{"value": "a", "name": "A"}]}],
        },
        {"type": "boolean", "id": "b", "name": "B", "currentValue": True},
    ]

    assert shapes.config_options(told) == [
        {
            "type": "select",
            "id": "model",
            "name": "Model",
            "current_value": "small",
            "description": "d",
            "category": "model",
            "options": [{"value": "small", "name": "Small", "description": "cheap"}],
        },
        {
            "type": "select",
            "id": "g",
            "name": "Grouped",
            "current_value": "a",
            "options": [{"value": "a", "name": "A"}],
        },
        {"type": "boolean", "id": "b", "name": "B", "current_value": "true"},
    ]


def test_choices_of_the_model_option_are_models():
    option = {
        "options": [
            {"value": "small", "name": "Small", "description": "cheap"},
            {"value": "big", "name": "Big"},
        ]
    }

    assert shapes.models(option) == [
        {"model_id": "small", "name": "Small", "description": "cheap"},
        {"model_id": "big", "name": "Big"},
    ]
    assert shapes.models({}) == []


def test_usage_says_whether_the_agent_counted_its_output():
    assert shapes.usage(
        {"inputTokens": 900, "outputTokens": 40, "totalTokens": 940, "cachedReadTokens": 5}
    ) == {
        "input_tokens": 900,
        "output_tokens": 40,
        "output_tokens_present": True,
        "total_tokens": 940,
        "cached_read_tokens": 5,
    }
    assert shapes.usage({"inputTokens": 1})["output_tokens_present"] is False
    assert shapes.usage(None) == {}


def test_ways_to_log_in_may_need_a_terminal():
    plain = {"id": "a", "name": "A"}
    told = {
        "id": "login",
        "name": "Log in",
        "description": "d",
        "_meta": {"terminal-auth": {"command": "agent", "args": ["login"], "label": "L"}},
    }

    assert shapes.auth_methods([plain, told, 7]) == [
        plain,
        {
            "id": "login",
            "name": "Log in",
            "description": "d",
            "meta": told["_meta"],
            "terminal_auth": {"command": "agent", "args": ["login"], "label": "L"},
        },
    ]
    assert shapes.auth_methods([{"_meta": {"terminal-auth": {"command": "x", "args": 7}}}])[0][
        "terminal_auth"
    ] == {"command": "x"}


@pytest.mark.parametrize(
    ("meta", "queueing"),
    [
        ({"promptQueueing": True}, True),
        ({"vendor": {"promptQueueing": True}}, True),
        ({"vendor": 1}, False),
        (None, False),
    ],
)
def test_an_agent_says_in_its_own_words_that_it_queues_prompts(meta: object, queueing: bool):
    assert shapes.prompt_queueing({"_meta": meta}) is queueing


def test_a_slash_command_may_have_a_hint():
    assert shapes.command({"name": "slow", "description": "d", "input": {"hint": "10s"}}) == {
        "name": "slow",
        "description": "d",
        "input_hint": "10s",
    }


def test_agents_keep_things_one_level_below_meta():
    assert shapes.in_meta({"_meta": {"vendor": {"b": "x"}}}, "a", "b") == "x"
    assert shapes.in_meta({"_meta": {"a": 1, "vendor": {"a": ""}}}, "a") == ""
    assert shapes.in_meta({}, "a") == ""
