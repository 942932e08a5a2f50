from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tieline_agentctl.agent_events import Translator, is_history, is_plan, starts_a_turn

MODEL = {
    "type": "select",
    "id": "m",
    "name": "Model",
    "category": "model",
    "currentValue": "fast",
    "options": [{"value": "fast", "name": "Fast"}],
}
TOLD_MODEL = {
    "type": "select",
    "id": "m",
    "name": "Model",
    "category": "model",
    "current_value": "fast",
    "options": [{"value": "fast", "name": "Fast"}],
}


def told(kind: str, translator: Translator | None = None, **members: Any) -> dict[str, Any]:
    event = (translator or Translator("s1")).event_of({"sessionUpdate": kind, **members})
    assert event.pop("session_id") == "s1"
    assert [event.pop(name) for name in list(event) if name.startswith("supports_")] == [False] * 4
    return event


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


@pytest.mark.parametrize("chunk", ["Hello", " ", "\n\n", "  - a\t", "\r\n", "\0", "👋"])
def test_a_chunk_of_text_is_passed_on_to_the_byte(chunk: str):
    """B89"""
    assert told("agent_message_chunk", content=text(chunk)) == {"type": "message_chunk", "text": chunk}


@pytest.mark.parametrize("content", [text(""), {"type": "text"}, None, {}])
def test_an_empty_chunk_is_harmless(content: Any):
    """B89"""
    assert told("agent_message_chunk", content=content) == {"type": "message_chunk"}


def test_a_chunk_that_is_no_text_is_a_content_block():
    image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}

    assert told("agent_message_chunk", content=image, messageId="m1") == {
        "type": "message_chunk",
        "content_blocks": [{"type": "image", "data": "aGk=", "mime_type": "image/png"}],
        "protocol_message_id": "m1",
    }


def test_what_the_user_said_is_marked():
    assert told("user_message_chunk", content=text("hi"))["role"] == "user"


def test_reasoning():
    assert told("agent_thought_chunk", content=text("hm"), messageId="m1") == {
        "type": "reasoning",
        "reasoning_text": "hm",
        "protocol_message_id": "m1",
    }


def test_tools_are_told():
    translator = Translator("s1")

    assert told("tool_call", translator, toolCallId="t1", title="x")["type"] == "tool_call"
    assert (
        told("tool_call_update", translator, toolCallId="t1", status="completed")["tool_status"] == "complete"
    )


def test_a_plan_replaces_the_one_before_and_may_be_empty():
    entries = [{"content": "write test", "status": "in_progress", "priority": "high"}, 7]

    assert told("plan", entries=entries) == {
        "type": "plan",
        "plan_entries": [{"description": "write test", "status": "in_progress", "priority": "high"}],
    }
    assert told("plan", entries=[]) == {"type": "plan"}
    assert told("plan_removed", planId="p") == {"type": "plan"}


def test_plans_of_other_forms():
    assert told("plan_update", plan={"type": "items", "entries": [{"content": "a"}]}) == {
        "type": "plan",
        "plan_entries": [{"description": "a"}],
    }
    assert told("plan_update", plan={"type": "markdown", "content": "# Steps"}) == {
        "type": "agent_plan",
        "plan_content": "# Steps",
    }
    assert told("plan_update", plan={"type": "file", "uri": "file:///p"})["plan_content"] == "file:///p"


def test_slash_commands():
    commands = [{"name": "slow", "description": "slow answer", "input": {"hint": "10s"}}]

    assert told("available_commands_update", availableCommands=commands) == {
        "type": "available_commands",
        "available_commands": [{"name": "slow", "description": "slow answer", "input_hint": "10s"}],
    }


def test_the_window_never_shrinks_within_a_session():
    translator = Translator("s1")

    assert told("usage_update", translator, used=24_000, size=1_000_000) == {
        "type": "context_window",
        "context_window_size": 1_000_000,
        "context_window_used": 24_000,
        "context_window_remaining": 976_000,
        "context_efficiency": 2.4,
    }
    assert told("usage_update", translator, used=1, size=10)["context_window_size"] == 1_000_000


