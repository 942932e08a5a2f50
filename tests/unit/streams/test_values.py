from __future__ import annotations

from tieline_streams.values import MOST, Permissions, Processes


def request(pending: str = "p1") -> dict:
    return {
        "type": "permission_request",
        "pending_id": pending,
        "request_id": "r1",
        "permission_title": "Run tests",
        "permission_options": [{"option_id": "allow", "name": "Allow", "kind": "allow_once"}],
        "supports_image": False,
    }


def test_a_request_opens_a_permission_and_tells_what_a_card_needs():
    permissions = Permissions()

    assert permissions.heard("permission_request", request())

    (item,) = permissions.event()["open"]
    assert item["permission_title"] == "Run tests"
    assert "supports_image" not in item
    assert permissions
    assert permissions.items() == [item]


def test_the_same_request_twice_changes_nothing():
    permissions = Permissions()
    permissions.heard("permission_request", request())

    assert not permissions.heard("permission_request", request())


def test_a_permission_closes_when_it_is_cancelled_or_answered():
    permissions = Permissions()
    permissions.heard("permission_request", request("a"))
    permissions.heard("permission_request", request("b"))

    assert permissions.heard("permission_cancelled", {"pending_id": "a"})
    assert not permissions.heard("permission_cancelled", {"pending_id": "a"})
    assert permissions.remove("b")
    assert not permissions.remove(None)
    assert not permissions
    assert permissions.event() == {"type": "permissions", "open": []}


def test_what_names_no_permission_is_ignored():
    permissions = Permissions()

    assert not permissions.heard("permission_request", {"pending_id": None})
    assert not permissions.heard("permission_request", {"pending_id": ""})
    assert not permissions.heard("plan", {"pending_id": "a"})


def test_a_peer_that_makes_permissions_up_does_not_fill_the_memory():
    permissions = Permissions()
    for n in range(MOST + 5):
        permissions.heard("permission_request", request(f"p{n}"))

    assert len(permissions.items()) == MOST
    assert permissions.clear()
    assert not permissions.clear()


def status(id: object, status: str, **more: object) -> dict:
    return {"process_status": {"process_id": id, "status": status, "command": "make", **more}}


def test_processes_run_until_they_end():
    processes = Processes()

    assert processes.heard("process_status", status("a", "starting"))
    assert processes.heard("process_status", status("a", "running"))
    assert not processes.heard("process_status", status("a", "running"))
    assert processes.event()["running"] == [{"process_id": "a", "command": "make", "status": "running"}]
    assert processes.heard("process_status", status("a", "exited", exit_code=0))
    assert not processes.heard("process_status", status("b", "failed"))
    assert processes.event() == {"type": "processes", "running": []}


def test_frames_without_what_they_should_have_are_harmless():
    """B28: nulls and absent fields as the daemon in the field sends them."""
    processes = Processes()

    assert not processes.heard("process_status", {})
    assert not processes.heard("process_status", {"process_status": None})
    assert not processes.heard("process_status", status(None, "running"))
    assert not processes.heard("process_status", status("", "running"))
    assert not processes.heard("git_status", status("a", "running"))
