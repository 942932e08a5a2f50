from typing import Any

import pytest
from tieline_agentctl.permissions import (
    ALREADY_RESOLVED,
    IN_PROGRESS,
    MOST_OPEN,
    NOT_FOUND,
    NOT_OFFERED,
    STALE,
    TOMBSTONES,
    Permission,
    Permissions,
    Refused,
    from_agent,
)

OPTIONS = [
    {"optionId": "reject", "name": "Reject", "kind": "reject_once"},
    {"optionId": "allow", "name": "Allow", "kind": "allow_once", "_meta": {"x": 1}},
]


def asked(number: int = 1, options: Any = OPTIONS, **tool: Any) -> Permission:
    told = {
        "toolCallId": "t1",
        "title": "Run tests",
        "kind": "execute",
        "rawInput": {"command": "pytest"},
    } | tool
    return from_agent(
        number,
        {"sessionId": "s1", "options": options},
        told,
        request_id=f"r{number}",
        nanoseconds=1933,
        created_at="2031-04-05T06:07:08Z",
    )


def code(permissions: Permissions, request_id: str, pending_id: str, option_id: str | None) -> str:
    with pytest.raises(Refused) as refused:
        permissions.claim(request_id, pending_id, option_id)
    return refused.value.code


def test_a_question_of_the_agent_is_read():
    permission = asked()

    assert permission.pending_id == "s1-t1-1933"
    assert permission.title == "Run tests"
    assert permission.action_type == "command"
    assert permission.details == {"command": "pytest"}
    assert permission.options[1] == {
        "option_id": "allow",
        "name": "Allow",
        "kind": "allow_once",
        "metadata": {"x": 1},
    }
    assert permission.kind_of("allow") == "allow_once"
    assert permission.kind_of("nothing") == ""


@pytest.mark.parametrize(
    ("tool", "type"),
    [
        ({"kind": "edit"}, "file_write"),
        ({"kind": "read"}, "file_read"),
        ({"kind": "fetch"}, "network"),
        ({"kind": "think"}, "other"),
        ({"kind": 7}, "other"),
        ({"title": "mcp__github__issue"}, "mcp_tool"),
        ({"rawInput": {"server": "a", "tool": "b"}}, "mcp_tool"),
    ],
)
def test_the_kind_of_tool_says_the_type_of_action(tool: dict[str, Any], type: str):
    assert asked(**tool).action_type == type


def test_details_are_found_under_the_names_that_agents_use():
    permission = asked(
        rawInput={"cmd": ["git", "push"], "workdir": "/w", "filePath": "a", "url": "http://x", "command": 3}
    )

    assert permission.details == {"command": "git push", "cwd": "/w", "path": "a", "destination": "http://x"}


def test_secrets_do_not_show_and_long_strings_are_cut():
    permission = asked(rawInput={"command": "x --token hunter2hunter2", "description": "d" * 5_000})

    assert "hunter2" not in permission.details["command"]
    assert permission.was_redacted
    assert len(permission.description) == 4_096


def test_a_question_made_of_wrong_types_is_still_a_question():
    permission = asked(options=[1, {"optionId": 2}], rawInput="text", title=None)

    assert permission.options == [{"option_id": "", "name": "", "kind": ""}]
    assert permission.details == {}
    assert asked(options=None).options == []
    assert asked(options=7).options == []


def test_auto_approval_takes_the_first_option_that_allows():
    assert asked().first_allowing() == "allow"
    assert asked(options=OPTIONS[:1]).first_allowing() == "reject"
    assert asked(options=[]).first_allowing() == ""


def test_an_answer_is_given_once():
    permissions, permission = Permissions(), asked()
    assert permissions.opened(permission)

    assert permissions.claim("r1", permission.pending_id, "allow") is permission
    assert code(permissions, "r1", permission.pending_id, "allow") == IN_PROGRESS
    permissions.answered(permission)
    assert code(permissions, "r1", permission.pending_id, "allow") == ALREADY_RESOLVED
    assert len(permissions) == 0


def test_a_cancelled_question_is_stale():
    permissions, permission = Permissions(), asked()
    permissions.opened(permission)
    permissions.claim("r1", permission.pending_id, None)
    permissions.cancelled(permission)

    assert code(permissions, "r1", permission.pending_id, "allow") == STALE


def test_wrong_ids_and_options_are_told_apart():
    permissions, permission = Permissions(), asked()
    permissions.opened(permission)

    assert code(permissions, "r9", permission.pending_id, "allow") == NOT_FOUND
    assert code(permissions, "r1", "other", "allow") == STALE
    assert code(permissions, "r1", permission.pending_id, "maybe") == NOT_OFFERED
    assert permissions.claim("r1", permission.pending_id, "reject") is permission


def test_a_question_is_found_by_its_pending_id():
    permissions, permission = Permissions(), asked()
    permissions.opened(permission)

    assert permissions.with_pending(permission.pending_id) is permission
    with pytest.raises(Refused) as refused:
        permissions.with_pending("other")
    assert refused.value.code == NOT_FOUND


def test_cancelling_all_spares_what_is_being_answered():
    permissions, first, second = Permissions(), asked(1), asked(2, toolCallId="t2")
    permissions.opened(first)
    permissions.opened(second)
    permissions.claim("r1", first.pending_id, "allow")

    assert permissions.cancel_all() == [second]
    assert permissions.cancel_all() == []
    permissions.cancelled(second)  # told twice, still one tombstone
    assert len(permissions) == 1


def test_only_so_many_can_be_open():
    permissions = Permissions()

    assert all(permissions.opened(asked(number)) for number in range(MOST_OPEN))
    assert not permissions.opened(asked(MOST_OPEN))


def test_the_last_finished_ones_are_remembered():
    permissions = Permissions()
    for number in range(TOMBSTONES + 1):
        permission = asked(number)
        permissions.opened(permission)
        permissions.answered(permission)

    assert code(permissions, "r0", "x", "allow") == NOT_FOUND
    assert code(permissions, "r1", "x", "allow") == ALREADY_RESOLVED


def test_the_list_says_what_the_user_must_know():
    permissions = Permissions()
    permissions.opened(asked(rawInput={"command": "pytest", "description": "run them"}))

    assert permissions.listed("task-1", "") == [
        {
            "task_id": "task-1",
            "session_id": "s1",
            "request_id": "r1",
            "pending_id": "s1-t1-1933",
            "tool_call_id": "t1",
            "title": "Run tests",
            "action": {"type": "command", "description": "run them", "command": "pytest", "redacted": False},
            "options": asked().options,
            "created_at": "2031-04-05T06:07:08Z",
            "status": "pending",
        }
    ]
    assert permissions.listed("", "sess-41")[0]["session_id"] == "sess-41"
