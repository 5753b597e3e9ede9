"""The state folders of a server and an agent that were left in the middle of a campaign (schema 0007)."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from assay_agent.config import AgentSettings
from assay_agent.daemon.agent import Agent
from assay_core.records.machine import Inventory

_TESTS = Path(__file__).parents[2]
_LEFT = _TESTS / "server" / "fixtures" / "state_of_schema_0007"


def leave_states(folder: Path) -> None:
    """Both folders and the recordings of their campaigns in ``folder`` (see the fixture's README.md)."""
    for state in ("server", "agent"):
        shutil.copytree(_LEFT / state, folder / state)
        (folder / state).chmod(0o700)
    for name in ("light.json", "window.csv", "faster.json"):
        shutil.copy(_TESTS / "golden" / "inputs" / name, folder)
    for path in (folder / "agent").rglob("*.json"):
        path.write_text(path.read_text().replace("@WORK@", str(folder)))
    with closing(sqlite3.connect(folder / "server" / "metadata.sqlite")) as database:
        database.executescript((_LEFT / "metadata.sql").read_text().replace("@WORK@", str(folder)))


@contextmanager
def agent_of(state: Path, address: str, **options: Any) -> Iterator[Agent]:
    """An agent in this process that plays recordings, on a state folder."""
    settings = AgentSettings(server=address, state_dir=state, name="box", minimum_free_bytes=0, **options)
    inventory = Inventory("host", "0", 2, 1 << 30, no_device_reason="none here")
    agent = Agent(settings, inventory=lambda: inventory)
    thread = threading.Thread(target=agent.run)
    thread.start()
    try:
        yield agent
    finally:
        agent.stop()
        thread.join(30)
        assert not thread.is_alive()
