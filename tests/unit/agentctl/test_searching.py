"""Searching names and lines."""

from hypothesis import given
from hypothesis import strategies as st
from tieline_agentctl.searching import PREVIEW, best_names, line_match


def test_names_are_ranked():
    paths = ["app/x.py", "my-app.py", "app.py.bak", "app.py", "other.txt", "deep/down/app.py"]

    assert best_names("app.py", paths, 10) == ["app.py", "deep/down/app.py", "app.py.bak", "my-app.py"]
    assert best_names("app/", paths, 10) == ["app/x.py"]
    assert best_names("APP", paths, 2) == ["app.py", "app.py.bak"]


def test_ranges_count_in_utf_16():
    assert line_match("b", "a😀b b\r\n") == {
        "column": 3,
        "preview": "a😀b b",
        "match_ranges": [{"start": 3, "end": 4}, {"start": 5, "end": 6}],
    }


def test_a_line_without_it_is_no_match():
    assert line_match("x", "abc") is None


def test_case_does_not_matter_unless_a_letter_changes_its_length():
    assert line_match("ABC", "xabc") is not None
    assert line_match("abc", "İabc") is not None
    assert line_match("ABC", "İabc") is None


def test_a_match_far_inside_a_long_line_is_in_the_preview():
    found = line_match("needle", "x" * 1000 + "needle" + "y" * 1000)

    assert found is not None
    (only,) = found["match_ranges"]
    assert found["preview"][only["start"] : only["end"]] == "needle"
    assert (len(found["preview"]), found["column"]) == (PREVIEW, 1001)


@given(st.text(min_size=1, max_size=5), st.text(max_size=400), st.text(max_size=400))
def test_every_range_holds_what_was_searched(query, before, after):
    line = f"{before}{query}{after}".replace("\n", " ").replace("\r", " ")
    query = query.replace("\n", " ").replace("\r", " ")
    found = line_match(query, line)

    assert found is not None
    units = found["preview"].encode("utf-16-le", "surrogatepass")
    for one in found["match_ranges"]:
        part = units[2 * one["start"] : 2 * one["end"]].decode("utf-16-le", "surrogatepass")
        assert part.lower() == query.lower()
