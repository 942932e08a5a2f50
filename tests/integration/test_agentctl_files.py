"""The file routes of a real daemon: both spellings, limits, and nothing written outside the workspace."""

import base64
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import Daemon, Instance, git, repository
from tests.support.eventually import eventually
from tests.support.process import Process

DIFF = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+two\n"
ONE = hashlib.sha256(b"one\n").hexdigest()


pytestmark = pytest.mark.timeout(20)  # the first test of a module waits for the daemon, too


@pytest.fixture
async def work(tmp_path: Path) -> Path:
    return await repository(tmp_path / "work", {"a.txt": "one\n", "src/b ü.py": "x = 1\n"})


@pytest.fixture
async def instance(started: tuple[Process, str], work: Path) -> AsyncIterator[Instance]:
    async with Daemon(*started) as running, running.instance(work) as it:
        yield it


async def test_the_tree_is_told_in_both_spellings(instance: Instance, work: Path) -> None:
    (work / "lnk").symlink_to("a.txt")
    (work / "node_modules").mkdir()
    expected = {
        "request_id": "",
        "root": {
            "name": "work",
            "path": "",
            "is_dir": True,
            "children": [
                {
                    "name": "src",
                    "path": "src",
                    "is_dir": True,
                    "children": [{"name": "b ü.py", "path": "src/b ü.py", "is_dir": False, "size": 6}],
                },
                {"name": "a.txt", "path": "a.txt", "is_dir": False, "size": 4},
                {"name": "lnk", "path": "lnk", "is_dir": False, "size": 5, "is_symlink": True},
            ],
        },
    }

    assert (await instance.get("/api/v1/workspace/tree", depth=2)).json() == expected
    assert (await instance.get("/api/v1/workspace/tree", depth=0)).json() == expected
    assert (await instance.post("/api/v1/workspace/file-tree", {"depth": 2})).json() == expected
    shallow = (await instance.get("/api/v1/workspace/tree")).json()
    assert "children" not in shallow["root"]["children"][0]
    sub = (await instance.get("/api/v1/workspace/tree", path="src")).json()["root"]
    assert (sub["path"], sub["children"][0]["path"]) == ("src", "src/b ü.py")


@pytest.mark.parametrize("path", ["..", "../..", "no/such", "/etc", "out"])
async def test_a_tree_outside_the_workspace_is_refused(instance: Instance, work: Path, path: str) -> None:
    (work / "out").symlink_to("/etc")

    answer = await instance.get("/api/v1/workspace/tree", path=path)

    assert answer.status_code == 400
    assert (answer.json()["root"], answer.json()["request_id"]) == (None, "")
    assert answer.json()["error"]


async def test_a_file_is_read_in_both_spellings(instance: Instance) -> None:
    expected = {"request_id": "", "path": "src/b ü.py", "content": "x = 1\n", "size": 6}

    assert (await instance.get("/api/v1/workspace/file/content", path="src/b ü.py")).json() == expected
    assert (await instance.post("/api/v1/workspace/file-content", {"path": "src/b ü.py"})).json() == expected


async def test_what_is_no_text_comes_as_base64(instance: Instance, work: Path) -> None:
    (work / "x.bin").write_bytes(b"\xff\x00")

    body = (await instance.get("/api/v1/workspace/file/content", path="x.bin")).json()

    assert (body["is_binary"], base64.b64decode(body["content"]), body["size"]) == (True, b"\xff\x00", 2)


async def test_a_line_selector_is_taken_off(instance: Instance) -> None:
    body = (await instance.get("/api/v1/workspace/file/content", path="a.txt:43-94")).json()

    assert (body["path"], body["resolved_path"], body["content"]) == ("a.txt:43-94", "a.txt", "one\n")


async def test_a_file_with_an_absolute_name_can_be_read(instance: Instance, tmp_path: Path) -> None:
    (tmp_path / "outside.txt").write_text("out")

    body = (await instance.get("/api/v1/workspace/file/content", path=str(tmp_path / "outside.txt"))).json()

    assert body["content"] == "out"


async def test_ten_mebibytes_are_read_and_one_byte_more_is_not(instance: Instance, work: Path) -> None:
    (work / "full").write_bytes(b"x" * 10 * 1024 * 1024)
    (work / "over").write_bytes(b"x" * (10 * 1024 * 1024 + 1))

    full = await instance.get("/api/v1/workspace/file/content", path="full")
    over = await instance.get("/api/v1/workspace/file/content", path="over")

    assert (full.status_code, len(full.json()["content"])) == (200, 10 * 1024 * 1024)
    assert over.status_code == 400
    assert (over.json()["error"], over.json()["size"]) == ("file too large (max 10MB)", 10 * 1024 * 1024 + 1)


