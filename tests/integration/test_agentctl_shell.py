"""The shell of a real daemon, as a backend sees it on the workspace stream."""

import asyncio
import re
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import Daemon, Instance, Stream, alive
from tests.support.eventually import eventually
from tests.support.process import Process

pytestmark = pytest.mark.timeout(20)  # the first test of a module waits for the daemon, too


@pytest.fixture
async def instance(started: tuple[Process, str], tmp_path: Path) -> AsyncIterator[Instance]:
    (tmp_path / "work").mkdir()
    async with Daemon(*started) as running, running.instance(tmp_path / "work") as it:
        yield it


@pytest.fixture
async def shell(instance: Instance) -> AsyncIterator[Stream]:
    await instance.post("/api/v1/shell/start")
    async with instance.stream() as stream:
        yield stream


async def test_what_is_typed_runs_and_is_seen(shell: Stream) -> None:
    await shell.type("echo v=$((40 + 2))=\r")

    assert "v=42=" in await shell.until_text("v=42=")


async def test_a_shell_that_starts_after_the_stream_is_heard_too(instance: Instance) -> None:
    async with instance.stream() as stream:
        assert (await instance.post("/api/v1/shell/start")).json() == {"status": "shell started"}
        await stream.type("echo v=$((40 + 2))=\r")

        await stream.until_text("v=42=")


async def test_starting_a_shell_that_runs_changes_nothing(instance: Instance) -> None:
    await instance.post("/api/v1/shell/start")
    pid: Any = await eventually(lambda: _pid(instance))

    await instance.post("/api/v1/shell/start")

    assert await _pid(instance) == pid


async def test_without_a_shell_its_routes_say_so(instance: Instance) -> None:
    status = await instance.get("/api/v1/shell/status")
    buffer = await instance.get("/api/v1/shell/buffer")

    assert status.json() == {"available": False, "running": False, "error": "shell not available"}
    assert (buffer.status_code, buffer.json()) == (503, {"error": "shell not available"})


async def test_what_the_shell_wrote_can_be_read_again(instance: Instance, shell: Stream) -> None:
    await shell.type("echo v=$((40 + 2))=\r")
    await shell.until_text("v=42=")

    assert "v=42=" in (await instance.get("/api/v1/shell/buffer")).json()["data"]


async def test_the_shell_is_in_the_workspace(instance: Instance, shell: Stream, tmp_path: Path) -> None:
    await shell.type("echo at=$(pwd -P)=\r")

    await shell.until_text(f"at={(tmp_path / 'work').resolve()}=")


async def test_an_ended_shell_says_so_and_the_next_one_takes_input(shell: Stream) -> None:
    """B28: exit code 0 is left out of the frame, as on the wire; any other code is told."""
    await shell.type("exit 7\r")
    assert (await shell.until("shell_exit"))["code"] == 7

    await shell.type("exit\r")
    assert "code" not in await shell.until("shell_exit")

    await shell.type("echo v=$((40 + 2))=\r")
    await shell.until_text("v=42=")


async def test_output_before_the_end_comes_before_the_end(shell: Stream) -> None:
    await shell.type("seq 1 5000; exit\r")
    await shell.until("shell_exit")

    assert "\n5000\r\n" in shell.text


async def test_jobs_of_an_ended_shell_are_gone(shell: Stream) -> None:
    await shell.type("sleep 1000 & echo job=$!=\r")
    await shell.until(lambda frame: re.search(r"job=\d+=", shell.text))
    found = re.search(r"job=(\d+)=", shell.text)
    assert found is not None

    await shell.type("exit\r")
    await shell.until("shell_exit")

    assert not alive(int(found[1]))


async def test_a_thousand_single_keys_arrive_in_order(shell: Stream) -> None:
    await shell.type("stty -echo; cat > keys; wc -c < keys\r")
    await shell.until_text("wc -c")
    keys = "".join(chr(ord("a") + number % 26) for number in range(1000))

    for key in keys:
        await shell.type(key)
    await shell.type("\r\x04")
    await shell.until_text("1001\r\n")
    await shell.type("cat keys; echo; echo done\r")

    assert keys in await shell.until_text("done\r\n")


