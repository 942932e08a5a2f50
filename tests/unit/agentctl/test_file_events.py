"""What the kernel reports, as one operation for each path."""

import pytest
from tieline_agentctl.file_events import moves_git, operations, watched


@pytest.mark.parametrize(
    ("said", "exists", "known", "told"),
    [
        ({"added"}, True, False, "create"),
        ({"added", "modified"}, True, False, "create"),
        ({"modified"}, True, True, "write"),
        ({"added"}, True, True, "write"),
        ({"deleted", "added"}, True, False, "write"),
        ({"deleted"}, False, True, "remove"),
        ({"modified"}, False, False, "remove"),
        ({"added", "deleted"}, False, True, "remove"),
        ({"added", "deleted"}, False, False, None),
        ({"added"}, False, False, None),
    ],
)
def test_a_path_is_told_once(said, exists, known, told):
    found = operations({(kind, "a") for kind in said}, lambda _: exists, {"a"} if known else set())

    assert found == ([("a", told)] if told else [])


def test_paths_are_told_in_order():
    assert operations([("modified", "b"), ("modified", "a")], lambda _: True, ()) == [
        ("a", "write"),
        ("b", "write"),
    ]


@pytest.mark.parametrize("path", ["a", "src/a.py", ".github/x", "distance/a", ".gitignore"])
def test_ordinary_files_are_watched(path):
    assert watched(path)


@pytest.mark.parametrize("path", [".git/HEAD", "node_modules/x", "a/dist/b", "x/__pycache__/y.pyc"])
def test_what_tools_make_is_nobodys_business(path):
    assert not watched(path)


@pytest.mark.parametrize("path", [".git/HEAD", ".git/index", ".git/refs/heads/x", "sub/.git/packed-refs"])
def test_a_commit_or_a_switch_shows_in_the_git_directory(path):
    assert moves_git(path)


@pytest.mark.parametrize("path", ["HEAD", ".git", ".git/index.lock", ".git/objects/ab/cd", ".git/logs/HEAD"])
def test_the_rest_of_the_git_directory_says_nothing(path):
    assert not moves_git(path)
