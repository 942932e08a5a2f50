"""Where the daemon's log lines get their shape: one JSON object a line on stdout. No decisions here."""

import logging
import sys
from typing import Any

import structlog

from tieline_agentctl import tracing

LEVELS = {"debug": 10, "info": 20, "warn": 30, "warning": 30, "error": 40}


def _traced(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    if (trace := tracing.trace_id(tracing.current())) is not None:
        event.setdefault("trace", trace)
    return event


def set_up(level: str = "info", form: str = "json") -> None:
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        _traced,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: Any = (
        structlog.dev.ConsoleRenderer(colors=False)
        if form in ("text", "console")
        else structlog.processors.JSONRenderer()
    )
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                last,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(LEVELS.get(level, 20))
    for noisy in ("uvicorn", "uvicorn.error", "watchfiles", "acp", "asyncio", "mcp", "sse_starlette"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(service="agentctl")
