"""Pure: what git prints, as facts. Only the forms that end names with NUL are read, so that no name is ever split."""

import re
from dataclasses import dataclass, field
from typing import Any

DIFF_CAP = 256 * 1024
TOTAL_CAP = 2 * 1024 * 1024
LOG_FORMAT = "%x00%H%x00%P%x00%s%x00%an%x00%ae%x00%cI%x00"
_SHORTSTAT = re.compile(r"(\d+) (file|insertion|deletion)")
_REVISION = re.compile(r"(?!-)[^\x00-\x20\x7f:*?\[\\]+")
_BAD_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|^[-/.]|[/.]$|\.lock$|/\.|^@$")


@dataclass(frozen=True, slots=True)
class Change:
    """One path that differs."""

    path: str
    status: str  # modified, added, deleted, untracked, renamed
    staged: bool = False
    old_path: str = ""
    conflict: bool = False


@dataclass(slots=True)
class Status:
    """`git status --porcelain=v2 --branch -z`."""

    head: str = ""
    branch: str = ""  # empty when detached
    upstream: str = ""
    ahead: int = 0
    behind: int = 0
    changes: list[Change] = field(default_factory=list)


@dataclass(slots=True)
class FileDiff:
    """One file of `git diff --raw --numstat -p -z`."""

    path: str
    old_path: str = ""
    status: str = "modified"
    additions: int = 0
    deletions: int = 0
    binary: bool = False
    diff: str = ""


@dataclass(frozen=True, slots=True)
class Commit:
    sha: str
    parent: str
    subject: str
    author: str
    email: str
    date: str
    files: int
    insertions: int
    deletions: int


