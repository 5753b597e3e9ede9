"""Runs on a virtual GPU, put into the queue of the fake server."""

from __future__ import annotations

from pathlib import Path

from assay_protos import agent_pb2
from tests.support.agent.fake_server import FakeServer


def add(server: FakeServer, run_id: str, folder: Path, level: str, fault: str = "", **more: object) -> None:
    command = agent_pb2.CommandSource(
        argv=["small.toml"],
        environment={"ASSAY_VIRTUAL_FAULTS": fault} if fault else {},
        working_directory=str(folder),
        timeout_s=60,
    )
    profiler = "nsight_compute" if level == "detailed" else "nsight_systems"
    server.add_run(run_id, level=level, profiler=profiler, synthetic=True, command=command, **more)
