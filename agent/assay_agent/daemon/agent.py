"""The agent: its settings, folders, policy, places and server, put together before it works.

:mod:`assay_agent.daemon.process` is the work.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from cryptography import x509

from assay_agent.config import AgentSettings
from assay_agent.daemon.places import (
    Place,
    chosen_places,
    installed_places,
    missing_places,
    recorded_places,
    virtual_places,
)
from assay_agent.daemon.process import AgentProcess, Ending
from assay_agent.daemon.state import StateDirectory, credentials_folder
from assay_agent.execution.environment import remove_old_jobs
from assay_agent.gpus.chosen import ChosenGpus, chosen_gpus
from assay_agent.gpus.inventory import read_inventory
from assay_agent.health.quarantine import Quarantine
from assay_agent.metrics.meter import Meter
from assay_agent.policy.file import read_policy
from assay_agent.policy.gate import Gate, gate_for
from assay_agent.policy.in_force import PolicyInForce
from assay_agent.profilers.recorded import RecordedProfiler
from assay_agent.profilers.seam import Profiler
from assay_agent.spool.spool import Spool, default_limit_bytes
from assay_agent.uplink.connection import Connection
from assay_agent.uplink.renewal import Renewal
from assay_agent.uplink.session import Session
from assay_core.identity.certificates import read_certificate
from assay_core.identity.credentials import Credentials
from assay_core.records.machine import Inventory
from assay_core.settings.reloading import reloaded
from assay_sampling.errors import NotReadyError

_log = logging.getLogger(__name__)


class Agent:
    """One agent. :meth:`run` blocks until :meth:`stop` is called from another thread.

    Args:
        settings: of the agent.
        profilers: of the slots that need no GPU, by name; the player of recordings by default.
        inventory: reads what the box has; only tests replace it.
        signals_reach_all: whether what stops this agent also signals every process that it started.
    """

    def __init__(
        self,
        settings: AgentSettings,
        *,
        profilers: Mapping[str, Profiler] | None = None,
        inventory: Callable[[], Inventory] = read_inventory,
        signals_reach_all: bool = False,
    ) -> None:
        self.settings = settings
        self._profilers = profilers or {"recorded": RecordedProfiler()}
        self._read_inventory = inventory
        self._session = Session()
        self._ending = Ending(settings.drain_seconds, signals_reach_all=signals_reach_all)
        self.meter = _meter(settings)
        self._policy: PolicyInForce | None = None
        self._server = settings.server
        self._spool: Spool | None = None

    @property
    def registered(self) -> bool:
        """Whether the server knows this agent now."""
        return self._session.registered

    def stop(self, drain_seconds: float | None = None, *, at_once: bool = False) -> None:
        """Take no more work; runs under way have ``drain_seconds`` to finish, then they are handed back.

        ``at_once``: hand them back now, without waiting for profilers that are slow to end: their supervisor
        ends them when this process is gone.
        """
        if drain_seconds is not None:
            self._ending.drain_seconds = drain_seconds
        if at_once:
            self._ending.drain_seconds, self._ending.at_once = 0.0, True
        self._session.stop()

    def run(self) -> None:
        """Work until stopped.

        Raises StorageError if another agent has the state directory or the disk refuses, ServerRefusedError
        if the server does not accept this agent, InputError for an invalid policy file, NotReadyError if it
        does not allow the user of this process, or if nothing could run because there is no policy file.
        """
        settings = self.settings
        with StateDirectory(settings.state_dir, settings.agent_id) as state:
            # Only now is it known that the folder can be used, and that it is this user's.
            credentials = credentials_folder(state.directory).read()
            self._server = server = server_of(settings, credentials)
            gate = _gate(settings, server)
            self._policy = PolicyInForce(gate)
            _log.info("%s", gate.describe())
            spool = Spool(
                state.spool,
                limit_bytes=_spool_limit(settings, state.directory),
                minimum_free_bytes=settings.minimum_free_bytes,
                flush_seconds=settings.flush_seconds,
            )
            self._spool = spool
            try:
                chosen = chosen_gpus(settings.gpus)
                inventory = self._read_inventory()
                if chosen is not None:
                    inventory = chosen.applied(inventory)
                places = self._places(inventory, state, chosen)
                connection = Connection(
                    server, _own(credentials, state.agent_id), socket_owner=settings.socket_owner
                )
                process = AgentProcess(
                    self.settings,
                    state.agent_id,
                    state.place,
                    session=self._session,
                    ending=self._ending,
                    meter=self.meter,
                    profilers=self._profilers,
                    spool=spool,
                    connection=connection,
                    renewal=Renewal(credentials_folder(state.directory), connection),
                    places=places,
                    policy=self._policy,
                    quarantine=Quarantine(state.directory),
                )
                process.run(inventory)
            finally:
                self.meter.close()
                spool.close()

    def reload(self, new_settings: AgentSettings) -> None:
        """Take over what may change while the agent runs, read the policy file again, and log what changed.

        Runs under way continue under the policy that admitted them. Raises AssayError if the settings or the
        policy file cannot be; then nothing has changed.
        """
        before = self.settings
        change = reloaded(before, new_settings)
        gate = _gate(change.settings, self._server)
        if self._spool is not None:
            self.meter.serve(change.settings.metrics_place)
            self._spool.set_limit(_spool_limit(change.settings, self._spool.directory))
        if self._policy is not None:
            if gate.policy != self._policy.gate.policy:
                _log.warning("reload: the policy has changed: %s", gate.describe())
            self._policy.replace(gate)
        self._ending.drain_seconds = change.settings.drain_seconds
        self.settings = change.settings
        change.log(_log, before, new_settings)

    def _places(self, inventory: Inventory, state: StateDirectory, chosen: ChosenGpus | None) -> list[Place]:
        remove_old_jobs(state.directory)
        places = recorded_places(self.settings.recorded_slots, self._profilers)
        if self.settings.installed_gpus:
            places += installed_places(inventory, state.directory, self.settings.telemetry)
            places += missing_places(Quarantine(state.directory).entries(), inventory, places)
        virtual = virtual_places(
            self.settings.virtual, state.directory, state.agent_id, self.settings.telemetry
        )
        places = chosen_places([*places, *virtual], chosen)
        return _with_bundles(places, self._policy)


def _meter(settings: AgentSettings) -> Meter:
    """What counts for Prometheus; without prometheus-client, which only --metrics needs, nothing does."""
    try:
        from assay_agent.metrics.agent_metrics import AgentMetrics  # noqa: PLC0415 - see above
    except ModuleNotFoundError as error:
        if error.name != "prometheus_client":
            raise
        return Meter()

    def own_certificate() -> x509.Certificate | None:
        credentials = credentials_folder(settings.state_dir).read()
        return None if credentials is None else read_certificate(credentials.certificate, "certificate")

    return AgentMetrics(settings.state_dir, own_certificate)


def _spool_limit(settings: AgentSettings, directory: Path) -> int:
    limit = settings.spool_limit_bytes
    return default_limit_bytes(directory) if limit is None else limit


def server_of(settings: AgentSettings, credentials: Credentials | None) -> str:
    """The server's address: the one that was given, else the one that was joined, else the own socket."""
    if "server" not in settings.model_fields_set and credentials is not None:
        return credentials.server
    return settings.server


def _with_bundles(places: list[Place], policy: PolicyInForce | None) -> list[Place]:
    """The places; GPUs take files of submitters if the policy lets them run, and this box confines them."""
    if policy is None or not policy.gate.runs_bundles:
        return places
    return [
        each if each.slot.device is None else replace(each, slot=replace(each.slot, bundles=True))
        for each in places
    ]


def _own(credentials: Credentials | None, agent_id: str) -> Credentials | None:
    """The credentials; raises NotReadyError if they are another agent's, as in a copied folder."""
    if credentials is not None and credentials.identity.identity_id != agent_id:
        raise NotReadyError(
            f"agent {agent_id}",
            f"its certificate is of agent {credentials.identity.identity_id}",
            "join again with a new token: assay-agent join HOST:PORT --token TOKEN",
        )
    return credentials


def _gate(settings: AgentSettings, server: str) -> Gate:
    """The gate that judges what the server asks for. Raises InputError, NotReadyError."""
    policy = read_policy(settings.policy_file) if settings.policy_file is not None else None
    gate = gate_for(policy, server, settings.socket_owner)
    gate.require_user()
    gate.require_a_use()
    return gate
