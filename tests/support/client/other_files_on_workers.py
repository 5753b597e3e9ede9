"""Loaded by workers of Dask: a trace beside a file ``differs-on-WORKER`` has another hash there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from assay_client.simulating import on_worker


def dask_setup(worker: Any) -> None:
    read = on_worker._digest

    def digest(*paths: Path) -> str:
        differs = any((path.parent / f"differs-on-{worker.name}").exists() for path in paths)
        return "0" * 64 if differs else read(*paths)

    on_worker._digest = digest
