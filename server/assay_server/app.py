"""The server as one object: its parts, the order in which it starts, and how it stops."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from assay_core.files.durable import storage_errors, write_atomically
from assay_core.files.private_folders import take_state_folder
from assay_core.metrics.endpoint import MetricsEndpoint
from assay_core.server_address import ServerAddress
from assay_core.settings.reloading import reloaded
from assay_server.access.audit import AuditedStore, AuditLog
from assay_server.access.caller import IdentityDirectory
from assay_server.campaigns.analysing.analyses import Analyses
from assay_server.campaigns.analysing.dask_workers import chosen_executors
from assay_server.campaigns.analysing.provisional import ProvisionalReports
from assay_server.campaigns.bundles import BundleStore
from assay_server.campaigns.capacity import Capacity
from assay_server.campaigns.carry_out import RequestRunner
from assay_server.campaigns.heartbeats import Heartbeats
from assay_server.campaigns.ingest.lost_records import look_for_lost_records, sweep
from assay_server.campaigns.ingest.publish import Publisher
from assay_server.campaigns.ingest.segments import Ingest
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.resting import windows_of
from assay_server.campaigns.scheduling.retry import RetryPolicy
from assay_server.campaigns.scheduling.transitions import SchedulePolicy
from assay_server.clock import Clock, SteadyClock, wall_ms
from assay_server.config import ServerSettings, check_listen_address
from assay_server.database.opening import (
    AskedDatabase,
    asked_database,
    awaited_lead_of,
    number_of_state,
    open_database,
)
from assay_server.database.state_notes import noted_records
from assay_server.identity.identified import identified
from assay_server.limits import (
    DEFAULT_LIMITS,
    Limits,
    limits_asked,
    limits_with,
    take_over,
)
from assay_server.metrics.server_metrics import ServerMetrics
from assay_server.records.opening import (
    are_of_state,
    checked_place,
    folder_of_records,
    names_records,
    open_records,
)
from assay_server.rpc.handlers.agents import AgentHandler
from assay_server.rpc.handlers.archives import ArchiveHandler
from assay_server.rpc.handlers.bundles import BundleHandler
from assay_server.rpc.handlers.campaigns import CampaignHandler
from assay_server.rpc.handlers.lab import LabHandler
from assay_server.rpc.handlers.published import PublishedHandler
from assay_server.rpc.interceptors import Access
from assay_server.rpc.server import RpcServer, answering_not_serving
from assay_server.rpc.services import Handlers
from assay_server.state_lock import locked_state
from assay_server.store.record_store import RecordStore
from assay_server.store.sqlite import SqliteStore, written_back
from assay_server.upkeep import Housekeeper, upkeep
from assay_server.watches import LeadWatch, WritabilityWatch

if TYPE_CHECKING:
    from assay_server.store.postgresql.store import PostgresqlStore
    from assay_server.web.page import LivePage

__all__ = ["Server", "ServerSettings"]

_log = logging.getLogger(__name__)


class Server:
    """A server over a state directory.

    Args:
        settings: its addresses, state directory and options.
        limits: how much one client may ask for.
        clock: times leases; None: that of this machine.
        make_executor: makes the executor of analyses; None: a pool of processes.
        is_ending: whether it was asked to end, while it stands by for another server.
        end: asks for the end of the program, once another server leads the database.

    ``start`` returns once this server is active. It raises StorageError if the state directory cannot be used
    or another server has it, ParameterError if it cannot listen on an address, and StandbyEndedError. After a
    kill at any moment, the next server continues.
    """

    def __init__(
        self,
        settings: ServerSettings,
        *,
        limits: Limits = DEFAULT_LIMITS,
        clock: Clock | None = None,
        make_executor: Callable[[], Executor] | None = None,
        is_ending: Callable[[], bool] = lambda: False,
        end: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings = settings
        self._built_in = limits
        self._limits = limits_with(limits, limits_asked(settings.limits))
        self.addresses: tuple[str, ...] = ()
        self.metrics = ServerMetrics(settings.state_dir)
        self.metrics_address = ""
        self.joins: tuple[str, ...] = ()
        self.web_address = ""
        self.page: LivePage | None = None
        self.rpc: RpcServer | None = None
        self._coordinator: Coordinator | None = None
        self._endpoint: MetricsEndpoint | None = None
        self._clock = clock
        self._is_shared = False  # with a standby
        self._make_executor = make_executor
        self._is_ending = is_ending
        self.lead = LeadWatch(end)
        self._resources = contextlib.ExitStack()
        self._stopping = threading.Lock()
        self._stopped = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def start(self) -> None:
        """Recover the state of an earlier server, then listen; returns once it listens."""
        with contextlib.ExitStack() as resources:
            self._start(resources)
            self._resources = resources.pop_all()
        _log.info("state in %s, listening on %s", self.settings.state_dir, ", ".join(self.addresses))

    def stop(self) -> None:
        """Stop in order: nothing acknowledged is lost, running analyses go on at the next start.

        First no more work is given, and calls under way have ``drain_seconds`` to end.
        """
        with self._stopping:
            self.metrics.draining.set(1)
            if self.rpc is not None:
                self.rpc.drain(self.settings.drain_seconds)
            self._resources.close()
            self._stopped.set()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the server has stopped; False if that took longer than ``seconds``."""
        return self._stopped.wait(seconds)

    def _start(self, resources: contextlib.ExitStack) -> None:
        settings, limits = self.settings, self._limits
        database, records = self._opened(resources)
        self.writability = writability = WritabilityWatch(settings.state_dir, self._writable)
        metadata = AuditedStore(database)
        access = Access(metadata, IdentityDirectory(metadata), AuditLog(metadata, settings.audit_days))
        self._coordinator = coordinator = self._coordinate(metadata, database, records)
        analyses = self._analyses(coordinator, resources)
        self.metrics.watch(coordinator, lambda: analyses.running)
        publisher, requests = Publisher(coordinator), RequestRunner(coordinator)
        so_far = ProvisionalReports(coordinator, analyses.submit)
        ingest, heartbeats = Ingest(coordinator), Heartbeats(coordinator)
        resources.callback(ingest.close)
        resources.callback(heartbeats.close)
        handlers = Handlers(
            access=access,
            agents=AgentHandler(coordinator, publisher, heartbeats, settings.heartbeat_ms, limits.agents),
            archives=ArchiveHandler(coordinator, folder_of_records(settings.state_dir)),
            bundles=BundleHandler(coordinator),
            campaigns=CampaignHandler(coordinator, limits.queries, requests, so_far),
            identified=identified(
                settings, metadata, access.directory, shared_by=database if self._is_shared else None
            ),
            coordinator=coordinator,
            ingest=ingest,
            lab=LabHandler(coordinator, limits.queries),
            published=PublishedHandler(coordinator, limits.queries),
        )
        if settings.web_place is not None:
            # Its libraries are needed only here.
            from assay_server.web.page import LivePage  # noqa: PLC0415

            self.page = LivePage(settings.web_place, handlers, limits=limits, reports=so_far)
            handlers = replace(handlers, web_link=self.page.link)
        self.rpc = RpcServer(
            _addresses(settings),
            handlers,
            limits=limits,
            metrics=self.metrics,
            socket_group=settings.socket_group,
        )
        resources.callback(self.rpc.stop)
        resources.callback(requests.close)  # first: the server waits for requests that are being answered
        self.addresses, self.joins = self.rpc.start(), self.rpc.joins
        if self.joins:
            resources.enter_context(_address_file(settings.state_dir / "join-address", self.joins))
        # The last of them: who waits for it finds everything else in place.
        resources.enter_context(_address_file(settings.state_dir / "address", self.addresses))
        resources.enter_context(
            upkeep(
                coordinator,
                publisher,
                requests,
                Housekeeper(coordinator, settings.keep_logs_seconds),
                audit=access.audit,
                read_identities=access.directory.refresh if self.page is None else self.page.read_identities,
            )
        )
        resources.enter_context(writability.watching(database, records))
        self._serve_metrics(resources)
        if self.page is not None:
            resources.callback(self.page.stop)
            self.web_address = self.page.start()
        analyses.look()
        resources.enter_context(analyses.watching())

    def _opened(self, resources: contextlib.ExitStack) -> tuple[SqliteStore | PostgresqlStore, RecordStore]:
        """The database, once this server leads it, and the records."""
        state, settings = self.settings.state_dir, self.settings
        place = checked_place(state, settings.records_place)
        self._is_shared = bool(place.url or noted_records(state))
        database_settings = replace(
            asked_database(settings.database, settings.database_file),
            shared=self._is_shared,
            joins=lambda number: are_of_state(state, place, number),
            records=place.url,
        )
        database = _opened_state(state, database_settings, resources, self._is_ending, self._standing_by)
        resources.enter_context(self.lead.watching(database, has_standby=self._is_shared))
        records = open_records(
            state,
            place,
            lambda: number_of_state(database),
            resources,
            has_files=lambda: names_records(database),
        )
        return database, records

    @contextlib.contextmanager
    def _standing_by(self) -> Iterator[None]:
        """Answer probes and tell metrics while the block waits for the lead."""
        settings, endpoint = self.settings, MetricsEndpoint(self.metrics.registry)
        with (
            answering_not_serving(_addresses(settings), settings.socket_group),
            contextlib.closing(endpoint),
        ):
            self.metrics.standing_by.set(1)
            endpoint.serve(settings.metrics_place)
            yield
            self.metrics.standing_by.set(0)

    def _coordinate(
        self, metadata: AuditedStore, database: SqliteStore | PostgresqlStore, records: RecordStore
    ) -> Coordinator:
        settings, state, clock = self.settings, self.settings.state_dir, self._clock or SteadyClock()

        def refused() -> None:
            self.metrics.store_errors.inc()
            self.writability.refused()

        free_bytes = settings.minimum_free_bytes
        coordinator = Coordinator(
            metadata,
            records,
            _policy(settings),
            clock,
            capacity=Capacity(folder_of_records(state), settings.records_limit_bytes, free_bytes),
            bundles=BundleStore(
                state,
                database,
                records,
                self._limits.bundles,
                minimum_free_bytes=free_bytes,
                now_ms=clock.now_ms,
            ),
            on_stored=self.metrics.stored,
            on_refusal=refused,
        )
        recover(coordinator)
        return coordinator

    def _serve_metrics(self, resources: contextlib.ExitStack) -> None:
        self._endpoint = endpoint = MetricsEndpoint(self.metrics.registry)
        resources.callback(endpoint.close)
        self.metrics.tell_certificates(self.settings.state_dir, lambda: endpoint.certificate)
        endpoint.serve(self.settings.metrics_place)
        self.metrics_address = endpoint.address

    def _writable(self, writable: bool) -> None:
        self.metrics.serving.set(writable)
        if self.rpc is not None:
            self.rpc.set_serving(writable)

    def reload(self, new_settings: ServerSettings) -> None:
        """Take over what may change while the server runs, and log what changed and what waits.

        Raises ParameterError if something cannot be; then nothing has changed.
        """
        before = self.settings
        change = reloaded(before, new_settings)
        policy = _policy(change.settings)
        if self._endpoint is not None:
            self._endpoint.serve(change.settings.metrics_place)
            self.metrics_address = self._endpoint.address
        if self._coordinator is not None:
            self._coordinator.policy = policy
        self.settings = change.settings
        change.log(_log, before, new_settings)
        take_over(self._limits, limits_with(self._built_in, limits_asked(change.settings.limits)))

    def _analyses(self, coordinator: Coordinator, resources: contextlib.ExitStack) -> Analyses:
        make_executor = self._make_executor
        if make_executor is None:
            executors = chosen_executors(self.settings)
            resources.callback(executors.end)
            make_executor = executors
        starter = ThreadPoolExecutor(1, "assay-start-analysis")
        resources.callback(starter.shutdown)
        analyses = Analyses(coordinator, make_executor, self.metrics.analysed, starter)
        resources.callback(analyses.close)
        return analyses