async def test_a_long_text_pasted_at_once_arrives_whole(shell: Stream) -> None:
    await shell.type(
        "stty raw -echo; echo begin-$((1)); head -c 3000000 | cksum; stty sane; echo end-$((1))\r"
    )
    await shell.until_text("begin-1")
    text = "".join(f"{number:07} " for number in range(375_000))

    await shell.type(text)

    cksum = await asyncio.create_subprocess_exec("cksum", stdin=PIPE, stdout=PIPE)
    wanted, _ = await cksum.communicate(text.encode())
    assert wanted.decode().strip() in await shell.until_text("end-1")


async def test_odd_sizes_change_nothing_and_a_real_size_is_real(shell: Stream) -> None:
    """B77: sizes that no terminal has are ignored; (100, 30) reaches the program."""
    nonsense = [(0, 0), (-1, 24), (80, 0), (65536, 1), (10**9, 10**9), ("80", "24"), (80.5, 24), (None, None)]
    for cols, rows in nonsense:
        await shell.send("shell_resize", cols=cols, rows=rows)
    await shell.send("shell_resize")
    await shell.send("shell_resize", cols=True, rows=True)
    await shell.type("echo first $(stty size)\r")
    await shell.until_text("first 24 80\r\n")

    await shell.send("shell_resize", cols=100, rows=30)
    await shell.type("echo second $(stty size)\r")

    await shell.until_text("second 30 100\r\n")


async def test_the_next_shell_has_the_last_size(shell: Stream) -> None:
    await shell.send("shell_resize", cols=100, rows=30)
    await shell.type("exit\r")
    await shell.until("shell_exit")

    await shell.type("echo size $(stty size)\r")

    await shell.until_text("size 30 100\r\n")


async def test_a_frame_that_is_no_json_does_not_stop_the_next_ones(shell: Stream) -> None:
    for frame in ("{", "", "[1]", '"x"', '{"type":5}', '{"type":"shell_input","data":7}', "[" * 5000):
        await shell.socket.send(frame)
    await shell.socket.send(b"\xff\xfe")
    await shell.send("no_such_type")

    await shell.send("ping")
    await shell.until("pong")
    await shell.type("echo v=$((40 + 2))=\r")
    await shell.until_text("v=42=")


async def test_a_character_that_is_cut_between_reads_stays_whole(shell: Stream) -> None:
    """B75: one byte at a time through the terminal; what is concatenated is what was written."""
    text = "─😀é"
    writes = "; ".join(f"printf '\\{byte:03o}'; sleep 0.01" for byte in f"<{text}>".encode())
    await shell.type(f"{writes}; echo\r")

    await shell.until_text(f"<{text}>\r\n")
    assert "\ufffd" not in shell.text


async def test_a_shell_that_ends_inside_a_character_leaves_one_mark(shell: Stream) -> None:
    """B75: what never became whole is one U+FFFD, the text around it is all there."""
    await shell.type("stty -echo; printf 'be''fore\\360\\237'; exec true\r")
    await shell.until("shell_exit")

    assert shell.text.endswith("before\ufffd")


@pytest.mark.timeout(40)
async def test_a_flood_reaches_a_reader_that_keeps_up_completely(shell: Stream) -> None:
    size = 20_000_000
    await shell.type(f"stty -echo -opost; yes 0123456789abcde | head -c {size}; exit\r")
    await shell.until("shell_exit", timeout=30)

    at = shell.text.index("0123456789abcde\n")
    flood = shell.text[at : at + size]
    assert len(flood) == size
    assert flood == "0123456789abcde\n" * (size // 16)


async def test_control_c_stops_a_flood_at_once(shell: Stream) -> None:
    await shell.type("yes\r")
    await shell.until_text("y\r\ny\r\ny\r\n" * 1000)

    async with asyncio.timeout(2):
        await shell.type("\x03")
        await shell.type("echo v=$((40 + 2))=\r")
        await shell.until_text("v=42=")


@pytest.mark.timeout(40)
async def test_a_reader_that_does_not_read_does_not_stop_the_others(
    instance: Instance, shell: Stream
) -> None:
    async with instance.stream() as sleeper:
        sleeper.socket.transport.pause_reading()
        await shell.type("stty -echo; yes 0123456789 | head -c 12000000; echo; echo end-$((40 + 2))\r")

        await shell.until_text("end-42", timeout=20)

        sleeper.socket.transport.resume_reading()
        lost = await sleeper.until(
            lambda frame: frame["type"] in ("error", "pong") or "end-42" in sleeper.text
        )
        assert lost["type"] == "error"
        assert "dropped" in lost["error"]


async def _pid(instance: Instance) -> Any:
    return int((await instance.get("/api/v1/shell/status")).json().get("pid", 0))
