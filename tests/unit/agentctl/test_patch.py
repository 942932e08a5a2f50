"""Unified diffs, applied to bytes."""

import difflib
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tieline_agentctl.patch import PatchFailed, apply, parse

OLD = b"one\ntwo\nthree\nfour\n"
DIFF = b"--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n"


def test_a_diff_is_applied():
    assert apply(OLD, DIFF) == b"one\nTWO\nthree\nfour\n"


def test_a_hunk_that_moved_is_found():
    assert apply(b"zero\nzero\n" + OLD, DIFF) == b"zero\nzero\none\nTWO\nthree\nfour\n"


def test_the_nearest_of_several_places_is_taken():
    old = b"a\nx\nb\nx\nc\nx\n"

    assert apply(old, b"@@ -4 +4 @@\n-x\n+Y\n") == b"a\nx\nb\nY\nc\nx\n"


def test_a_file_can_begin_and_end():
    assert apply(b"", b"@@ -0,0 +1,2 @@\n+a\n+b\n") == b"a\nb\n"
    assert apply(b"a\nb\n", b"@@ -1,2 +0,0 @@\n-a\n-b\n") == b""
    assert apply(b"a\n", b"@@ -1,0 +2 @@\n+b\n") == b"a\nb\n"


def test_a_missing_last_line_feed_is_kept_made_and_taken():
    no_end = b"\\ No newline at end of file\n"
    assert apply(b"a", b"@@ -1 +1 @@\n-a\n" + no_end + b"+b\n" + no_end) == b"b"
    assert apply(b"a", b"@@ -1 +1 @@\n-a\n" + no_end + b"+a\n") == b"a\n"
    assert apply(b"a\n", b"@@ -1 +1 @@\n-a\n+a\n" + no_end) == b"a"
    assert apply(b"x\na", b"@@ -1,2 +1,2 @@\n-x\n+y\n a\n" + no_end) == b"y\na"


def test_an_empty_line_of_context_may_have_lost_its_blank():
    assert apply(b"a\n\nb\n", b"@@ -1,3 +1,3 @@\n-a\n+A\n\n b\n") == b"A\n\nb\n"
    assert apply(b"a\n\r\nb\n", b"@@ -1,3 +1,3 @@\n-a\n+A\n\r\n b\n") == b"A\n\r\nb\n"


def test_carriage_returns_are_bytes_like_any_other():
    assert apply(b"a\r\nb\r\n", b"@@ -1,2 +1,2 @@\n a\r\n-b\r\n+c\r\n") == b"a\r\nc\r\n"


@pytest.mark.parametrize(
    "diff",
    [
        b"",
        b"nonsense",
        b"@@ -1,3 +1,3 @@\n one\n-other\n+TWO\n three\n",
        b"@@ -1,3 +1,3 @@\n one\n",
        b"@@ -1 +1 @@\n?one\n+two\n",
        DIFF + b"--- a/g\n+++ b/g\n@@ -1 +1 @@\n-one\n+x\n",
        DIFF + b"diff --git a/g b/g\n",
        b"@@ -3 +3 @@\n-three\n+3\n@@ -1 +1 @@\n-one\n+1\n",
    ],
)
def test_a_broken_diff_changes_nothing(diff):
    with pytest.raises(PatchFailed):
        apply(OLD, diff)


def test_text_after_the_last_hunk_is_not_part_of_it():
    assert len(parse(DIFF + b"-- \n2.39\n")) == 1


LINES = st.lists(st.sampled_from(["a", "b", "", "c c", "é", "-x", "+y", "@@", "\\"]), max_size=12)


@given(LINES, LINES, st.integers(0, 3))
def test_the_difference_of_two_texts_leads_from_one_to_the_other(old, new, context):
    before, after = ("".join(f"{line}\n" for line in lines) for lines in (old, new))
    diff = "".join(
        difflib.unified_diff(before.splitlines(True), after.splitlines(True), "a", "b", n=context)
    ).encode()

    assert (apply(before.encode(), diff) if diff else before.encode()) == after.encode()


@pytest.mark.parametrize(
    ("old", "new"), [("a\nb\nc", "a\nB\nc"), ("a\n", "a"), ("", "x"), ("x\r\ny\r\n", "x\r\nz\r\n")]
)
def test_what_git_writes_is_applied(tmp_path: Path, old: str, new: str):
    (tmp_path / "old").write_bytes(old.encode())
    (tmp_path / "new").write_bytes(new.encode())
    command = ["git", "diff", "--no-index", "--no-color", "old", "new"]
    diff = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).stdout

    assert apply(old.encode(), diff) == new.encode()
