"""A journal of what was changed for a run and must be undone: one file per GPU, durable before each step.

    {"version": 1, "gpu": UUID, "lock": PATH, "entries": {NAME: {"step": ..., ...}}}

An entry is written before its step is made and removed after it is undone, so whoever finds one after a
crash undoes it; undoing a step that was never made is harmless. An empty journal has no file.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assay_core.files import durable
from assay_core.files.durable import storage_errors
from assay_core.files.private_folders import make_private_folder

_log = logging.getLogger(__name__)

_FOLDER = "conditions"
_VERSION = 1


class Journal:
    """The journal of one GPU in the state directory of an agent; used under the lock of the GPU.

    ``lock`` is the path of that lock. Writing raises StorageError.
    """

    def __init__(self, state: Path, gpu_uuid: str, lock: Path) -> None:
        name = hashlib.blake2b(gpu_uuid.encode(), digest_size=8).hexdigest()
        self.path = state / _FOLDER / f"{name}.json"
        self.gpu_uuid, self.lock = gpu_uuid, lock

    @classmethod
    def leftovers(cls, state: Path) -> Iterator[Journal]:
        """The journals that earlier processes left; other files are removed, with a warning."""
        for path in sorted((state / _FOLDER).glob("*.json")):
            try:
                document = _document(path.read_bytes())
                journal = cls(state, str(document["gpu"]), Path(document["lock"]))
            except OSError as error:  # its steps may still be in force, so it stays for the next start
                _log.warning("%s cannot be read (%s)", path, error.strerror)
                continue
            except (ValueError, KeyError, TypeError) as error:
                _log.warning("%s is not a journal of conditions (%s); it is removed", path, error)
                path.unlink(missing_ok=True)
                continue
            yield journal

    def entries(self) -> dict[str, dict[str, Any]]:
        """What must be undone, by name, in the order in which it was begun."""
        try:
            return dict(_document(self.path.read_bytes())["entries"])
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.warning("%s is not a journal of conditions (%s); it is ignored", self.path, error)
            return {}

    def step(self, name: str, step: str, **facts: str | int) -> None:
        """Write durably that ``step`` of entry ``name`` is about to be made; facts of earlier steps stay."""
        entries = self.entries()
        entries[name] = {**entries.get(name, {}), **facts, "step": step}
        self._write(entries)

    def end(self, name: str) -> None:
        """Entry ``name`` is undone."""
        entries = self.entries()
        if entries.pop(name, None) is not None:
            self._write(entries)

    def _write(self, entries: dict[str, dict[str, Any]]) -> None:
        with storage_errors(str(self.path)):
            if not entries:
                self.path.unlink(missing_ok=True)
                durable.sync_directory(self.path.parent)
                return
            document = {
                "version": _VERSION, "gpu": self.gpu_uuid, "lock": str(self.lock), "entries": entries,
            }  # fmt: skip
            make_private_folder(self.path.parent)
            durable.write_atomically(self.path, json.dumps(document).encode())


def _document(text: bytes) -> dict[str, Any]:
    document = json.loads(text)
    if not isinstance(document, dict) or document.get("version") != _VERSION:
        raise ValueError("it has another version")
    return document