@pytest.mark.parametrize("path", ["", "no/such", "src", "../outside", "out/passwd", "pipe", "a\0b"])
async def test_what_cannot_be_read_is_an_error(instance: Instance, work: Path, path: str) -> None:
    (work / "out").symlink_to("/etc")
    os.mkfifo(work / "pipe")

    answer = await instance.get("/api/v1/workspace/file/content", path=path)

    assert answer.status_code == 400
    assert answer.json()["error"]
    assert answer.json()["content"] == ""


async def test_an_older_version_is_read(instance: Instance, work: Path) -> None:
    (work / "a.txt").write_text("two\n")
    await git(work, "commit", "-q", "-a", "-m", "second")
    route = "/api/v1/workspace/file/content-at-ref"

    assert (await instance.get(route, path="a.txt", ref="HEAD~1")).json()["content"] == "one\n"
    for query in (
        {"path": "a.txt", "ref": "nope"},
        {"path": "a.txt", "ref": "--help"},
        {"path": "x", "ref": "HEAD"},
    ):
        answer = await instance.http.get(route, params=query)
        assert answer.status_code == 400
        assert answer.json()["error"]


async def test_a_patch_changes_a_file(instance: Instance, work: Path) -> None:
    (work / "a.txt").chmod(0o755)

    answer = await instance.post(
        "/api/v1/workspace/file/content", {"path": "a.txt", "diff": DIFF, "original_hash": ONE}
    )

    digest = hashlib.sha256(b"two\n").hexdigest()
    assert answer.json() == {
        "request_id": "",
        "path": "a.txt",
        "success": True,
        "new_hash": digest,
        "resolution": "applied",
    }
    assert (work / "a.txt").read_text() == "two\n"
    assert (work / "a.txt").stat().st_mode & 0o777 == 0o755


async def test_the_seeds_one_route_reads_and_writes(instance: Instance, work: Path) -> None:
    body = {"path": "a.txt", "diff": DIFF, "original_hash": ""}

    assert (await instance.post("/api/v1/workspace/file-content", body)).json()["success"] is True
    assert (work / "a.txt").read_text() == "two\n"


@pytest.mark.parametrize(
    ("diff", "digest"), [(DIFF, "0" * 64), (DIFF.replace("-one", "-other"), ONE), ("nonsense", ""), ("", ONE)]
)
async def test_a_patch_that_does_not_fit_changes_nothing_unless_told_what_is_wanted(
    instance: Instance, work: Path, diff: str, digest: str
) -> None:
    body: dict[str, Any] = {"path": "a.txt", "diff": diff, "original_hash": digest}

    refused = await instance.post("/api/v1/workspace/file/content", body)
    assert (refused.status_code, refused.json()["success"]) == (400, False)
    assert refused.json()["error"]
    assert (work / "a.txt").read_text() == "one\n"

    wanted = await instance.post("/api/v1/workspace/file/content", {**body, "desired_content": "three"})
    assert (wanted.json()["success"], wanted.json()["resolution"]) == (True, "overwritten")
    assert (work / "a.txt").read_text() == "three"


@pytest.mark.parametrize("route", ["file/create", "file-create"])
async def test_a_file_is_created_once_with_its_directories(
    instance: Instance, work: Path, route: str
) -> None:
    body = {"path": "new/deep ü/c.txt"}

    first = await instance.post(f"/api/v1/workspace/{route}", body)
    again = await instance.post(f"/api/v1/workspace/{route}", body)

    assert first.json() == {"path": "new/deep ü/c.txt", "success": True}
    assert (again.status_code, again.json()["success"]) == (400, False)
    assert (work / "new/deep ü/c.txt").read_bytes() == b""


async def test_a_file_is_renamed_but_never_over_another(instance: Instance, work: Path) -> None:
    names = {"old_path": "a.txt", "new_path": "to/c.txt"}
    assert (await instance.post("/api/v1/workspace/file/rename", names)).json() == {**names, "success": True}
    assert (work / "to/c.txt").read_text() == "one\n"

    over = {"old_path": "to/c.txt", "new_path": "src/b ü.py"}
    refused = await instance.post("/api/v1/workspace/file/rename", over)
    assert (refused.status_code, refused.json()["success"]) == (400, False)
    assert (work / "src/b ü.py").read_text() == "x = 1\n"


async def test_files_and_directories_are_deleted(instance: Instance, work: Path) -> None:
    done = await instance.delete("/api/v1/workspace/file", path="src")
    assert done.json() == {"request_id": "", "path": "src", "success": True}
    done = await instance.post("/api/v1/workspace/file-delete", {"path": "a.txt"})
    assert done.json()["success"] is True

    assert sorted(path.name for path in work.iterdir()) == [".git"]
    again = await instance.delete("/api/v1/workspace/file", path="a.txt")
    assert (again.status_code, again.json()["success"]) == (400, False)


OUTSIDE = ["../secret", "sub/../../secret", "out/secret", "{tmp}/secret", ".git/config", "in/../../secret"]


