"""Bundles on the agent's disk: fetched from the server for a run whose lease this agent holds.

<state>/bundles/<sha256>.tar.z    compressed; checked when it came, and again whenever it is unpacked
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from pathlib import Path

from tenacity import Retrying, retry_if_exception_type, sleep_using_event, stop_when_event_set

from assay_agent.execution.confinement.command import BundledCommand
from assay_agent.execution.errors import ProfilerError
from assay_agent.uplink.connection import PAUSES, Connection, ServerRefusedError
from assay_agent.uplink.session import Identity
from assay_core.bundles.reading import BundleReader, Checked
from assay_core.files.durable import make_folder, replacing, storage_errors
from assay_core.records.upload import Bundle, BundleWanted
from assay_core.records.work import Work
from assay_sampling.errors import InputError, ServerUnreachableError
from assay_sampling.running.failures import FailureClass

_log = logging.getLogger(__name__)

FOLDER, _PACKED = "bundles", ".tar.z"
KEPT_BYTES = 1 << 30


class BundleCache:
    """The bundles that this agent has. Thread-safe; the least recently used go first.

    Args:
        state: the agent's state folder.
        connection: to the server.
        identity: the agent and its session, for requests.
    """

    def __init__(self, state: Path, connection: Connection, identity: Identity) -> None:
        self._folder = state / FOLDER
        self._connection = connection
        self._identity = identity
        self._lock = threading.Lock()

    def with_files(self, work: Work, cancelled: threading.Event) -> Work:
        """The work with its bundle on this disk; other work as it is.

        Raises ProfilerError if the server refuses it or sends something else, StorageError for the disk.
        """
        command = work.command
        if not isinstance(command, BundledCommand) or command.bundle is None:
            return work
        with self._lock, storage_errors(self._folder):
            make_folder(self._folder)
            packed = self._folder / f"{command.bundle.sha256}{_PACKED}"
            if packed.is_file():
                os.utime(packed)
            else:
                self._fetch(work, command.bundle, packed, cancelled)
                self._make_room(packed)
        return work.with_command(command.fetched(packed))

    def _fetch(self, work: Work, bundle: Bundle, packed: Path, cancelled: threading.Event) -> None:
        request = BundleWanted(self._identity.claim(work.key, work.write_secret), bundle.sha256)
        retrying = Retrying(
            retry=retry_if_exception_type(ServerUnreachableError),
            wait=PAUSES,
            stop=stop_when_event_set(cancelled),
            sleep=sleep_using_event(cancelled),
            reraise=True,
        )
        try:
            retrying(lambda: self._try(request, bundle, packed))
        except (ServerRefusedError, ServerUnreachableError) as error:
            raise ProfilerError(FailureClass.SERVER_REFUSED, str(work.key), error.cause) from error
        except InputError as error:
            raise ProfilerError(
                FailureClass.INPUT_UNREADABLE, error.subject, error.cause, "submit the campaign again"
            ) from error
        _log.info("fetched bundle %s: %d files, %d bytes", bundle.sha256, bundle.files, bundle.bytes)

    def _try(self, request: BundleWanted, bundle: Bundle, packed: Path) -> None:
        reader = BundleReader(bundle, Checked())
        with replacing(packed) as file:
            for data in self._connection.bundle(request):
                reader.feed(data)
                file.write(data)
            reader.finish()

    def _make_room(self, newest: Path) -> None:
        """Remove those that were not used for longest, until the rest fits."""
        files = sorted(self._folder.glob(f"*{_PACKED}"), key=lambda path: path.stat().st_mtime)
        total = sum(path.stat().st_size for path in files)
        for path in files:
            if total <= KEPT_BYTES:
                return
            if path != newest:
                total -= path.stat().st_size
                with contextlib.suppress(OSError):
                    path.unlink()