def _addresses(settings: ServerSettings) -> list[ServerAddress]:
    return [check_listen_address(address) for address in settings.listen]


def _policy(settings: ServerSettings) -> SchedulePolicy:
    return SchedulePolicy(
        settings.lease_ms,
        RetryPolicy(delay_ms=settings.retry_delay_ms),
        windows=windows_of(settings.maintenance),
        person_gpu_hours=settings.person_gpu_hours,
    )


def _opened_state(
    state: Path,
    settings: AskedDatabase,
    resources: contextlib.ExitStack,
    is_ending: Callable[[], bool],
    standing_by: Callable[[], contextlib.AbstractContextManager[None]],
) -> SqliteStore | PostgresqlStore:
    """The database of a state folder for this process alone, once it leads it; ``resources`` closes it.

    Servers that stand by for one another share a database and a place of records, and each has a folder.
    Raises StorageError and ParameterError, and StandbyEndedError if it was asked to end while it stood by.
    """
    with storage_errors(state):
        take_state_folder(state)
    resources.enter_context(locked_state(state))
    lead = awaited_lead_of(state, settings, is_ending, standing_by)
    try:
        database = open_database(state, settings, lead)
    except BaseException:
        if lead is not None:
            lead.release()
        raise
    resources.callback(database.close)
    database.require_sound()
    if isinstance(database, SqliteStore):
        resources.enter_context(written_back(database.write_back))
    return database


def recover(coordinator: Coordinator) -> None:
    """Take up what an earlier server left.

    Begins an epoch of tokens, cleans up the files, and restarts every lease's clock.
    """
    sweep(coordinator)
    with coordinator.schedule() as schedule:
        schedule.store.begin_epoch(wall_ms())
        schedule.extend_all()
        schedule.mend_clocks()
    look_for_lost_records(coordinator)


@contextlib.contextmanager
def _address_file(path: Path, addresses: tuple[str, ...]) -> Iterator[None]:
    """The file lists the addresses, one per line, while the server listens."""
    with storage_errors(path):
        write_atomically(path, "".join(f"{address}\n" for address in addresses).encode())
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