@pytest.mark.parametrize("path", OUTSIDE)
async def test_nothing_outside_the_workspace_is_written(
    instance: Instance, work: Path, tmp_path: Path, path: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("one\n")
    (work / "out").symlink_to(tmp_path)
    before = (work / ".git/config").read_text()
    path = path.format(tmp=tmp_path)
    base = "/api/v1/workspace/file"

    answers = [
        await instance.post(f"{base}/create", {"path": f"{path}.new"}),
        await instance.post(f"{base}/content", {"path": path, "diff": DIFF, "original_hash": ""}),
        await instance.post(
            f"{base}/content", {"path": path, "diff": "", "original_hash": "", "desired_content": "x"}
        ),
        await instance.post(f"{base}/rename", {"old_path": path, "new_path": "mine"}),
        await instance.post(f"{base}/rename", {"old_path": "a.txt", "new_path": path + "2"}),
        await instance.delete(base, path=path),
    ]

    assert [(answer.status_code, answer.json()["success"]) for answer in answers] == [(400, False)] * 6
    assert secret.read_text() == "one\n"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["secret", "work"]
    assert (work / ".git/config").read_text() == before
    assert (work / "a.txt").read_text() == "one\n"


async def test_a_link_to_the_outside_can_be_deleted_but_not_written_through(
    instance: Instance, work: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("one\n")
    (work / "lnk").symlink_to(tmp_path / "secret")
    body = {"path": "lnk", "diff": DIFF, "original_hash": ""}

    assert (await instance.post("/api/v1/workspace/file/content", body)).status_code == 400
    assert (await instance.delete("/api/v1/workspace/file", path="lnk")).json()["success"] is True
    assert (tmp_path / "secret").read_text() == "one\n"


@pytest.mark.parametrize("path", ["", ".", "/", "src/.."])
async def test_the_workspace_itself_is_not_deleted(instance: Instance, work: Path, path: str) -> None:
    answer = await instance.delete("/api/v1/workspace/file", path=path)

    assert (answer.status_code, answer.json()["success"]) == (400, False)
    assert (work / "a.txt").exists()


async def test_names_are_found_in_both_spellings(instance: Instance, work: Path) -> None:
    (work / ".gitignore").write_text("ignored*\n")
    (work / "ignored.py").write_text("")
    (work / "b.py").write_text("")

    async def by_get() -> Any:
        body = (await instance.get("/api/v1/workspace/search", q="b")).json()
        return body["files"][0] == "b.py" and body

    body: Any = await eventually(by_get)
    assert body["results"][0] == {"path": "b.py"}
    assert "src/b ü.py" in body["files"]
    assert (await instance.post("/api/v1/workspace/file-search", {"q": "b", "limit": 20})).json() == body
    assert (await instance.get("/api/v1/workspace/search", q="")).json() == {"files": [], "results": []}
    assert (await instance.get("/api/v1/workspace/search", q="ignored.py")).json()["files"] == []


async def test_a_file_that_is_new_is_found_soon(instance: Instance, work: Path) -> None:
    assert (await instance.get("/api/v1/workspace/search", q="fresh")).json()["files"] == []
    async with instance.stream() as stream:
        (work / "fresh.txt").write_text("")
        await stream.until("file_change")

    async def found() -> Any:
        return (await instance.get("/api/v1/workspace/search", q="fresh")).json()["files"]

    assert await eventually(found) == ["fresh.txt"]


async def test_lines_are_found(instance: Instance) -> None:
    body = (await instance.get("/api/v1/workspace/content-search", q="X =")).json()

    assert body == {
        "results": [
            {
                "repository_name": "",
                "path": "src/b ü.py",
                "line": 1,
                "column": 1,
                "preview": "x = 1",
                "match_ranges": [{"start": 0, "end": 3}],
            }
        ]
    }
    long = await instance.get("/api/v1/workspace/content-search", q="x" * 201)
    assert (long.status_code, long.json()["results"]) == (400, [])


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"path":7}', b"{}", b'{"path":"' + b"\\ud83d" + b'"}'])
async def test_a_body_that_makes_no_sense_is_a_clear_400(instance: Instance, body: bytes) -> None:
    """B20: half a character in a name is refused; nothing breaks."""
    for route in ("file/create", "file/content", "file/rename", "file-content", "file-delete"):
        answer = await instance.http.post(f"/api/v1/workspace/{route}", content=body)
        assert answer.status_code == 400
        assert answer.json()["error"]


async def test_what_is_not_part_of_it_is_not_found(instance: Instance) -> None:
    for method, path in (
        ("GET", "/api/v1/ports"),
        ("POST", "/api/v1/workspace/copy-files"),
        ("POST", "/api/v1/attachments/materialize"),
        ("POST", "/api/v1/git/create-pr"),
        ("POST", "/api/v1/status"),
        ("GET", "/api/v1/start"),
        ("GET", "/"),
    ):
        answer = await instance.http.request(method, path)
        assert (answer.status_code, answer.text) == (404, "404 page not found")
        assert answer.headers["content-type"].startswith("text/plain")
