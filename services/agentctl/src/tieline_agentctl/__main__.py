"""The command line: `tieline-agentctl -port N …`. Knobs are described in config.py."""

import os
import secrets
import sys
from pathlib import Path

import structlog
import uvloop

from tieline_agentctl import app, config, logs, tracing


def _token(file: str | None) -> str:
    """The one that the operator chose, else a new one."""
    token = Path(file).read_text().strip() if file else secrets.token_hex(32)
    if not token:
        raise config.BadConfig(f"{file} is empty")
    return token


def main() -> None:
    try:
        settings = config.load(sys.argv[1:], os.environ, _token(os.environ.get("AGENTCTL_TOKEN_FILE")))
    except (config.BadConfig, OSError) as exc:
        sys.stderr.write(f"tieline-agentctl: {exc}\n")
        raise SystemExit(2) from exc
    logs.set_up(settings.log_level, settings.log_format)
    try:
        with tracing.sending():
            uvloop.run(app.main(settings))
    except OSError as exc:
        structlog.get_logger().error("cannot start", error=str(exc))
        raise SystemExit(1) from exc


if __name__ == "__main__":
    main()
