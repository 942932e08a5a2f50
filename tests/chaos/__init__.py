"""Random SIGKILL over all services while people work. `python -m tests.chaos --help`."""
