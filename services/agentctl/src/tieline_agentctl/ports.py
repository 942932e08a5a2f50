"""Pure: the numbers that instances listen on. Whether a number is really free is tried by the caller."""


class NoPortLeft(Exception):
    """Every port of the pool is in use or taken by somebody else."""


class PortPool:
    """Lowest first; one that a foreign process holds is skipped for good. Base 0: the system chooses."""

    def __init__(self, base: int, most: int) -> None:
        self.base = base
        self.most = most
        self._taken: set[int] = set()
        self._foreign: set[int] = set()

    def take(self) -> int:
        if self.base == 0:
            return 0
        for port in range(self.base, self.most + 1):
            if port not in self._taken and port not in self._foreign:
                self._taken.add(port)
                return port
        raise NoPortLeft(f"no port left in {self.base}-{self.most}")

    def occupied(self, port: int) -> None:
        """Somebody else listens there."""
        self._taken.discard(port)
        self._foreign.add(port)

    def give_back(self, port: int) -> None:
        self._taken.discard(port)
