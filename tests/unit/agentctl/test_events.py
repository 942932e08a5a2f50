from tieline_agentctl.events import event

FOUR = {
    "supports_image": False,
    "supports_audio": False,
    "supports_embedded_context": False,
    "supports_prompt_queueing": False,
}


def test_the_four_capabilities_are_on_every_event():
    assert event("error", error="x") == {"type": "error", "error": "x", **FOUR}


def test_what_is_empty_is_left_out():
    """B28: absent, never null."""
    empty = {"a": None, "b": "", "c": 0, "d": False, "e": [], "f": {}}

    assert event("complete", **empty, g={"exit_code": 0}) == {
        "type": "complete",
        "g": {"exit_code": 0},
        **FOUR,
    }
