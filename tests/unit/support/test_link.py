"""The hop that other tests cut must itself do what it says."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.support.eventually import eventually
from tests.support.link import Link


@pytest.fixture
async def echo() -> AsyncIterator[Link]:
    answering: set[object] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answering.add(writer)
        try:
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            answering.discard(writer)

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server, Link("127.0.0.1", server.sockets[0].getsockname()[1]) as link:
        yield link
    await eventually(lambda: not answering)  # nothing open is left to the next test


async def test_bytes_pass_both_ways(echo: Link) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", echo.port)
    writer.write(b"hello")

    assert await reader.readexactly(5) == b"hello"
    assert echo.open == 1
    writer.close()
    await eventually(lambda: echo.open == 0)


async def test_a_reset_is_seen_as_a_reset_and_a_fin_as_an_end(echo: Link) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", echo.port)
    await eventually(lambda: echo.open)
    echo.cut()
    with pytest.raises(ConnectionResetError):
        await reader.read()
    writer.close()

    reader, writer = await asyncio.open_connection("127.0.0.1", echo.port)
    await eventually(lambda: echo.open)
    echo.cut(rst=False)
    assert await reader.read() == b""
    writer.close()


async def test_a_frozen_link_delivers_after_the_thaw(echo: Link) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", echo.port)
    echo.freeze()
    writer.write(b"late")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(4), 0.05)
    echo.thaw()

    assert await reader.readexactly(4) == b"late"
    writer.close()


async def test_a_cut_in_mid_frame_lets_exactly_so_many_bytes_through(echo: Link) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", echo.port)
    echo.cut_after(3, rst=False)
    writer.write(b"abcdef")

    assert await reader.read() == b"abc"
    writer.close()


async def test_a_link_that_is_down_refuses_and_comes_back_on_its_port(echo: Link) -> None:
    await echo.down()
    with pytest.raises(OSError, match=r".*"):
        await asyncio.open_connection("127.0.0.1", echo.port)
    await echo.up()
    _, writer = await asyncio.open_connection("127.0.0.1", echo.port)
    writer.close()


async def test_a_cut_may_be_meant_for_some_connections_only(echo: Link) -> None:
    first, first_writer = await asyncio.open_connection("127.0.0.1", echo.port)
    second, second_writer = await asyncio.open_connection("127.0.0.1", echo.port)
    first_writer.write(b"GET /a")
    second_writer.write(b"GET /b")
    await first.readexactly(6)
    await second.readexactly(6)
    echo.cut(rst=False, only=b"/a")

    assert await first.read() == b""
    second_writer.write(b"!")
    assert await second.readexactly(1) == b"!"
    first_writer.close()
    second_writer.close()


async def test_what_a_link_loses_never_arrives_and_what_follows_does(echo: Link) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", echo.port)
    echo.lose("down")
    before = echo.bytes["up"]
    writer.write(b"lost")
    await eventually(lambda: echo.bytes["up"] == before + 4)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(4), 0.05)
    echo.thaw()
    writer.write(b"kept")

    assert await reader.readexactly(4) == b"kept"
    writer.close()
