"""What an agent tells its meter. This one hears nothing: prometheus-client may not be installed."""

from __future__ import annotations

from assay_agent.metrics.sources import GpuSource, SlotSource
from assay_agent.spool.spool import Spool
from assay_agent.uplink.session import Session
from assay_core.metrics.reading import MetricsPlace
from assay_sampling.errors import MissingExtraError


class Meter:
    """Hears what happens, from any thread."""

    def attempt_ended(self, outcome: str, failure_class: str = "") -> None:
        """An attempt is over: ``published``, ``dropped``, ``kept`` for the next process, or ``failed``."""

    def acknowledged(self, seconds: float) -> None:
        """The server holds a segment, that long after it was sent."""

    def heartbeat(self, seconds: float, *, answered: bool) -> None:
        """A heartbeat was sent."""

    def watch(self, spool: Spool, session: Session, slots: list[SlotSource], gpus: list[GpuSource]) -> None:
        """The parts of the agent that are asked when metrics are read."""

    def serve(self, place: MetricsPlace | None) -> None:
        """Serve metrics at this place from now on; raises ParameterError, MissingExtraError."""
        if place is not None:
            raise MissingExtraError("--metrics", "prometheus_client", "agent")

    @property
    def address(self) -> str:
        """Where metrics are read; "" while they are not served."""
        return ""

    def close(self) -> None:
        """Serve nothing any more."""
