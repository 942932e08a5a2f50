"""What a user sees of threads."""

from tieline_agent.views import MOST, PAGE, detailed, page, shown
from tieline_protocol.messages import ThreadRecord


def record(number):
    return ThreadRecord(
        thread=f"t{number}", user="ada", created=number, updated=number, instructions="Brief."
    )


def test_a_list_shows_no_instructions_and_no_user():
    assert shown(record(1)) == {"thread_id": "t1", "title": "", "model": None, "created": 1, "updated": 1}
    assert detailed(record(1))["instructions"] == "Brief."


def test_pages_go_from_new_to_old_and_hold_each_thread_once():
    records = [record(number) for number in range(7)]
    seen, after = [], None
    while True:
        view = page(records, after, 3)
        seen += [thread["thread_id"] for thread in view["threads"]]
        if (after := view.get("next")) is None:
            break

    assert seen == [f"t{number}" for number in reversed(range(7))]


def test_a_page_is_bounded():
    records = [record(number) for number in range(MOST + 1)]

    assert len(page(records, None, None)["threads"]) == PAGE
    assert len(page(records, None, 10**6)["threads"]) == MOST


def test_a_place_that_is_not_known_is_the_end():
    assert page([record(1)], "gone", None) == {"threads": []}
