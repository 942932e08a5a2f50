from typing import Any

import pytest
from tieline_agentctl.envelope import RequestFailed
from tieline_agentctl.prompt_content import content

ABLE = {"promptCapabilities": {"image": True, "audio": True, "embeddedContext": True}}


def block(attachment: dict[str, Any], capabilities: dict[str, Any] = ABLE) -> dict[str, Any]:
    text, attached = content(
        {"text": "see", "attachments": [attachment]}, capabilities, "/w/.kandev/attachments/s"
    )
    assert text == {"type": "text", "text": "see"}
    return attached


def test_a_prompt_without_attachments_is_its_text():
    assert content({"text": " \n"}, {}, "/") == [{"type": "text", "text": " \n"}]


def test_an_image_and_a_sound():
    assert block({"type": "image", "data": "aGk=", "mime_type": "image/png", "name": "a.png"}) == {
        "type": "image",
        "data": "aGk=",
        "mimeType": "image/png",
    }
    assert block({"type": "audio", "data": "aGk="})["mimeType"] == "audio/*"


def test_a_resource_is_embedded():
    assert block({"type": "resource", "data": "aGk=", "mime_type": "text/plain", "name": "a b"}) == {
        "type": "resource",
        "resource": {"uri": "attachment:///a%20b", "blob": "aGk=", "mimeType": "text/plain"},
    }
    assert "mimeType" not in block({"type": "resource", "data": "aGk="})["resource"]


def test_an_attachment_that_lies_in_the_workspace_is_linked():
    assert block({"type": "image", "name": "a.png", "data": "aGk=", "delivery_mode": "path"}) == {
        "type": "resource_link",
        "name": "a.png",
        "uri": "file:///w/.kandev/attachments/s/a.png",
    }
    assert block({"type": "resource", "name": "a", "mime_type": "x/y"})["mimeType"] == "x/y"


@pytest.mark.parametrize(
    ("payload", "capabilities"),
    [
        ({"text": 7}, ABLE),
        ({"text": "x", "prompt_generation": "3"}, ABLE),
        ({"text": "x", "steer": 1}, ABLE),
        ({"attachments": ["x"]}, ABLE),
        ({"attachments": [{"type": "image"}]}, ABLE),
        ({"attachments": [{"type": "image", "data": "x", "size_bytes": "3"}]}, ABLE),
        ({"attachments": [{"type": "image", "data": "x"}]}, {}),
        ({"attachments": [{"type": "resource", "data": "x"}]}, {}),
        ({"attachments": [{"type": "video", "data": "x"}]}, ABLE),
    ],
)
def test_what_cannot_be_sent_is_a_bad_request(payload: dict[str, Any], capabilities: dict[str, Any]):
    with pytest.raises(RequestFailed) as failure:
        content(payload, capabilities, "/")
    assert failure.value.code == "BAD_REQUEST"
