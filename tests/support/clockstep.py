"""A wall clock that a test sets forward and back under running services; their monotonic clocks go on."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

HOUR = 3600


class ClockStep:
    """`environment` is for the processes whose clock it is. Needs a C compiler: see `compiler`."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "clock"
        self._file.write_bytes(struct.pack("=q", 0))
        library = directory / "clockstep.so"
        source = Path(__file__).with_suffix(".c")
        command = [str(compiler()), "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
        subprocess.run(command, check=True, timeout=60)
        self.environment = {"LD_PRELOAD": str(library), "TIELINE_TEST_CLOCK": str(self._file)}

    def set(self, seconds: float) -> None:
        """How far the wall clock is off from now on. Seen at once: the processes share the file's memory."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("=q", int(seconds * 1e9)))


def compiler() -> str | None:
    """A C compiler, where the machine has one."""
    return shutil.which("cc") or shutil.which("gcc")
