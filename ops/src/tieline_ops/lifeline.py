"""`python -m tieline_ops.lifeline PIPE DIRECTORY -- COMMAND…`: become COMMAND, tied to the life of `tieline up`.

The command gets the read end of the named pipe as KANDEV_PARENT_PIPE_FD and ends when the pipe does; a file in
DIRECTORY says that it runs. It keeps this process's number, so whoever started us started the command. Nothing
is imported here that takes time.
"""

import os
import sys
from pathlib import Path

from tieline_ops.procfs import started


def main() -> None:
    pipe, directory, _, *command = sys.argv[1:]
    descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # nobody holds it any more: reads as ended
    os.set_inheritable(descriptor, True)
    os.environ["KANDEV_PARENT_PIPE_FD"] = str(descriptor)
    os.environ["TIELINE_UNIT"] = "local"
    pid = os.getpid()
    (Path(directory) / f"{pid}.{started(pid)}").touch()
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
