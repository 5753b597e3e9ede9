"""The server as one object: what it is made of, in which order it starts, and how it stops."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import Self

from assay_sampling.errors import StorageError
from assay_sampling.private_folders import private_opener, take_state_folder
from assay_server.campaigns.analyses import Analyses, WorkerPool
from assay_server.campaigns.coordinator import Coordinator
from assay_server.campaigns.ingest import Ingest
from assay_server.campaigns.lost_records import look_for_lost_records
from assay_server.campaigns.publish import Publisher
from assay_server.campaigns.retry import RetryPolicy
from assay_server.campaigns.schedule import live_keys
from assay_server.campaigns.transitions import Effects, SchedulePolicy
from assay_server.clock import Clock, SteadyClock, wall_ms
from assay_server.config import ServerConfig, check_listen_address
from assay_server.rpc.agent_handler import AgentHandler
from assay_server.rpc.campaign_handler import CampaignHandler
from assay_server.rpc.changes import WORK, Changes, campaign_topic
from assay_server.rpc.server import RpcServer
from assay_server.store.files import replace_file, storage_errors
from assay_server.store.model import AttemptState
from assay_server.store.protocols import KnownFiles
from assay_server.store.records import LocalRecordStore
from assay_server.store.set_aside import warn_of
from assay_server.store.sqlite import SqliteStore
from assay_server.upkeep import upkeep

__all__ = ["Server", "ServerConfig"]

_log = logging.getLogger(__name__)


class Server:
    """A server over a state directory.

    Args:
        config: where and how.
        clock: what leases are measured with; None: the system's.
        make_executor: gives what analyses run on; None: a pool of processes.

    ``start`` raises StorageError where the state directory cannot be used or another server has it, and
    ParameterError where an address cannot be listened on. Killed at any moment, the next one goes on.
    """

    def __init__(
        self,
        config: ServerConfig,
        *,
        clock: Clock | None = None,
        make_executor: Callable[[], Executor] | None = None,
    ) -> None:
        self.config = config
        self.addresses: tuple[str, ...] = ()
        self._clock = clock or SteadyClock()
        self._make_executor = make_executor
        self._resources = contextlib.ExitStack()
        self._stopping = threading.Lock()
        self._stopped = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def start(self) -> None:
        """Recover what an earlier server left, then listen; returns when it does."""
        with contextlib.ExitStack() as resources:
            self._start(resources)
            self._resources = resources.pop_all()
        _log.info("state in %s, listening on %s", self.config.state_dir, ", ".join(self.addresses))

    def stop(self) -> None:
        """Stop in order: nothing acknowledged is lost, analyses under way begin again at the next start."""
        with self._stopping:
            self._resources.close()
            self._stopped.set()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the server has been stopped; False where that took longer than ``seconds``."""
        return self._stopped.wait(seconds)

    def _start(self, resources: contextlib.ExitStack) -> None:
        state = self.config.state_dir
        with storage_errors(state):
            take_state_folder(state)
        resources.enter_context(_locked(state))
        metadata = SqliteStore(state / "metadata.sqlite")
        resources.callback(metadata.close)
        policy = SchedulePolicy(self.config.lease_ms, RetryPolicy(delay_ms=self.config.retry_delay_ms))
        coordinator = Coordinator(metadata, LocalRecordStore(state), policy, self._clock)
        _recover(coordinator)
        changes = Changes()
        coordinator.listen(lambda effects: changes.announce(_topics(effects)))
        ingest = Ingest(coordinator)
        resources.callback(ingest.close)
        publisher = Publisher(coordinator)
        analyses = self._analyses(coordinator, resources)
        server = RpcServer(
            [check_listen_address(address) for address in self.config.listen],
            AgentHandler(coordinator, publisher, self.config.heartbeat_ms, self.config.limits.agents),
            CampaignHandler(coordinator, self.config.limits.queries),
            ingest,
            changes,
            limits=self.config.limits,
        )
        resources.callback(server.stop)
        self.addresses = server.start()
        resources.enter_context(_address_file(state, self.addresses))
        resources.enter_context(upkeep(coordinator, publisher))
        analyses.resume()

    def _analyses(self, coordinator: Coordinator, resources: contextlib.ExitStack) -> Analyses:
        make_executor = self._make_executor
        if make_executor is None:
            pool = WorkerPool(self.config.analysis_workers)
            resources.callback(pool.end)
            make_executor = pool
        analyses = Analyses(coordinator, make_executor)
        resources.callback(analyses.close)
        return analyses


def _topics(effects: Effects) -> list[str]:
    topics = [campaign_topic(campaign_id) for campaign_id in effects.campaigns]
    return [*topics, WORK] if effects.work else topics


def _recover(coordinator: Coordinator) -> None:
    """Begin an epoch of tokens, put the files in order, and let every lease start anew."""
    with coordinator.snapshot() as store:
        unended = store.attempts_in((AttemptState.LEASED, AttemptState.PUBLISHING, AttemptState.EXPIRED))
        known = KnownFiles(
            live=live_keys(unended),
            publishing=[each.key for each in unended if each.state is AttemptState.PUBLISHING],
            published=[piece.file for piece in store.published_slices()],
            campaigns={campaign.campaign_id for campaign in store.campaigns()},
            has_attempt=lambda *key: store.attempt(*key) is not None,
        )
        moved = coordinator.records.sweep(known)
    if moved is not None:
        warn_of(moved)
    with coordinator.schedule() as schedule:
        schedule.store.begin_epoch(wall_ms())
        schedule.extend_all()
        schedule.mend_clocks()
    look_for_lost_records(coordinator)


@contextlib.contextmanager
def _locked(state: Path) -> Iterator[None]:
    """The state directory is ours while the block runs; the kernel frees it when the process dies."""
    path = state / "lock"
    with storage_errors(path), open(path, "a+", encoding="ascii", opener=private_opener) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise StorageError(
                str(state),
                f"another assay-server has it (process {file.read().strip() or 'unknown'})",
                "stop that server, or give another --state directory",
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


@contextlib.contextmanager
def _address_file(state: Path, addresses: tuple[str, ...]) -> Iterator[None]:
    """``<state>/address`` names the addresses, one a line, while the server listens."""
    path = state / "address"
    with storage_errors(path):
        replace_file(path, "".join(f"{address}\n" for address in addresses).encode())
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
