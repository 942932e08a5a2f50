"""What git prints, read without ever splitting a name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tieline_agentctl import git_parse
from tieline_agentctl.git_parse import Change, FileDiff, file_info, parse_diff, parse_log, parse_status

ODD = [
    "b ü.txt",
    'a -> "x".txt',
    "new\nline",
    "tab\there",
    "-leading",
    "caf\\303\\251.txt",
    "é",
    "e\u0301",
    "1 .M N... fake",
    "? x",
]
NAMES = st.sampled_from(ODD) | st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1
)
META = "N... 100644 100644 100644 1111 2222"


def records(*parts: str) -> bytes:
    return "".join(f"{part}\0" for part in parts).encode("utf-8", "surrogateescape")


def test_the_header_says_where_we_are():
    status = parse_status(
        records(
            "# branch.oid 9f1c",
            "# branch.head feat/x",
            "# branch.upstream origin/feat/x",
            "# branch.ab +1 -2",
        )
    )

    assert (status.head, status.branch, status.upstream) == ("9f1c", "feat/x", "origin/feat/x")
    assert (status.ahead, status.behind) == (1, 2)


def test_before_the_first_commit_and_detached_there_is_no_head_or_branch():
    status = parse_status(records("# branch.oid (initial)", "# branch.head (detached)", "# stash 3"))

    assert (status.head, status.branch) == ("", "")


@pytest.mark.parametrize(
    ("xy", "kind", "staged"),
    [
        (".M", "modified", False),
        ("M.", "modified", True),
        ("MM", "modified", True),
        ("A.", "added", True),
        (".A", "added", False),
        ("AD", "deleted", True),
        (".D", "deleted", False),
        ("D.", "deleted", True),
        ("T.", "modified", True),
    ],
)
def test_each_pair_of_letters_has_a_meaning(xy, kind, staged):
    assert parse_status(records(f"1 {xy} {META} f")).changes == [Change("f", kind, staged)]


def test_renames_copies_conflicts_and_the_untracked():
    status = parse_status(
        records(
            f"2 R. {META} R100 new",
            "old",
            f"2 C. {META} C90 copy",
            "origin",
            f"2 RD {META} R100 gone",
            "before",
            "u UU N... 1 2 3 4 5 6 7 both",
            "? free",
            "! ignored",
        )
    )

    assert status.changes == [
        Change("new", "renamed", True, "old"),
        Change("copy", "added", True),
        Change("before", "deleted", True),
        Change("both", "modified", False, "", True),
        Change("free", "untracked"),
    ]


@given(NAMES, NAMES)
def test_any_name_survives_as_itself(new, old):
    """B85: blanks, quotes, arrows, line feeds, NFC and NFD: nothing is split or changed."""
    status = parse_status(records(f"2 R. {META} R100 {new}", old, f"1 .M {META} {new}", f"? {old}"))

    assert status.changes == [
        Change(new, "renamed", True, old),
        Change(new, "modified"),
        Change(old, "untracked"),
    ]


def test_a_name_that_is_no_utf_8_survives_too():
    assert parse_status(b"? caf\xe9\0").changes[0].path.encode("utf-8", "surrogateescape") == b"caf\xe9"


@given(NAMES, NAMES)
def test_any_name_survives_in_a_diff(new, old):
    """B85."""
    output = records(
        ":100644 100644 1 2 M", new, ":100644 100644 1 2 R90", old, new, f"1\t2\t{new}", "3\t0\t", old, new
    )
    output += b"\0diff --git a/x b/x\n@@ -1 +1 @@\n-a\n+b\ndiff --git a/y b/y\nsimilarity index 90%\n"

    first, second = parse_diff(output)

    assert (first.path, first.additions, first.deletions, first.status) == (new, 1, 2, "modified")
    assert first.diff == "@@ -1 +1 @@\n-a\n+b\n"
    assert (second.path, second.old_path, second.status, second.diff) == (new, old, "renamed", "")


def test_added_deleted_copied_and_binary_files():
    output = records(
        ":0 1 0 1 A", "a", ":1 0 1 0 D", "d", ":1 1 1 1 C99", "src", "c", ":1 1 1 2 T", "t",
        "1\t0\ta", "0\t1\td", "0\t0\tc", "-\t-\tt",
    )  # fmt: skip

    files = parse_diff(output)

    assert [(file.path, file.status, file.binary) for file in files] == [
        ("a", "added", False),
        ("d", "deleted", False),
        ("c", "added", False),
        ("t", "modified", True),
    ]


def test_a_raw_record_of_another_file_says_nothing_about_this_one():
    assert parse_diff(records(":0 1 0 1 A", "a", "1\t0\tb"))[0].status == "modified"


def test_a_diff_of_nothing_is_no_file():
    assert parse_diff(b"") == []


def test_patches_that_do_not_match_the_files_are_left_out():
    assert parse_diff(b"1\t0\ta\0\0")[0].diff == ""


def test_a_file_is_told_with_what_is_not_empty():
    info, left = file_info(FileDiff("p", additions=2, deletions=1, diff="@@"), staged=True, budget=10)

    assert info == {
        "path": "p",
        "status": "modified",
        "staged": True,
        "additions": 2,
        "deletions": 1,
        "diff": "@@",
    }
    assert left == 8


def test_a_rename_has_its_old_name():
    info, _ = file_info(FileDiff("p", status="renamed", old_path="o"))
    assert info == {"path": "p", "status": "renamed", "staged": False, "old_path": "o"}

    info, _ = file_info(FileDiff("p"), status="untracked", old_path="q")
    assert (info["status"], info["old_path"]) == ("untracked", "q")


def test_diffs_are_bounded_one_by_one_and_together():
    big = FileDiff("p", diff="é" * git_parse.DIFF_CAP)

    truncated, left = file_info(big)
    assert truncated["diff_skip_reason"] == "truncated"
    assert len(truncated["diff"].encode()) <= git_parse.DIFF_CAP
    assert left == git_parse.TOTAL_CAP - git_parse.DIFF_CAP

    assert file_info(big, budget=5)[0]["diff_skip_reason"] == "budget_exceeded"
    assert file_info(FileDiff("p", binary=True))[0]["diff_skip_reason"] == "binary"


def test_a_log_is_read():
    output = (
        b"\0a1\0b2 c3\0subject \x1f\0Ann\0ann@example.org\x002031-04-05T08:07:09+02:00\0\n"
        b" 2 files changed, 5 insertions(+), 1 deletion(-)\n\0b2\0\0first\0Ann\0a@b\0d\0"
    )

    first, second = parse_log(output)

    assert (first.sha, first.parent, first.subject) == ("a1", "b2", "subject \x1f")
    assert (first.files, first.insertions, first.deletions) == (2, 5, 1)
    assert (second.parent, second.files) == ("", 0)
    assert parse_log(b"") == []


def test_objects_are_resolved_in_order():
    output = b"9f1c commit 200\nrefs/heads/x^{commit} missing\nabcd tree 3\n"

    assert git_parse.parse_batch_check(output) == ["9f1c", "", ""]


def test_lists_of_names():
    assert git_parse.names(b"a b\0c\nd\0") == ["a b", "c\nd"]
    assert git_parse.names(b"") == []


@pytest.mark.parametrize("name", ["main", "feat/x", "v1.2", "ünï", "a-b_c", "x@y"])
def test_names_that_branches_have(name):
    assert git_parse.safe_ref(name)


@pytest.mark.parametrize(
    "name",
    ["", "-x", "a b", "a..b", "a~1", "a^", "a:b", "a?", "a*", "[a", "a\\b", "a@{1}", "/a", "a/", "a//b", ".a",
     "a.", "x.lock", "a/.b", "@", "a\nb", "a\x7f"],
)  # fmt: skip
def test_names_that_no_branch_has(name):
    assert not git_parse.safe_ref(name)


def test_revisions_are_asked_for_but_options_and_ranges_of_paths_are_not():
    assert all(git_parse.safe_revision(name) for name in ("HEAD~1", "9f1c", "main", "origin/x", "v1^"))
    assert not any(git_parse.safe_revision(name) for name in ("", "-x", "a b", "HEAD:x", "a\n", "a\0", "a*"))