def name_of(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def parse_status(output: bytes) -> Status:
    status = Status()
    records = iter(output.split(b"\0"))
    for record in records:
        kind = record[:2]
        if kind == b"# ":
            _header(status, name_of(record[2:]))
        elif kind == b"1 ":
            fields = record.split(b" ", 8)
            status.changes.append(_ordinary(fields[1].decode(), name_of(fields[8])))
        elif kind == b"2 ":
            fields = record.split(b" ", 9)
            old = name_of(next(records))
            copied = fields[8].startswith(b"C")
            change = _ordinary(fields[1].decode(), name_of(fields[9]))
            if copied:
                status.changes.append(Change(change.path, "added", change.staged))
            elif change.status == "deleted":
                # Renamed in the index, then removed: against the last commit the old name is gone.
                status.changes.append(Change(old, "deleted", change.staged))
            else:
                status.changes.append(Change(change.path, "renamed", change.staged, old))
        elif kind == b"u ":
            fields = record.split(b" ", 10)
            status.changes.append(Change(name_of(fields[10]), "modified", False, "", True))
        elif kind == b"? ":
            status.changes.append(Change(name_of(record[2:]), "untracked"))
    return status


def _header(status: Status, line: str) -> None:
    name, _, value = line.partition(" ")
    if name == "branch.oid" and value != "(initial)":
        status.head = value
    elif name == "branch.head" and value != "(detached)":
        status.branch = value
    elif name == "branch.upstream":
        status.upstream = value
    elif name == "branch.ab":
        ahead, behind = value.split(" ")
        status.ahead, status.behind = int(ahead), -int(behind)


def _ordinary(xy: str, path: str) -> Change:
    index, tree = xy[0], xy[1]
    if "D" in (index, tree):
        kind = "deleted"
    elif "A" in (index, tree):
        kind = "added"
    else:
        kind = "modified"
    return Change(path, kind, index != ".")


def parse_diff(output: bytes) -> list[FileDiff]:
    """Raw records (if any), numstat records, patches: in the same order of files."""
    raws, rest = _raws(output)
    files, rest = _numstats(rest)
    for file, (status, path, old) in zip(files, raws, strict=False):
        if file.path == path:
            file.status, file.old_path = status, old
    patches = _patches(rest)
    if len(patches) == len(files):
        for file, patch in zip(files, patches, strict=True):
            file.diff = patch
    return files


_RAW_STATUS = {"A": "added", "C": "added", "D": "deleted", "R": "renamed"}


def _raws(output: bytes) -> tuple[list[tuple[str, str, str]], bytes]:
    found = []
    while output.startswith(b":"):
        head, _, output = output.partition(b"\0")
        path, _, output = output.partition(b"\0")
        letter = head.split(b" ")[4][:1].decode()
        old = b""
        if letter in "RC":
            old = path
            path, _, output = output.partition(b"\0")
        old_name = name_of(old) if letter == "R" else ""
        found.append((_RAW_STATUS.get(letter, "modified"), name_of(path), old_name))
    return found, output


def _numstats(output: bytes) -> tuple[list[FileDiff], bytes]:
    found = []
    while output[:1].isdigit() or output[:1] == b"-":
        plus, minus, rest = output.split(b"\t", 2)
        path, _, output = rest.partition(b"\0")
        old = b""
        if not path:
            old, _, output = output.partition(b"\0")
            path, _, output = output.partition(b"\0")
        binary = plus == b"-"
        found.append(
            FileDiff(
                path=name_of(path),
                old_path=name_of(old),
                status="renamed" if old else "modified",
                additions=0 if binary else int(plus),
                deletions=0 if binary else int(minus),
                binary=binary,
            )
        )
    return found, output


def _patches(output: bytes) -> list[str]:
    output = output.lstrip(b"\0")
    if not output:
        return []
    # Within a patch every line of a file begins with one of " +-\", so this begins a file and nothing else does.
    parts = (b"\n" + output.removesuffix(b"\n")).split(b"\ndiff --git ")[1:]
    patches = []
    for part in parts:
        at = part.find(b"\n@@")
        patches.append(part[at + 1 :].decode("utf-8", "replace") + "\n" if at >= 0 else "")
    return patches


def file_info(
    file: FileDiff, *, status: str = "", staged: bool = False, old_path: str = "", budget: int = TOTAL_CAP
) -> tuple[dict[str, Any], int]:
    """The wire's FileInfo, and what is left of the budget for diffs."""
    info: dict[str, Any] = {"path": file.path, "status": status or file.status, "staged": staged}
    if file.additions:
        info["additions"] = file.additions
    if file.deletions:
        info["deletions"] = file.deletions
    if old_path or file.old_path:
        info["old_path"] = old_path or file.old_path
    size = len(file.diff.encode())
    if file.binary:
        info["diff_skip_reason"] = "binary"
    elif size > budget:
        info["diff_skip_reason"] = "budget_exceeded"
    elif size > DIFF_CAP:
        info["diff"] = file.diff.encode()[:DIFF_CAP].decode(errors="ignore")
        info["diff_skip_reason"] = "truncated"
        budget -= DIFF_CAP
    elif size:
        info["diff"] = file.diff
        budget -= size
    return info, budget


def parse_log(output: bytes) -> list[Commit]:
    """`git log --format=LOG_FORMAT --shortstat`."""
    parts = output.split(b"\0")[1:]
    commits = []
    for at in range(0, len(parts) - 6, 7):
        sha, parents, subject, author, email, date, stat = (
            part.decode("utf-8", "replace") for part in parts[at : at + 7]
        )
        numbers = {word: int(number) for number, word in _SHORTSTAT.findall(stat)}
        commits.append(
            Commit(
                sha,
                parents.split(" ")[0],
                subject,
                author,
                email,
                date,
                numbers.get("file", 0),
                numbers.get("insertion", 0),
                numbers.get("deletion", 0),
            )
        )
    return commits


def parse_batch_check(output: bytes) -> list[str]:
    """`git cat-file --batch-check`: the object of each name, empty where there is none."""
    found = []
    for line in output.decode("utf-8", "replace").splitlines():
        words = line.rsplit(" ", 2)
        found.append(words[0] if len(words) == 3 and words[1] == "commit" else "")
    return found


def names(output: bytes) -> list[str]:
    """A list of names, each ended by NUL."""
    return [name_of(name) for name in output.split(b"\0") if name]


def safe_ref(name: str) -> bool:
    """Whether this can be a branch's name; one that git could take for an option never is."""
    return bool(name) and not _BAD_REF.search(name)


def safe_revision(name: str) -> bool:
    """Whether this may be asked for as a commit: a hash, a branch, `HEAD~1`, … but never an option or two words."""
    return bool(_REVISION.fullmatch(name))
