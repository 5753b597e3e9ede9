"""An agent in this process that plays recordings."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from assay_agent.config import AgentSettings
from assay_agent.daemon.agent import Agent
from assay_core.records.machine import Inventory


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
