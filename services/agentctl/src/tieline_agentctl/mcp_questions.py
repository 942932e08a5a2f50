"""Pure: the tool `ask_user_question_kandev`: its schema, its arguments as the wire has them, its answer as text.

The agent gives texts only; ids of questions and options are ours, so the answer is told in both.
"""

from typing import Any

from tieline_agentctl.mcp_results import pretty

NAME = "ask_user_question_kandev"
QUESTIONS, OPTIONS = (1, 4), (2, 6)

_OPTION = {
    "type": "object",
    "properties": {
        "label": {"type": "string", "description": "What the user sees, in a few words."},
        "description": {"type": "string", "description": "What choosing it means."},
    },
    "required": ["label"],
}
_QUESTION = {
    "type": "object",
    "properties": {
        "prompt": {"type": "string", "description": "The question."},
        "title": {"type": "string", "description": "Its heading, one or two words."},
        "options": {"type": "array", "items": _OPTION, "minItems": OPTIONS[0], "maxItems": OPTIONS[1]},
    },
    "required": ["prompt", "options"],
}
SHOWN = {
    "name": NAME,
    "description": "Ask the user and wait for the answer: one of the options, or their own words.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "questions": {
                "type": "array",
                "items": _QUESTION,
                "minItems": QUESTIONS[0],
                "maxItems": QUESTIONS[1],
            },
            "context": {"type": "string", "description": "What the user must know to answer."},
        },
        "required": ["questions"],
    },
    "annotations": {"readOnlyHint": True, "openWorldHint": False},
}


class BadQuestion(Exception):
    """What is wrong with the arguments, for the model to read."""


def asked(arguments: dict[str, Any], session_id: str) -> dict[str, Any]:
    """The payload of `mcp.ask_user_question`."""
    questions = _between(arguments.get("questions"), QUESTIONS, "questions")
    context = arguments.get("context")
    return {
        "session_id": session_id,
        "questions": [_question(question, at + 1) for at, question in enumerate(questions)],
        "context": context if isinstance(context, str) else "",
    }


def _question(given: Any, number: int) -> dict[str, Any]:
    where = f"questions[{number - 1}]"
    if not isinstance(given, dict):
        raise BadQuestion(f"{where} must be an object")
    id = f"q{number}"
    question = {"id": id, "prompt": _required(given, "prompt", where)}
    title = given.get("title")
    if isinstance(title, str) and title:
        question["title"] = title
    options = _between(given.get("options"), OPTIONS, f"{where}.options")
    return {
        **question,
        "options": [
            _option(option, f"{where}.options[{at}]", f"{id}_opt{at + 1}")
            for at, option in enumerate(options)
        ],
    }


def _option(given: Any, where: str, id: str) -> dict[str, str]:
    if isinstance(given, str):
        given = {"label": given}
    if not isinstance(given, dict):
        raise BadQuestion(f"{where} must be an object")
    description = given.get("description")
    return {
        "label": _required(given, "label", where),
        "description": description if isinstance(description, str) else "",
        "option_id": id,
    }


def _required(given: dict[str, Any], name: str, where: str) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not value.strip():
        raise BadQuestion(f"{where}.{name} must be a text")
    return value


def _between(value: Any, bounds: tuple[int, int], name: str) -> list[Any]:
    least, most = bounds
    if not isinstance(value, list) or not least <= len(value) <= most:
        raise BadQuestion(f"{name} must be a list of {least} to {most}")
    return value


def told(answer: Any, payload: dict[str, Any]) -> str:
    """The backend's answer as the text that the agent reads: with the words it asked in, beside the ids."""
    if not isinstance(answer, dict):
        return pretty(answer)
    prompts = {question["id"]: question["prompt"] for question in payload["questions"]}
    labels = {
        option["option_id"]: option["label"]
        for question in payload["questions"]
        for option in question["options"]
    }
    answers = answer.get("answers")
    if not isinstance(answers, list):
        return pretty(answer)
    return pretty({**answer, "answers": [_in_words(one, prompts, labels) for one in answers]})


def _in_words(answer: Any, prompts: dict[str, str], labels: dict[str, str]) -> Any:
    if not isinstance(answer, dict):
        return answer
    chosen = answer.get("selected_options")
    chosen = [one for one in chosen if isinstance(one, str)] if isinstance(chosen, list) else []
    words = {"selected_labels": [labels.get(one, one) for one in chosen]}
    prompt = prompts.get(str(answer.get("question_id")))
    return {**({"question": prompt} if prompt else {}), **answer, **words}
