"""Ids are hashes: the same everywhere, for every repetition."""

from tieline_agent import ids


def test_a_message_sent_twice_has_the_same_ids():
    first = (ids.message_id("t1", "c1"), ids.run_id("t1", "c1"))

    assert first == (ids.message_id("t1", "c1"), ids.run_id("t1", "c1"))
    assert len({*first, ids.message_id("t1", "c2"), ids.message_id("t2", "c1")}) == 4


def test_where_one_part_ends_makes_a_difference():
    assert ids.message_id("a", "bc") != ids.message_id("ab", "c")


def test_half_an_emoji_in_a_clients_id_is_no_error():
    """B20: the other parts: ids that a client chooses."""
    assert ids.run_id("t", "\ud83d") != ids.run_id("t", "?")


def test_each_request_and_each_call_of_a_run_has_its_own_id():
    answers = {ids.answer_id("r", opening, request) for opening in (0, 1) for request in (0, 1)}
    made = {*answers, ids.call_id("r", 0, 0), ids.call_id("r", 0, 1)}

    assert len(made) == 6
    assert all(len(each) <= 40 and each.isascii() for each in made)
