r"""Pure: the command language of the example agent's prompts.

A prompt whose every line is a directive is carried out line by line, in order. Any other prompt gets the
demonstration: it thinks, plans, streams text, writes `hello.txt`, runs a command (asking before either) and says
that it is done.

    say TEXT            stream TEXT as an answer, in chunks that put together are TEXT exactly
    think TEXT          stream TEXT as reasoning
    plan A | B | C      make a plan of these steps, the first one in progress
    read PATH           read a file
    write PATH TEXT     write TEXT to a file, after asking
    run COMMAND         run COMMAND in the shell, after asking; its output is the tool's result
    ask TITLE           only ask permission, then say which answer came
    wait SECONDS        wait; a cancel ends it
    chunks N TEXT       stream TEXT N times, a chunk each
    big N               stream one chunk of N bytes, without line breaks
    usage USED SIZE     report the context window; the turn's usage too
    commands A B C      say which slash commands there are
    mode ID             change the mode by itself
    title TEXT          name the session
    servers             say which MCP servers the session was given
    tools               say which tools these servers have
    tool NAME JSON      call a tool with these arguments (an object; none is {}) and stream its result
    stderr TEXT         write a line to stderr
    child SECONDS       leave a child process behind that sleeps, and say its pid
    stubborn            from here on ignore a cancel, until the turn is over
    late SECONDS TEXT   so long after the end of the turn, stream TEXT
    stop REASON         end the turn with this stop reason
    fail TEXT           end the turn with an error
    crash CODE          exit at once with CODE
    exit                exit at once with code 0

TEXT runs to the end of the line; in it \n, \r, \t, \\ and \uXXXX stand for their characters, so an answer can hold line
breaks, NUL and emoji. Empty lines are nothing.
"""

import json
import re
from dataclasses import dataclass

_ARGUMENTS = {
    "say": 1,
    "think": 1,
    "plan": 1,
    "read": 1,
    "write": 2,
    "run": 1,
    "ask": 1,
    "wait": 1,
    "chunks": 2,
    "big": 1,
    "usage": 2,
    "commands": 1,
    "mode": 1,
    "title": 1,
    "servers": 0,
    "tools": 0,
    "tool": 1,
    "stderr": 1,
    "child": 1,
    "stubborn": 0,
    "late": 2,
    "stop": 1,
    "fail": 1,
    "crash": 1,
    "exit": 0,
}
_WHOLE = {"chunks": (0,), "big": (0,), "usage": (0, 1), "crash": (0,)}
_SECONDS = {"wait": (0,), "child": (0,), "late": (0,)}
_RAW = ("run",)  # a command keeps its backslashes
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([nrt\\]))")
_PLAIN = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\"}


@dataclass(frozen=True, slots=True)
class Directive:
    """One line of a prompt."""

    name: str
    arguments: tuple[str, ...] = ()


DEMONSTRATION = (
    Directive("think", ("A greeting belongs into a file. ",)),
    Directive("plan", ("Write hello.txt | Look at it with a command",)),
    Directive(
        "say",
        ("Hello! I will write a file and look at it.\n\n    step 1: hello.txt\n    step 2: cat 👋\n\n",),
    ),
    Directive("write", ("hello.txt", "Hello from the example agent.\n")),
    Directive("run", ("cat hello.txt",)),
    Directive("usage", ("1200", "200000")),
    Directive("say", ("Done.",)),
)


def directives(prompt: str) -> tuple[Directive, ...]:
    """What a prompt asks for."""
    found = [_directive(line) for line in prompt.split("\n") if line.strip()]
    known = [directive for directive in found if directive is not None]
    return tuple(known) if known and len(known) == len(found) else DEMONSTRATION


def _directive(line: str) -> Directive | None:
    name, _, rest = line.rstrip("\r").lstrip(" ").partition(" ")
    wanted = _ARGUMENTS.get(name)
    if wanted is None:
        return None
    if wanted == 0:
        return Directive(name) if not rest.strip() else None
    if name == "tool":
        return _tool(rest)
    parts = rest.split(" ", wanted - 1)
    if len(parts) < wanted or not parts[0]:
        return None
    if not all(re.fullmatch(r"\d{1,9}", parts[at]) for at in _WHOLE.get(name, ())):
        return None
    if not all(re.fullmatch(r"\d{1,5}(\.\d{1,6})?", parts[at]) for at in _SECONDS.get(name, ())):
        return None
    if name not in _RAW:
        parts[-1] = unescaped(parts[-1])
    return Directive(name, tuple(parts))


def _tool(rest: str) -> Directive | None:
    tool, _, written = rest.strip().partition(" ")
    try:
        arguments = json.loads(written or "{}")
    except ValueError:
        return None
    return Directive("tool", (tool, written or "{}")) if tool and isinstance(arguments, dict) else None


def unescaped(text: str) -> str:
    """The text with its escapes replaced; pairs of surrogates are joined, a lone one becomes U+FFFD."""
    plain = _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else _PLAIN[m[2]], text)
    return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def chunked(text: str) -> list[str]:
    """The text in the pieces in which it is streamed: words with the blanks after them."""
    return re.findall(r"\S+\s*|\s+", text)


def shortened(history: list[dict[str, object]], most: int) -> list[dict[str, object]]:
    """The newest part of a history, beginning with something that the user said."""
    kept = history[-most:] if most else []
    first = next(
        (at for at, update in enumerate(kept) if update.get("sessionUpdate") == "user_message_chunk"), None
    )
    return kept if len(kept) == len(history) else kept[first:] if first is not None else []
