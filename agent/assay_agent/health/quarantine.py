"""GPUs that were taken out of service: one durable file for each in the agent's state folder.

    {"version": 1, "gpu": UUID, "reason": ..., and the other fields of Quarantined}

The file is the truth: a running agent keeps reading it, so that ``assay-agent quarantine clear`` need not
talk to it. Other processes only remove files.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay_core.files import durable
from assay_core.files.durable import storage_errors
from assay_core.files.private_folders import make_private_folder

_log = logging.getLogger(__name__)

_FOLDER = "quarantine"
_VERSION = 1
UNREADABLE = "it was lost, and the file that says why cannot be read"


@dataclass(frozen=True)
class Quarantined:
    """One GPU that takes no runs.

    Args:
        gpu: its UUID.
        index: its ordinal on the box when it was lost, as ``assay-agent probe`` counts.
        name: what it is.
        reason: why it takes no runs, for people.
        run: the attempt that lost it; "" if none did.
        since_s: Unix time.
        synthetic: whether it is a virtual GPU.
        machine: identifies the boot and the driver's loading, see :mod:`assay_agent.health.lost_gpu`.
        profilers: those it was offered with.
        device: as it was registered: "compute_capability", "sm_count", "memory_bytes".
    """

    gpu: str
    index: int
    name: str
    reason: str
    run: str
    since_s: int
    synthetic: bool = False
    machine: dict[str, str] = field(default_factory=dict)
    profilers: tuple[str, ...] = ()
    device: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "profilers": list(self.profilers)}


class Quarantine:
    """The GPUs out of service of the agent with this state folder. Only :meth:`add` makes the folder."""

    def __init__(self, state: Path) -> None:
        self._folder = state / _FOLDER

    def entries(self) -> list[Quarantined]:
        """All of them, oldest first; a file that cannot be read is skipped with a warning."""
        gpus = [entry for path in self._folder.glob("*.json") if (entry := _read(path)) is not None]
        return sorted(gpus, key=lambda entry: (entry.since_s, entry.gpu))

    def get(self, gpu: str) -> Quarantined | None:
        """The entry of one GPU; None if it is in service or its file cannot be read."""
        return _read(self._path(gpu))

    def holds(self, gpu: str) -> bool:
        """Whether it is out of service, also if its file exists but cannot be read."""
        return os.path.lexists(self._path(gpu))

    def add(self, entry: Quarantined) -> None:
        """Take a GPU out of service, durably; raises StorageError."""
        path = self._path(entry.gpu)
        with storage_errors(str(path)):
            make_private_folder(self._folder)
            document = {"version": _VERSION, **entry.to_dict()}
            durable.write_atomically(path, json.dumps(document, sort_keys=True).encode())

    def remove(self, gpu: str) -> None:
        """Let a GPU be used again, durably; raises StorageError."""
        path = self._path(gpu)
        with storage_errors(str(path)):
            if os.path.lexists(path):
                path.unlink(missing_ok=True)
                durable.sync_directory(self._folder)

    def _path(self, gpu: str) -> Path:
        return self._folder / f"{hashlib.blake2b(gpu.encode(), digest_size=8).hexdigest()}.json"


def named(entries: list[Quarantined], which: str) -> Iterator[Quarantined]:
    """The entries whose UUID begins with ``which``, or whose index it is."""
    for entry in entries:
        by_index = which.isdecimal() and entry.index == int(which)
        if by_index or (which and not which.isdecimal() and entry.gpu.startswith(which)):
            yield entry


def _read(path: Path) -> Quarantined | None:
    try:
        document = json.loads(path.read_bytes())
        if not isinstance(document, dict) or document.pop("version", None) != _VERSION:
            raise ValueError("it has another version")
        return Quarantined(**{**document, "profilers": tuple(document["profilers"])})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        _log.warning("%s does not say which GPU is out of service (%s); it is skipped", path, error)
        return None
