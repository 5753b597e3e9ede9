"""What an agent counts. Labels name states, outcomes, failure classes and GPUs by number, nothing else."""

from __future__ import annotations

from collections import Counter as Numbers
from collections.abc import Iterable
from pathlib import Path

from prometheus_client import Counter, Gauge, Histogram, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from assay_agent.gpus.latest import is_throttled
from assay_agent.metrics.meter import Meter
from assay_agent.metrics.sources import GpuSource, SlotSource
from assay_agent.spool.spool import Spool
from assay_agent.uplink.session import Session
from assay_core.metrics.certificates import CertificatesCollector, CertificateSource, certificate_of_file
from assay_core.metrics.endpoint import MetricsEndpoint
from assay_core.metrics.program import SECONDS_BUCKETS, program_registry
from assay_core.metrics.reading import MetricsPlace
from assay_sampling.running.failures import FailureClass

OUTCOMES = ("published", "dropped", "kept", "failed")
SLOT_STATES = ("idle", "measuring", "quarantined")
# The driver is not asked for metrics, because that would disturb a measurement: the last sample counts.
_FRESH_SECONDS = 60.0


class AgentMetrics(Meter):
    """The metrics of one agent object, in a registry of its own.

    ``own_certificate`` reads the one that the agent shows to its server; None: it needs none.
    """

    def __init__(self, state: Path, own_certificate: CertificateSource = lambda: None) -> None:
        self.registry = registry = program_registry("assay-agent", state)
        self._endpoint = MetricsEndpoint(registry)
        self._attempts = Counter(
            "assay_agent_attempts_ended_total",
            "Attempts that are over, by outcome.",
            ["outcome"],
            registry=registry,
        )
        self._failures = Counter(
            "assay_agent_failures_total",
            "Attempts that failed on this box, by failure class.",
            ["failure_class"],
            registry=registry,
        )
        self._acknowledge = Histogram(
            "assay_agent_acknowledge_seconds",
            "From sending a segment to the server's word that it is durable.",
            registry=registry,
            buckets=SECONDS_BUCKETS,
        )
        self._heartbeats = Histogram(
            "assay_agent_heartbeat_seconds",
            "Heartbeats that the server answered.",
            registry=registry,
            buckets=SECONDS_BUCKETS,
        )
        self._lost_heartbeats = Counter(
            "assay_agent_heartbeats_lost_total", "Heartbeats without an answer.", registry=registry
        )
        registry.register(
            CertificatesCollector(
                {
                    "agent": own_certificate,
                    "metrics": lambda: certificate_of_file(self._endpoint.certificate),
                }
            )
        )
        # A counter that appears only with its first event hides that event from rate().
        for outcome in OUTCOMES:
            self._attempts.labels(outcome)
        for each in FailureClass:
            self._failures.labels(str(each))

    def attempt_ended(self, outcome: str, failure_class: str = "") -> None:
        self._attempts.labels(outcome).inc()
        if failure_class:
            self._failures.labels(failure_class).inc()

    def acknowledged(self, seconds: float) -> None:
        self._acknowledge.observe(seconds)

    def heartbeat(self, seconds: float, *, answered: bool) -> None:
        if answered:
            self._heartbeats.observe(seconds)
        else:
            self._lost_heartbeats.inc()

    def watch(self, spool: Spool, session: Session, slots: list[SlotSource], gpus: list[GpuSource]) -> None:
        connected = Gauge(
            "assay_agent_connected", "1 while the server knows this agent.", registry=self.registry
        )
        connected.set_function(lambda: float(session.registered))
        self.registry.register(_Spool(spool))
        self.registry.register(_Gpus(slots, gpus))

    def serve(self, place: MetricsPlace | None) -> None:
        self._endpoint.serve(place)

    @property
    def address(self) -> str:
        return self._endpoint.address

    def close(self) -> None:
        self._endpoint.close()


class _Spool(Collector):
    """How full the spool is."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool

    def collect(self) -> Iterable[Metric]:
        depth, state = self._spool.depth(), self._spool.state()
        for name, text, value in (
            ("attempts", "Attempts in the spool.", depth.attempts),
            ("segments", "Segments on the disk that the server has not acknowledged.", depth.segments),
            ("bytes", "Bytes that the spool takes.", depth.used_bytes),
            ("limit_bytes", "Maximum size of the spool.", depth.limit_bytes),
            ("waits", "1 while the spool is so full that no run begins.", state.waits),
            ("damaged", "Damaged files that are kept for a person to look at.", state.damaged),
        ):
            yield GaugeMetricFamily(f"assay_agent_spool_{name}", text, value)


class _Gpus(Collector):
    """Slots by state; of each GPU whether it is lost, and its last sample."""

    def __init__(self, slots: list[SlotSource], gpus: list[GpuSource]) -> None:
        self._slots, self._gpus = slots, gpus

    def collect(self) -> Iterable[Metric]:
        states = Numbers(map(_state, self._slots))
        slots = GaugeMetricFamily("assay_agent_slots", "Slots by state.", labels=["state"])
        for state in SLOT_STATES:
            slots.add_metric([state], states[state])
        lost = GaugeMetricFamily(
            "assay_agent_gpu_quarantined", "1 while a lost GPU is out of service.", labels=["gpu"]
        )
        heat = GaugeMetricFamily("assay_agent_gpu_temperature_celsius", "As last sampled.", labels=["gpu"])
        power = GaugeMetricFamily("assay_agent_gpu_power_watts", "As last sampled.", labels=["gpu"])
        busy = GaugeMetricFamily(
            "assay_agent_gpu_busy_percent",
            "Share of the driver's last sampling period in which a kernel ran.",
            labels=["gpu"],
        )
        throttled = GaugeMetricFamily(
            "assay_agent_gpu_throttled",
            "1 if heat, a power brake or the hardware slowed it in that sample.",
            labels=["gpu"],
        )
        for gpu in self._gpus:
            label = [str(gpu.number)]
            lost.add_metric(label, float(bool(gpu.slot.out_of_service())))
            reading = gpu.latest.within(_FRESH_SECONDS)
            if reading is not None:
                throttled.add_metric(label, float(is_throttled(reading)))
                for family, value in (
                    (heat, reading.temperature_celsius),
                    (power, reading.power_watts),
                    (busy, reading.busy_percent),
                ):
                    if value is not None:
                        family.add_metric(label, value)
        return [slots, lost, heat, power, busy, throttled]


def _state(slot: SlotSource) -> str:
    if slot.out_of_service():
        return "quarantined"
    return "measuring" if slot.measuring() else "idle"
