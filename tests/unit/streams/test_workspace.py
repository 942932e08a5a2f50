from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from tieline_protocol.errors import ProtocolError
from tieline_streams.workspace import check, folder, relative


def test_without_a_name_the_folder_is_named_after_the_session():
    assert relative(None, "s1") == PurePosixPath("s1")


def test_a_name_is_a_path_under_the_root():
    assert relative("a/b ü", "s1") == PurePosixPath("a/b ü")


@pytest.mark.parametrize("path", ["", ".", "./", "/etc", "..", "a/../../b", "a\x00b", "x" * 2_000, "\ud83d"])
def test_what_leads_elsewhere_is_refused(path: str):
    with pytest.raises(ProtocolError):
        relative(path, "s1")


@pytest.mark.parametrize("name", ["path", "old_path", "new_path", "repo"])
@pytest.mark.parametrize(
    "path", ["/etc/passwd", "/etc/passwd:1", "..", "../a", "a/../../b", "~", "~/.ssh/id", "a\x00b"]
)
def test_what_a_user_names_never_leads_out_of_the_workspace(name: str, path: str):
    with pytest.raises(ProtocolError, match=f"{name}: a path within the workspace"):
        check({name: path})


def test_other_paths_pass_as_they_are():
    for path in ("", "a/b ü.txt", "a..b", "...", "~backup", "a/~", ".git", "./a", 7, None):
        check({"path": path})
    check({})


ROOT = PurePosixPath("/srv/s1")


@pytest.mark.parametrize(
    ("wanted", "found"),
    [("", "/srv/s1"), ("sub/ü", "/srv/s1/sub/ü"), ("/srv/s1/sub", "/srv/s1/sub"), ("~", "/srv/s1/~")],
)
def test_a_process_starts_in_the_workspace(wanted: str, found: str):
    assert folder(ROOT, wanted) == found


@pytest.mark.parametrize("wanted", ["/", "/etc", "..", "a/../../b", "/srv/s10", "/srv/s1/../s2", "a\x00b"])
def test_a_process_is_not_started_outside_the_workspace(wanted: str):
    with pytest.raises(ProtocolError, match="working_dir: a path within the workspace"):
        folder(ROOT, wanted)
