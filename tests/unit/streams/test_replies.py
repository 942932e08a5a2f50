"""Replies to the daemon: none is lost with a socket, none is made twice."""

from __future__ import annotations

from tieline_streams.replies import Replies


def taken(replies: Replies, now: float = 0) -> list[bytes]:
    """All that a socket takes now."""
    found = []
    while (frame := replies.next()) is not None:
        found.append(frame)
        replies.sent(now)
    return found


def begun(*ids: str, **settings: float) -> Replies:
    replies = Replies(**settings)  # type: ignore[arg-type]
    assert all(replies.begin(id, 0) for id in ids)
    return replies


def test_replies_go_out_in_the_order_in_which_they_were_known() -> None:
    replies = begun("a", "b")
    replies.put("b", b"B")
    replies.put("a", b"A")

    assert taken(replies) == [b"B", b"A"]
    assert taken(replies) == []


def test_what_a_lost_socket_took_shortly_before_is_sent_again_first() -> None:
    replies = begun("old", "new", "later", kept=10)
    replies.put("old", b"O")
    assert taken(replies, now=0) == [b"O"]
    replies.put("new", b"N")
    assert taken(replies, now=5) == [b"N"]
    replies.put("later", b"L")
    replies.connected(now=11)

    assert taken(replies, now=11) == [b"N", b"L"]


def test_a_request_that_comes_again_is_not_carried_out_again() -> None:
    replies = begun("a")
    assert not replies.begin("a", 1)  # under way
    replies.put("a", b"A")
    assert not replies.begin("a", 1)  # waiting

    assert taken(replies, now=1) == [b"A"]
    assert not replies.begin("a", 2)  # replied: once more
    assert taken(replies, now=2) == [b"A"]


def test_only_the_first_reply_to_a_request_is_sent() -> None:
    replies = begun("a")

    assert replies.put("a", b"first")
    assert replies.put("a", b"second")
    assert taken(replies) == [b"first"]


def test_an_id_may_be_used_again_after_a_while() -> None:
    replies = begun("a", kept=10)
    replies.put("a", b"A")
    taken(replies)

    assert replies.begin("a", 11)


def test_more_than_may_wait_is_refused_and_something_small_always_fits() -> None:
    replies = begun("a", "b", most_bytes=4_000)

    assert replies.put("a", b"x" * 5_000)  # alone it may be larger
    assert not replies.put("b", b"y" * 2_000)
    assert replies.put("b", b"small")
    assert taken(replies) == [b"x" * 5_000, b"small"]


def test_what_is_kept_for_repeating_is_bounded() -> None:
    replies = begun("a", "b", most_bytes=4_000)
    replies.put("a", b"x" * 3_000)
    taken(replies)
    replies.put("b", b"y" * 3_000)
    taken(replies)
    replies.connected(0)

    assert taken(replies) == [b"y" * 3_000]
