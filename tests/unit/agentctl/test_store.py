import os
import time
from pathlib import Path

from tieline_agentctl.example_agent.store import KEPT, Store


def test_a_session_is_kept_for_a_day(tmp_path: Path) -> None:
    store = Store(tmp_path)
    ids = [f"example-{number:012x}" for number in range(2)]
    for id in ids:
        store.save(id, [{"said": id}])
    then = time.time() - KEPT - 60
    os.utime(tmp_path / f"{ids[0]}.json", (then, then))

    store.save("example-00000000000f", [])

    assert store.load(ids[0]) is None
    assert store.load(ids[1]) == [{"said": ids[1]}]
