"""The agent's state directory: one process at a time, and an identity that outlives processes."""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from assay_agent.config import AgentSettings
from assay_core.files import durable
from assay_core.files.durable import storage_errors
from assay_core.files.private_folders import require_no_path_separator, take_state_folder
from assay_sampling.errors import StorageError

if TYPE_CHECKING:
    from assay_core.identity.credentials import CredentialsFolder

_LOCK = "lock"
_IDENTITY = "agent.json"
_CREDENTIALS = "credentials"


def credentials_folder(state: Path) -> CredentialsFolder:
    """Where an agent keeps what ``assay-agent join`` got for it."""
    # Here, because most commands and agents at a socket need no certificates, which take long to load.
    from assay_core.identity.credentials import CredentialsFolder  # noqa: PLC0415

    return CredentialsFolder(state.absolute() / _CREDENTIALS)


def kept_agent_id(state: Path) -> str | None:
    """The identity in a state directory, whether or not an agent uses it now; None before its first agent.

    Raises StorageError if it is damaged.
    """
    path = state.absolute() / _IDENTITY
    try:
        return _read_identity(path) if path.exists() else None
    except OSError as error:
        raise durable.storage_error(path, error) from error


def agent_name(settings: AgentSettings) -> str:
    """What people call the agent: the name given, else the one by which it joined, else its host's.

    Raises StorageError if the folder's identity is damaged.
    """
    if "name" in settings.model_fields_set:
        return settings.name
    path = settings.state_dir.absolute() / _IDENTITY
    try:
        joined = _read_document(path)["name"] if path.exists() else ""
    except OSError as error:
        raise durable.storage_error(path, error) from error
    return joined or settings.name


def keep_joined_name(state: Path, agent_id: str, name: str) -> None:
    """Keep the name for ``assay-agent run``, and for joining again. Raises StorageError."""
    path = state.absolute() / _IDENTITY
    with storage_errors(path):
        durable.write_atomically(path, json.dumps({"agent_id": agent_id, "name": name}).encode())


class StateDirectory:
    """Holds the state directory for this process; a context manager.

    Raises StorageError if another agent holds it, it belongs to another user, its path has a colon, or the
    disk refuses.
    ``agent_id`` is made once and kept: ``new_agent_id``, else a random one. Attempts go to ``spool``.
    """

    def __init__(self, directory: Path, new_agent_id: str = "") -> None:
        self.directory = directory.absolute()
        self._new_agent_id = new_agent_id
        self._subject = f"state directory {self.directory}"
        require_no_path_separator(self.directory, self._subject)
        with storage_errors(self._subject):
            take_state_folder(self.directory)
            self._lock = os.open(self.directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._take_lock()
            with storage_errors(self._subject):
                self.agent_id = self._identity()
        except BaseException:
            os.close(self._lock)
            raise

    @property
    def spool(self) -> Path:
        return self.directory / "spool"

    def _take_lock(self) -> None:
        # The kernel releases the lock when the process ends, however it ends.
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._lock, 32, 0).decode(errors="replace").strip() or "unknown"
            raise StorageError(
                self._subject,
                f"another agent uses it (process {holder})",
                "stop that agent, or give this one another --state",
            ) from error
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, str(os.getpid()).encode(), 0)

    def _identity(self) -> str:
        path = self.directory / _IDENTITY
        try:
            return _read_identity(path)
        except FileNotFoundError:
            agent_id = self._new_agent_id or uuid.uuid4().hex
            durable.write_atomically(path, json.dumps({"agent_id": agent_id}).encode())
            return agent_id

    @property
    def place(self) -> str:
        """What distinguishes this folder, on this boot of this box, from copies of it elsewhere."""
        try:
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
            status = self.directory.stat()
        except OSError:
            return ""
        return f"{boot}:{status.st_dev}:{status.st_ino}"

    def renew_identity(self) -> str:
        """Give the folder a new identity, which a copy of another folder needs; returns it.

        The credentials of the old one are removed, and so is its name: it is the other box's.
        """
        with storage_errors(self._subject):
            credentials_folder(self.directory).remove()
            self.agent_id = uuid.uuid4().hex
            document = json.dumps({"agent_id": self.agent_id}).encode()
            durable.write_atomically(self.directory / _IDENTITY, document)
        return self.agent_id

    def close(self) -> None:
        """Release the directory."""
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _read_identity(path: Path) -> str:
    return _read_document(path)["agent_id"]


def _read_document(path: Path) -> dict[str, str]:
    try:
        document = json.loads(path.read_bytes())
        return {"agent_id": str(document["agent_id"]), "name": str(document.get("name", ""))}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StorageError(
            str(path),
            f"it does not hold an agent's identity ({error})",
            "remove the file; the agent gets a new identity",
        ) from error
