"""A caller that means another instance is told so."""

from tieline_agentctl.guard import stranger


def test_no_header_and_the_right_one_pass():
    assert stranger("exec-9", "") is None
    assert stranger("exec-9", "exec-9") is None


def test_another_instance_is_named():
    body = stranger("exec-9", "exec-2")

    assert body is not None
    assert (body["expected_id"], body["got_id"], body["recycled_port"]) == ("exec-9", "exec-2", True)
    assert body["error"] == "instance no longer exists at this port"