def test_a_window_without_numbers_is_told_without_numbers():
    """B28"""
    assert told("usage_update") == {"type": "context_window"}


def test_the_name_of_the_session():
    assert told("session_info_update", title="Fix test", updatedAt="2031", _meta={"a": 1}) == {
        "type": "session_info",
        "session_title": "Fix test",
        "session_updated_at": "2031",
        "session_meta": {"a": 1},
    }


def test_an_update_of_a_kind_that_nobody_knows_is_passed_on():
    assert told("brand_new", x=1) == {
        "type": "acp_update",
        "data": {"update": {"sessionUpdate": "brand_new", "x": 1}},
    }


def test_no_update_can_pass_for_an_event_of_ours():
    for kind in ("complete", "error", "permission_request"):
        assert told(kind)["type"] == "acp_update"


def test_modes_are_told_with_the_choice_of_them():
    translator = Translator("s1")
    modes = {
        "currentModeId": "default",
        "availableModes": [{"id": "default", "name": "Default", "description": "d"}],
    }
    available = [{"id": "default", "name": "Default", "description": "d"}]

    (event,) = translator.set_up({"modes": modes})

    assert (event["type"], event["current_mode_id"], event["available_modes"]) == (
        "session_mode",
        "default",
        available,
    )
    assert told("current_mode_update", translator, currentModeId="plan") == {
        "type": "session_mode",
        "current_mode_id": "plan",
        "available_modes": available,
    }
    assert translator.mode_set("default")["current_mode_id"] == "default"


def test_models_are_the_config_option_of_that_category():
    translator = Translator("s1")

    (event,) = translator.set_up({"configOptions": [MODEL, {"type": "select", "id": "e", "name": "Effort"}]})

    assert event["type"] == "session_models"
    assert event["current_model_id"] == "fast"
    assert event["session_models"] == [{"model_id": "fast", "name": "Fast"}]
    assert "data" not in event
    assert translator.model_state() == {
        "current_model_id": "fast",
        "models": [{"model_id": "fast", "name": "Fast"}],
        "config_options": [TOLD_MODEL, {"type": "select", "id": "e", "name": "Effort", "current_value": ""}],
    }
    assert translator.model_option() == TOLD_MODEL


def test_changed_options_say_who_changed_them():
    translator = Translator("s1")

    assert told("config_option_update", translator, configOptions=[MODEL])["data"] == {
        "config_options_source": "provider_update"
    }
    assert translator.options_set("m", {"configOptions": [MODEL]})["data"] == {
        "config_options_source": "provider_response",
        "config_options_config_id": "m",
    }


def test_an_agent_without_modes_and_models_exposes_nothing():
    translator = Translator("s1")

    assert translator.set_up({}) == []
    assert translator.model_state() == {}
    assert translator.model_option() is None


def test_what_is_history_and_what_starts_a_turn():
    assert is_history({"sessionUpdate": "tool_call_update"})
    assert not is_history({"sessionUpdate": "usage_update"})
    assert is_plan({"sessionUpdate": "plan"})
    assert starts_a_turn({"sessionUpdate": "agent_message_chunk"})
    assert not starts_a_turn({"sessionUpdate": "tool_call_update"})
    assert not starts_a_turn({"sessionUpdate": ["tool_call"]})


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
kinds = st.sampled_from(
    [
        "agent_message_chunk",
        "agent_thought_chunk",
        "tool_call",
        "tool_call_update",
        "plan",
        "plan_update",
        "available_commands_update",
        "current_mode_update",
        "config_option_update",
        "session_info_update",
        "usage_update",
    ]
)
keys = st.sampled_from(
    [
        "content",
        "toolCallId",
        "title",
        "entries",
        "plan",
        "availableCommands",
        "currentModeId",
        "configOptions",
        "used",
    ]
)


@given(st.lists(st.tuples(kinds | anything, st.dictionaries(keys, anything))))
def test_whatever_an_agent_says_is_an_event(updates: list[tuple[Any, dict[str, Any]]]):
    translator = Translator("s1")
    for kind, members in updates:
        event = translator.event_of({**members, "sessionUpdate": kind})
        assert event["session_id"] == "s1"
        assert None not in event.values()
