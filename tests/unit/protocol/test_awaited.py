"""What was asked for and is not answered yet."""

import pytest
from tieline_protocol.awaited import Awaited
from tieline_protocol.errors import FateUnknown, NoResponders, TimedOut
from tieline_protocol.received import Received

NOBODY = {"Status": "503"}


def answer(token: str, data: bytes = b"yes", headers: dict[str, str] | None = None) -> Received:
    return Received(f"_INBOX.x.{token}", data, "", headers)


async def test_a_task_gets_its_answer_and_no_second_one() -> None:
    awaited = Awaited()
    with awaited.one(5) as (token, future):
        awaited.heard(answer(token))
        awaited.heard(answer(token, b"again"))
        assert (await future).data == b"yes"

    assert len(awaited) == 0
    awaited.heard(answer(token, b"late"))


async def test_a_task_is_told_that_its_time_is_up() -> None:
    awaited = Awaited()
    with pytest.raises(TimedOut), awaited.one(0.01) as (_, future):
        await future
    assert len(awaited) == 0


async def test_a_function_is_called_once() -> None:
    awaited, told = Awaited(), []
    token = awaited.token()
    awaited.call(token, 5, told.append)
    assert len(awaited) == 1

    awaited.heard(answer(token))
    awaited.heard(answer(token, b"again"))
    awaited.lost()
    awaited.close()

    assert told == [answer(token)]
    assert len(awaited) == 0


async def test_a_function_is_told_that_nobody_is_there() -> None:
    awaited, told = Awaited(), []
    token = awaited.token()
    awaited.call(token, 5, told.append)
    awaited.heard(answer(token, b"", NOBODY))
    awaited.close()

    assert isinstance(told[0], NoResponders)


async def test_functions_whose_time_is_up_are_told_so_and_the_others_wait_on(monkeypatch) -> None:
    monkeypatch.setattr("tieline_protocol.awaited._LOOK", 0.01)
    awaited, told, patient = Awaited(), [], []
    late, other = awaited.token(), awaited.token()
    awaited.call(other, 60, patient.append)
    with awaited.one(5) as (token, future):

        def is_late(got: object) -> None:
            told.append(got)
            awaited.heard(answer(token))

        awaited.call(late, 0, is_late)
        await future

    assert [type(one) for one in told] == [TimedOut]
    assert patient == []
    assert len(awaited) == 1
    awaited.close()


async def test_whoever_waits_when_the_connection_breaks_hears_that_the_fate_is_unknown() -> None:
    awaited, told = Awaited(), []

    def fails(got: object) -> None:
        raise RuntimeError("its own mistake")

    awaited.call(awaited.token(), 5, fails)
    awaited.call(awaited.token(), 5, told.append)
    with awaited.one(5) as (_, future), awaited.several() as (_, exchange):
        awaited.lost()
        with pytest.raises(FateUnknown):
            await future
        with pytest.raises(FateUnknown):
            await exchange.next(5)
    awaited.close()

    assert [type(one) for one in told] == [FateUnknown]


async def test_an_exchange_hands_out_its_answers_in_order_and_says_when_none_comes() -> None:
    awaited = Awaited()
    with awaited.several() as (token, exchange):
        awaited.heard(answer(token, b"1"))
        awaited.heard(answer(token, b"2"))
        assert [(await exchange.next(5)).data for _ in range(2)] == [b"1", b"2"]
        with pytest.raises(TimedOut):
            await exchange.next(0.01)
        awaited.heard(answer(token, b"", NOBODY))
        with pytest.raises(NoResponders):
            await exchange.next(5)
