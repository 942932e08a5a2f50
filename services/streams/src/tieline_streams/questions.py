"""Pure: what the agent asks the user, from the daemon's request to the reply that it waits for.

One request is one entry of the event `questions`, whatever number of questions (1 to 4) stands in it, since the agent
waits for all their answers together: `{question_id, context, questions: [{id, prompt, title?, options: [{option_id,
label, description}]}]}`. `question_id` is the id of the daemon's request, so a later owner can answer it too.

Every request is closed once, by an answer or with a reason; closing gives the reply for the daemon.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from tieline_protocol import jsontext
from tieline_protocol.errors import Code, ProtocolError, Refused

ASK = "mcp.ask_user_question"

MOST = 32  # requests open at once
MOST_QUESTIONS = 16  # of one request: agents ask four
MOST_BYTES = 65_536  # of one request: all that are open travel in one event
_REMEMBERED = 1_024

Answers = list[Any] | dict[str, Any]


class Questions:
    """The requests that wait for the user, by `question_id`."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._closed: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def ids(self) -> list[str]:
        return list(self._open)

    def event(self) -> dict[str, Any]:
        return {"type": "questions", "open": list(self._open.values())}

    def restore(self, entries: list[dict[str, Any]]) -> None:
        """What an earlier owner's log says is open: the daemon still waits for a reply to each."""
        for entry in entries:
            if isinstance(id := entry.get("question_id"), str) and isinstance(entry.get("questions"), list):
                self._open[id] = entry

    def ask(self, id: str, payload: dict[str, Any]) -> None:
        """A request of the daemon's. Raises ProtocolError, Refused: the agent reads why."""
        if id in self._open:
            raise Refused(Code.CONFLICT, "this question is open already")
        if len(self._open) >= MOST:
            raise Refused(Code.BUSY, f"{MOST} questions are open already")
        context = payload.get("context")
        entry = {
            "question_id": id,
            "context": context if isinstance(context, str) else "",
            "questions": _checked(payload.get("questions")),
        }
        if len(jsontext.dumps(entry)) > MOST_BYTES:
            raise Refused(Code.TOO_LARGE, f"a question has at most {MOST_BYTES:,} bytes")
        self._closed.pop(id, None)
        self._open[id] = entry

    def answer(
        self, id: str, answers: Answers | None, rejected: bool, reason: str | None = None
    ) -> dict[str, Any]:
        """The user's answer; returns the reply. Raises Refused (not_found, conflict), ProtocolError."""
        entry = self._open.get(id)
        if entry is None:
            if id in self._closed:
                raise Refused(Code.CONFLICT, "the question is closed already")
            raise Refused(Code.NOT_FOUND, "there is no such question")
        if rejected:
            reply = _rejection(reason or "the user does not want to answer")
        elif answers is None:
            raise ProtocolError("answers: required, or rejected: true")
        else:
            reply = {"answers": _answered(entry["questions"], answers)}
        self._close(id)
        return reply

    def close(self, reason: str) -> list[tuple[str, dict[str, Any]]]:
        """Nobody answers what is open any more; returns the replies, by id."""
        ids = list(self._open)
        for id in ids:
            self._close(id)
        return [(id, _rejection(reason)) for id in ids]

    def _close(self, id: str) -> None:
        del self._open[id]
        self._closed[id] = None
        if len(self._closed) > _REMEMBERED:
            self._closed.popitem(last=False)


def _rejection(reason: str) -> dict[str, Any]:
    return {"answers": [], "rejected": True, "reject_reason": reason}


def _checked(questions: object) -> list[dict[str, Any]]:
    """The questions of a request, as they came: each has an id of its own."""
    if not isinstance(questions, list) or not 1 <= len(questions) <= MOST_QUESTIONS:
        raise ProtocolError(f"questions: a list of 1 to {MOST_QUESTIONS} is required")
    ids = [question.get("id") if isinstance(question, dict) else None for question in questions]
    if not all(isinstance(id, str) and id for id in ids) or len(set(ids)) < len(ids):
        raise ProtocolError("questions: each must have an id of its own")
    return questions


def _answered(questions: list[dict[str, Any]], answers: Answers) -> list[dict[str, Any]]:
    """The answers as the daemon wants them, in the order of the questions. Raises ProtocolError."""
    given = _by_id(answers)
    told = []
    for question in questions:
        id = question["id"]
        if id not in given:
            raise ProtocolError(f"answers: {id} is not answered")
        told.append({"question_id": id, **_one(id, _options(question), given.pop(id))})
    if given:
        raise ProtocolError(f"answers: there is no question {next(iter(given))}")
    return told


def _by_id(answers: Answers) -> dict[str, Any]:
    if isinstance(answers, dict):
        return dict(answers)
    given: dict[str, Any] = {}
    for answer in answers:
        id = answer.get("question_id") if isinstance(answer, dict) else None
        if not isinstance(id, str) or id in given:
            raise ProtocolError("answers: each must have the question_id of another question")
        given[id] = answer
    return given


def _options(question: dict[str, Any]) -> set[str]:
    options = question.get("options")
    found = [option.get("option_id") for option in options or [] if isinstance(option, dict)]
    return {id for id in found if isinstance(id, str)}


def _one(id: str, options: set[str], given: object) -> dict[str, Any]:
    """One answer: an object as in the list, or in short a list of options, or an option or the user's own words."""
    match given:
        case str():
            given = {"selected_options": [given]} if given in options else {"custom_text": given}
        case list():
            given = {"selected_options": given}
    if not isinstance(given, dict):
        raise ProtocolError(f"answers: {id}: options or a text are required")
    chosen, text = given.get("selected_options") or [], given.get("custom_text") or ""
    if not isinstance(chosen, list) or not all(isinstance(one, str) and one in options for one in chosen):
        raise ProtocolError(f"answers: {id}: an option that was not offered")
    if not isinstance(text, str) or not (chosen or text):
        raise ProtocolError(f"answers: {id}: options or a text are required")
    return {"selected_options": chosen, **({"custom_text": text} if text else {})}
