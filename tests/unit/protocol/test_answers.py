from __future__ import annotations

from tieline_protocol.answers import Answers


def test_the_first_answer_is_kept():
    answers = Answers()
    answers.put("a", b"first", 0)
    answers.put("a", b"second", 1)

    assert answers.get("a", 2) == b"first"
    assert answers.get("b", 2) is None


def test_answers_are_forgotten_in_time():
    answers = Answers(kept=300)
    answers.put("a", b"x", 0)

    assert answers.get("a", 299) == b"x"
    assert answers.get("a", 300) is None


def test_the_oldest_go_when_there_are_too_many_or_too_much():
    many, much = Answers(most=2), Answers(most_bytes=10)
    for id in "abc":
        many.put(id, b"x", 0)
        much.put(id, b"12345", 0)

    assert [many.get(id, 0) for id in "abc"] == [None, b"x", b"x"]
    assert [much.get(id, 0) for id in "abc"] == [None, b"12345", b"12345"]
