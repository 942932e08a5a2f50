"""Logs: one JSON object a line on standard error, or readable lines on a terminal.

Every line says which service it is of, and where it is known whose session and which trace it is about. What users,
models and tools say is never logged.
"""

from __future__ import annotations

import contextvars
import logging
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import structlog
import structlog.tracebacks

from tieline_protocol import tracing

Format = Literal["json", "text"]

_about: contextvars.ContextVar[Mapping[str, str]] = contextvars.ContextVar(
    "about", default=MappingProxyType({})
)


def about(**facts: str) -> None:
    """What the lines of this task, and of tasks that it starts from now on, are about: user, session, thread, …"""
    _about.set({**_about.get(), **facts})


def _told(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    for name, value in _about.get().items():
        event.setdefault(name, value)
    if (trace := tracing.trace_id(tracing.current())) is not None:
        event.setdefault("trace", trace)
    return event


# Without the values of local variables, which hold tokens and what users say.
_TRACEBACKS = structlog.processors.ExceptionRenderer(
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
)


def configure(service: str, level: str = "info", format: Format = "json") -> None:
    """Set up structlog, and send what libraries log through the standard library the same way."""
    number = logging.getLevelNamesMapping().get(level.upper(), logging.INFO)
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        _told,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    renderer: list[structlog.typing.Processor] = (
        [_TRACEBACKS, structlog.processors.JSONRenderer()]
        if format == "json"
        else [
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            )
        ]
    )
    structlog.configure(
        processors=[*shared, *renderer],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.bind_contextvars(service=service)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(number, logging.WARNING))
