"""The table of actions: each can travel, and what does not exist is refused."""

from __future__ import annotations

import pytest
from tieline_protocol import frontend, subjects
from tieline_protocol.errors import Code, Refused
from tieline_protocol.frontend import ACTIONS, Route, agent, chat, git, remotes, sessions, workspace


def test_an_action_that_does_not_exist_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        frontend.action("agent.frobnicate")

    assert refused.value.code is Code.UNKNOWN_ACTION
    assert frontend.action("auth") is ACTIONS["auth"]


@pytest.mark.parametrize("action", ACTIONS.values(), ids=str)
def test_every_action_can_travel(action: frontend.Action) -> None:
    assert ACTIONS[action.name] is action
    assert action.seconds > 0
    assert bool(action.endpoint) or action.route is not Route.SERVICE
    if action.route is Route.OWNER:
        assert subjects.command("ada", "s1", action.name).endswith(action.name)
        assert action.named in action.payload.model_fields
    if action.endpoint:
        assert subjects.rpc(action.service, action.endpoint, "ada")


def test_no_action_stands_in_two_places() -> None:
    subjects_of = (sessions, agent, workspace, git, remotes, chat)

    assert sum(len(module.ACTIONS) for module in subjects_of) == len(ACTIONS)
