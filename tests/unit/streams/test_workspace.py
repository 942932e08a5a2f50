from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from tieline_protocol.errors import ProtocolError
from tieline_streams.workspace import relative


def test_without_a_name_the_folder_is_named_after_the_session():
    assert relative(None, "s1") == PurePosixPath("s1")


def test_a_name_is_a_path_under_the_root():
    assert relative("a/b ü", "s1") == PurePosixPath("a/b ü")
    assert relative(".", "s1") == PurePosixPath()


@pytest.mark.parametrize("path", ["", "/etc", "..", "a/../../b", "a\x00b", "x" * 2_000, "\ud83d"])
def test_what_leads_elsewhere_is_refused(path: str):
    with pytest.raises(ProtocolError):
        relative(path, "s1")
