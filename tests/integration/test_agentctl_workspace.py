"""What the workspace stream of a real daemon tells: processes, files, git; and who may listen."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.support.daemon import Daemon, Frame, Instance, Stream, alive, git, repository
from tests.support.eventually import eventually
from tests.support.process import Process

pytestmark = pytest.mark.timeout(20)  # the first test of a module waits for the daemon, too


@pytest.fixture
async def work(tmp_path: Path) -> Path:
    return await repository(tmp_path / "work")


@pytest.fixture
async def instance(started: tuple[Process, str], work: Path) -> AsyncIterator[Instance]:
    async with Daemon(*started) as running, running.instance(work) as it:
        yield it


@pytest.fixture
async def stream(instance: Instance) -> AsyncIterator[Stream]:
    async with instance.stream() as it:
        await it.until("git_status")
        yield it


# --- processes


async def test_a_process_is_told_from_start_to_end(instance: Instance, stream: Stream) -> None:
    """B28: exit code 0 of a process is told as 0, and is absent before it has ended."""
    begun = await _start(instance, "printf 'a\\n'; printf 'b' >&2", script_name="web")
    assert (begun["kind"], begun["script_name"], begun["session_id"]) == ("dev", "web", "s")
    assert "exit_code" not in begun

    statuses, outputs = await _follow(stream, begun["id"])

    assert [one["status"] for one in statuses] == ["starting", "running", "exited"]
    assert statuses[-1]["exit_code"] == 0
    assert "exit_code" not in statuses[0]
    assert outputs == {"stdout": "a\n", "stderr": "b"}
    assert (await instance.get(f"/api/v1/processes/{begun['id']}")).json() == {"error": "process not found"}


@pytest.mark.parametrize(
    ("command", "code"), [("exit 3", 3), ("kill -9 $$", -1), ("no-such-command-here", 127)]
)
async def test_a_process_that_fails_tells_its_code(
    instance: Instance, stream: Stream, command: str, code: int
) -> None:
    """B28."""
    begun = await _start(instance, command)

    statuses, _ = await _follow(stream, begun["id"])

    assert (statuses[-1]["status"], statuses[-1]["exit_code"]) == ("failed", code)


async def test_characters_of_both_outputs_stay_whole_however_they_are_mixed(
    instance: Instance, stream: Stream
) -> None:
    """B75: stdout and stderr, one byte at a time, each cut inside a character, ended inside one."""
    mixed = [
        f"printf '\\{byte:03o}' {to}; sleep 0.01"
        for pair in zip("out─😀é".encode(), "err😀─ü".encode(), strict=True)
        for byte, to in zip(pair, ("", ">&2"), strict=True)
    ]
    begun = await _start(instance, "; ".join([*mixed, "printf '\\360\\237'", "printf '\\342' >&2"]))

    _, outputs = await _follow(stream, begun["id"])

    assert outputs == {"stdout": "out─😀é\ufffd", "stderr": "err😀─ü\ufffd"}


async def test_output_can_be_read_again_while_it_runs(instance: Instance, stream: Stream) -> None:
    begun = await _start(instance, "echo hello; sleep 1000")
    await stream.until("process_output")

    plain = (await instance.get(f"/api/v1/process/{begun['id']}")).json()
    full = (await instance.get(f"/api/v1/processes/{begun['id']}", include_output="true")).json()
    listed = (await instance.get("/api/v1/processes", session_id="s")).json()

    assert "output" not in plain
    assert [(chunk["stream"], chunk["data"]) for chunk in full["output"]] == [("stdout", "hello\n")]
    assert [one["id"] for one in listed] == [begun["id"]]
    assert (await instance.get("/api/v1/processes", session_id="other")).json() == []


async def test_old_output_makes_room_for_new(instance: Instance, stream: Stream) -> None:
    begun = await _start(instance, "seq 1 100000; sleep 1000", buffer_max_bytes=5000)
    await stream.until(lambda frame: "\n100000\n" in frame.get("process_output", {}).get("data", ""))

    output = (await instance.get(f"/api/v1/processes/{begun['id']}", include_output="true")).json()["output"]

    assert sum(len(chunk["data"]) for chunk in output) <= 16 * 1024
    assert output[-1]["data"].endswith("\n100000\n")


async def test_a_stopped_process_is_gone_with_all_that_it_started(instance: Instance, stream: Stream) -> None:
    begun = await _start(instance, "trap '' INT; sleep 1000 & echo $!; wait; wait; sleep 1000")
    child = int((await stream.until("process_output"))["process_output"]["data"])

    stopped = await instance.post("/api/v1/processes/stop", {"process_id": begun["id"]})

    assert stopped.json() == {"success": True}
    assert not alive(child)
    statuses, _ = await _follow(stream, begun["id"])
    assert statuses[-1]["status"] == "failed"


async def test_survivors_of_an_ended_process_are_ended_too(instance: Instance, stream: Stream) -> None:
    begun = await _start(instance, "sleep 1000 & echo $!")
    child = int((await stream.until("process_output"))["process_output"]["data"])

    await _follow(stream, begun["id"])

    assert not alive(child)


async def test_stopping_what_is_not_there_succeeds_and_naming_nothing_does_not(instance: Instance) -> None:
    unknown = await instance.post("/api/v1/process/stop", {"process_id": "nobody"})
    nothing = await instance.post("/api/v1/process/stop", {})

    assert unknown.json() == {"success": True}
    assert (nothing.status_code, nothing.json()) == (400, {"error": "process_id is required"})


@pytest.mark.parametrize("missing", ["session_id", "kind", "command"])
async def test_a_process_needs_a_session_a_kind_and_a_command(instance: Instance, missing: str) -> None:
    body = {"session_id": "s", "kind": "dev", "command": "true"}

    for value in ({}, {missing: ""}):
        answer = await instance.post(
            "/api/v1/processes/start", {**{k: v for k, v in body.items() if k != missing}, **value}
        )
        assert answer.status_code == 400
        assert missing in answer.json()["error"]


async def test_a_place_that_is_not_there_starts_nothing(instance: Instance) -> None:
    answer = await instance.post(
        "/api/v1/process/start",
        {"session_id": "s", "kind": "dev", "command": "pwd", "working_dir": "/no/such"},
    )

    assert answer.status_code == 400


# --- files and git


async def test_changes_of_files_are_named(stream: Stream, work: Path) -> None:
    (work / "new ü.txt").write_text("x")
    assert _change(await stream.until("file_change")) == ("new ü.txt", "create")

    (work / "a.txt").write_text("two\n")
    assert _change(await stream.until("file_change")) == ("a.txt", "write")

    (work / "new ü.txt").unlink()
    assert _change(await stream.until("file_change")) == ("new ü.txt", "remove")


async def test_a_file_saved_by_renaming_is_written(stream: Stream, work: Path) -> None:
    (work / "a.txt.part").write_text("new")
    (work / "a.txt.part").replace(work / "a.txt")

    change = await stream.until(lambda frame: frame.get("file_change", {}).get("path") == "a.txt")

    assert _change(change) == ("a.txt", "write")


async def test_a_file_operation_is_told_once(instance: Instance, stream: Stream, work: Path) -> None:
    await instance.post("/api/v1/workspace/file/create", {"path": "n.txt"})
    await instance.post("/api/v1/workspace/file/rename", {"old_path": "n.txt", "new_path": "m.txt"})
    await instance.delete("/api/v1/workspace/file", path="m.txt")
    await asyncio.to_thread((work / "end").write_text, "")
    await stream.until(lambda frame: frame.get("file_change", {}).get("path") == "end")

    told = [_change(frame) for frame in stream.frames if frame["type"] == "file_change"]
    assert told[:4] == [("n.txt", "create"), ("n.txt", "rename"), ("m.txt", "rename"), ("m.txt", "remove")]


async def test_what_tools_make_and_git_itself_is_not_told(stream: Stream, work: Path) -> None:
    (work / "node_modules").mkdir()
    (work / "node_modules" / "x.js").write_text("")
    await git(work, "commit", "--quiet", "--allow-empty", "-m", "x")
    (work / "end").write_text("")
    await stream.until(lambda frame: frame.get("file_change", {}).get("path") == "end")

    paths = {_change(frame)[0] for frame in stream.frames if frame["type"] == "file_change"}
    assert {path for path in paths if path.startswith((".git", "node_modules/"))} == set()


async def test_very_many_changes_are_one_refresh(stream: Stream, work: Path) -> None:
    for number in range(2000):
        (work / f"f{number}").write_text("")

    await stream.until(lambda frame: _change(frame) == ("", "refresh") if "file_change" in frame else False)


async def test_a_name_that_is_no_text_ends_no_watching(stream: Stream, work: Path) -> None:
    Path(os.fsdecode(os.fsencode(work) + b"/odd-\xff")).write_text("x")
    await stream.until(lambda frame: _change(frame) == ("", "refresh") if "file_change" in frame else False)

    async def written() -> bool:  # what changes before the next watch has begun is part of the refresh
        (work / "plain").write_text("x")
        return any(_change(frame) == ("plain", "write") for frame in stream.frames if "file_change" in frame)

    reading = asyncio.create_task(
        stream.until(lambda frame: frame.get("file_change", {}).get("path") == "plain")
    )
    await eventually(written, timeout=10)
    await reading


async def test_the_status_follows_the_files(stream: Stream, work: Path) -> None:
    (work / "n.txt").write_text("one\ntwo\n")

    status = (await stream.until("git_status"))["git_status"]

    assert status["untracked"] == ["n.txt"]
    assert status["files"]["n.txt"] == {
        "path": "n.txt",
        "status": "untracked",
        "staged": False,
        "additions": 2,
    }


async def test_commits_made_elsewhere_are_told_newest_first(stream: Stream, work: Path) -> None:
    before = await git(work, "rev-parse", "HEAD")
    await git(work, "commit", "--quiet", "--allow-empty", "-m", "second\n\nbody")
    commit = (await stream.until("git_commit"))["git_commit"]

    assert (commit["message"], commit["parent_sha"]) == ("second", before)
    assert commit["commit_sha"] == await git(work, "rev-parse", "HEAD")
    assert (commit["author_name"], commit["author_email"]) == ("Test", "test@example.org")


async def test_a_commit_through_the_api_is_told_with_its_whole_message(
    instance: Instance, stream: Stream, work: Path
) -> None:
    (work / "a.txt").write_text("two\n")
    done = await instance.git("commit", message="second\n\nbody", stage_all=True)
    assert (done["success"], done["operation"]) == (True, "commit")

    commit = (await stream.until("git_commit"))["git_commit"]
    status = (await stream.until("git_status"))["git_status"]

    assert (commit["message"], commit["timestamp"]) == ("second\n\nbody", "0001-01-01T00:00:00Z")
    assert (commit["files_changed"], commit["insertions"], commit["deletions"]) == (1, 1, 1)
    assert status["head_commit"] == commit["commit_sha"]
    assert "files" not in status


async def test_a_reset_is_told(instance: Instance, stream: Stream, work: Path) -> None:
    first = await git(work, "rev-parse", "HEAD")
    await instance.git("commit", message="second", stage_all=True)
    (work / "a.txt").write_text("two\n")
    await instance.git("commit", message="second", stage_all=True)
    second = await git(work, "rev-parse", "HEAD")

    await instance.git("reset", commit_sha=first, mode="hard")
    told = (await stream.until("git_reset"))["git_reset"]
    assert (told["previous_head"], told["current_head"]) == (second, first)

    await git(work, "reset", "--quiet", "--hard", second)
    await stream.until("git_commit")
    await git(work, "reset", "--quiet", "--hard", first)
    told = (await stream.until("git_reset"))["git_reset"]
    assert (told["previous_head"], told["current_head"]) == (second, first)


async def test_a_switched_branch_is_told(stream: Stream, work: Path) -> None:
    head = await git(work, "rev-parse", "HEAD")
    await git(work, "switch", "--quiet", "-c", "feat/x")

    told = (await stream.until("branch_switch"))["branch_switch"]

    assert (told["previous_branch"], told["current_branch"]) == ("main", "feat/x")
    assert (told["current_head"], told["base_commit"]) == (head, head)


async def test_odd_names_and_renames_come_through_whole(stream: Stream, work: Path) -> None:
    """B85: blanks, quotes, arrows, line feeds, a leading dash, NFC and NFD."""
    odd = ["b ü.txt", "new\nline", "tab\there", "-lead", "caf\\303\\251.txt", "é.txt", "e\u0301.txt"]
    old = 'a -> "x".txt'
    (work / old).write_text("some text that is long enough to be found again\n")
    await git(work, "add", "-A")
    await git(work, "commit", "--quiet", "-m", "odd")
    await git(work, "mv", "--", old, "-> ü")
    for name in odd:
        (work / name).write_text(name)

    status: Any = (
        await stream.until(
            lambda frame: (
                len(frame.get("git_status", {}).get("untracked", [])) == len(odd)
                and frame["git_status"]["renamed"]
            )
        )
    )["git_status"]

    assert set(status["untracked"]) == set(odd)
    assert status["renamed"] == ["-> ü"]
    renamed = status["files"]["-> ü"]
    assert (renamed["status"], renamed["old_path"], renamed["staged"]) == ("renamed", old, True)


async def test_a_workspace_of_several_repositories_names_each(
    started: tuple[Process, str], tmp_path: Path
) -> None:
    for name in ("one", "two"):
        await repository(tmp_path / "many" / name)
    async with Daemon(*started) as running, running.instance(tmp_path / "many") as instance:
        async with instance.stream() as stream:
            first = [await stream.until("git_status") for _ in range(2)]
            (tmp_path / "many" / "two" / "n.txt").write_text("")
            told = {frame["type"]: frame for frame in [await stream.next(), await stream.next()]}
            change, status = told["file_change"]["file_change"], told["git_status"]["git_status"]

        multi = (await instance.get("/api/v1/git/status/multi")).json()
        unknown = await instance.post("/api/v1/git/stage", {"repo": "../one"})
        log = (await instance.get("/api/v1/git/log")).json()

    assert [frame["git_status"]["repository_name"] for frame in first] == ["one", "two"]
    assert (change["repository_name"], change["path"]) == ("two", "n.txt")
    assert (status["repository_name"], status["untracked"]) == ("two", ["n.txt"])
    assert [one["repository_name"] for one in multi["repos"]] == ["one", "two"]
    assert unknown.status_code == 400
    assert {one["repository_name"] for one in log["commits"]} == {"one", "two"}


async def test_a_paused_workspace_is_quiet_until_it_is_fast_again(
    instance: Instance, stream: Stream, work: Path
) -> None:
    assert (await instance.post("/api/v1/workspace/poll-mode", {"mode": "paused"})).json() == {
        "mode": "paused"
    }
    (work / "quiet.txt").write_text("")
    assert (await instance.post("/api/v1/workspace/poll-mode", {"mode": "sometimes"})).status_code == 400
    await instance.post("/api/v1/workspace/poll-mode", {"mode": "fast"})

    assert (await stream.until("git_status"))["git_status"]["untracked"] == ["quiet.txt"]


async def test_a_rebound_workspace_is_followed_at_its_new_place(
    instance: Instance, stream: Stream, tmp_path: Path
) -> None:
    other = await repository(tmp_path / "other", {"b.txt": "b\n"})
    for body, code in (({}, 400), ({"work_dir": "/no/such"}, 422)):
        assert (await instance.post("/api/v1/workspace/rebind", body)).status_code == code

    assert (await instance.post("/api/v1/workspace/rebind", {"work_dir": str(other)})).json() == {"ok": True}
    head = await git(other, "rev-parse", "HEAD")
    await stream.until(lambda frame: frame.get("git_status", {}).get("head_commit") == head)

    tree = (await instance.get("/api/v1/workspace/tree")).json()
    assert [node["name"] for node in tree["root"]["children"]] == ["b.txt"]


async def test_base_branches_decide_what_is_ahead(instance: Instance, stream: Stream, work: Path) -> None:
    await git(work, "branch", "dev")
    await git(work, "commit", "--quiet", "--allow-empty", "-m", "x")
    bases = {"base_branches": {"": "dev", "x": "--bad"}}

    assert (await instance.post("/api/v1/workspace/base-branches", bases)).json() == {"ok": True}

    await stream.until(lambda frame: frame.get("git_status", {}).get("ahead") == 1)


# --- who listens


async def test_every_stream_hears_everything(instance: Instance, stream: Stream, work: Path) -> None:
    async with instance.stream() as other:
        (work / "n.txt").write_text("")

        assert _change(await stream.until("file_change")) == ("n.txt", "create")
        assert _change(await other.until("file_change")) == ("n.txt", "create")


async def test_a_higher_epoch_ends_the_lower_ones_and_they_do_not_come_back(instance: Instance) -> None:
    url = f"ws://127.0.0.1:{instance.port}/api/v1/workspace/stream"
    async with (
        instance.stream(X_Tieline_Epoch="5") as old,
        instance.stream(X_Tieline_Epoch="5") as same,
        instance.stream(X_Tieline_Epoch="6") as new,
    ):
        for stream in (old, same):
            with pytest.raises(ConnectionClosed):
                await stream.until("never")
        for epoch in ({"X-Tieline-Epoch": "5"}, {}):
            with pytest.raises(InvalidStatus) as refused:
                async with connect(url, additional_headers={**instance.headers, **epoch}, proxy=None):
                    pass
            assert refused.value.response.status_code == 409

        await new.send("ping")
        await new.until("pong")


async def test_a_vanished_reader_is_forgotten(instance: Instance, work: Path) -> None:
    async with instance.stream() as stream:
        stream.socket.transport.abort()

    async with instance.stream() as other:
        (work / "n.txt").write_text("")
        await other.until("file_change")


async def _start(instance: Instance, command: str, **fields: Any) -> Any:
    body = {"session_id": "s", "kind": "dev", "command": command, **fields}
    answer = await instance.post("/api/v1/processes/start", body)
    assert answer.status_code == 200, answer.text
    return answer.json()["process"]


async def _follow(stream: Stream, process_id: str) -> tuple[list[Frame], dict[str, str]]:
    """All statuses and outputs of a process, to its end; what had come before counts too."""

    def of(kind: str) -> list[Frame]:
        mine = [frame[kind] for frame in stream.frames if frame["type"] == kind]
        return [one for one in mine if one["process_id"] == process_id]

    def ended() -> bool:
        return any(one["status"] in ("exited", "failed") for one in of("process_status"))

    if not ended():
        await stream.until(lambda _: ended())
    outputs = {"stdout": "", "stderr": ""}
    for one in of("process_output"):
        outputs[one["stream"]] += one["data"]
    return of("process_status"), outputs


def _change(frame: Frame) -> tuple[str, str]:
    return frame["file_change"]["path"], frame["file_change"]["operation"]
