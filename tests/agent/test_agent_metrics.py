"""What an agent tells Prometheus: its attempts, spool and GPUs, under labels that cannot multiply."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from assay_agent.config import AgentSettings
from assay_agent.daemon.agent import Agent
from assay_agent.daemon.state import credentials_folder
from assay_agent.gpus.event_reasons import EventReason
from assay_agent.gpus.latest import LatestReading, is_throttled
from assay_agent.gpus.sensors import Reading
from assay_agent.metrics.agent_metrics import OUTCOMES, SLOT_STATES, AgentMetrics
from assay_agent.metrics.meter import Meter
from assay_agent.metrics.sources import GpuSource, SlotSource
from assay_agent.spool.spool import Spool
from assay_agent.uplink.session import Session
from assay_core.metrics.reading import metrics_place
from assay_sampling.errors import MissingExtraError
from assay_sampling.running.failures import FailureClass
from tests.support.agent.agent_processes import agent_process
from tests.support.agent.assignments import assignment
from tests.support.agent.fake_server import FakeServer, batches_of, wait_for
from tests.support.agent.tool_bench import WORKLOAD
from tests.support.agent.virtual_runs import add
from tests.support.identity.authorities import made_authority, made_credentials
from tests.support.metrics import fetched, label_values, samples_of, value

ALLOWED = {
    "outcome": set(OUTCOMES),
    "failure_class": {str(each) for each in FailureClass},
    "state": set(SLOT_STATES),
    "gpu": {"0", "1"},
    "program": {"assay-agent"},
    "certificate": {"agent", "metrics"},
}
FREE = {"le", "version", "python"}  # buckets, and one value each


def seen(address: str) -> str:
    try:
        return fetched(address)[1]
    except OSError:  # it has not started yet
        return ""


@pytest.mark.processes
def test_an_agent_counts_its_runs_under_labels_that_cannot_multiply(
    server: FakeServer, tmp_path: Path
) -> None:
    (tmp_path / "small.toml").write_text(WORKLOAD)
    add(server, "made-up.0000", tmp_path, "light")
    add(server, "made-up.0001", tmp_path, "light", "application_failed")
    address = f"{server.address}.metrics"  # in its short folder
    options = ("--virtual", "V100:2", "--recorded-slots", "0", "--metrics", address)
    with agent_process(server, tmp_path / "state", *options):
        pages: list[str] = []

        def both_have_ended() -> bool:
            pages[:] = [seen(address)]
            ends = (f'outcome="{outcome}"}} 1.0' for outcome in ("published", "failed"))
            return "assay_agent_spool_segments 0.0" in pages[0] and all(end in pages[0] for end in ends)

        wait_for(both_have_ended)
        samples = samples_of(pages[0])
    of = {(s.name, *sorted(s.labels.values())): s.value for s in samples}
    assert of["assay_agent_attempts_ended_total", "published"] == 1
    assert of["assay_agent_attempts_ended_total", "failed"] == 1
    (failed,) = server.failures
    assert of["assay_agent_failures_total", failed.failure.failure_class] == 1
    key, _ = server.published["made-up.0000"]
    assert of["assay_agent_acknowledge_seconds_count",] >= len(server.segments[key]) >= 1
    assert of["assay_agent_heartbeat_seconds_count",] >= 1
    assert of["assay_agent_connected",] == 1
    assert (of["assay_agent_spool_segments",], of["assay_agent_spool_bytes",]) == (0, 0)
    assert of["assay_agent_slots", "idle"] + of["assay_agent_slots", "measuring"] == 2
    assert (of["assay_agent_gpu_quarantined", "0"], of["assay_agent_gpu_quarantined", "1"]) == (0, 0)
    heat = [s.value for s in samples if s.name == "assay_agent_gpu_temperature_celsius"]
    assert heat
    assert all(20 < celsius < 100 for celsius in heat)
    for label, values in label_values(samples).items():
        if label not in FREE:
            assert values <= ALLOWED[label], label
    assert len(samples) < 200


def slot(reason: str = "", *, measuring: bool = False) -> SlotSource:
    return SlotSource(lambda: measuring, lambda: reason)


def test_a_spool_without_a_server_is_seen_to_grow(tmp_path: Path) -> None:
    metrics = AgentMetrics(tmp_path)
    spool = Spool(tmp_path / "spool", limit_bytes=1 << 20, minimum_free_bytes=0, flush_seconds=0)
    metrics.watch(spool, Session(), [], [])
    attempt = spool.create(assignment())
    for batch in batches_of(300, 100):
        attempt.append(batch)
    wait_for(lambda: value(metrics.registry, "assay_agent_spool_segments") == 3)
    held = value(metrics.registry, "assay_agent_spool_bytes")
    assert 0 < held < value(metrics.registry, "assay_agent_spool_limit_bytes") == 1 << 20
    attempt.acknowledge(0)
    assert value(metrics.registry, "assay_agent_spool_segments") == 2
    assert value(metrics.registry, "assay_agent_spool_bytes") < held
    assert value(metrics.registry, "assay_agent_spool_attempts") == 1
    assert value(metrics.registry, "assay_agent_connected") == 0
    assert value(metrics.registry, "assay_agent_spool_waits") == 0
    spool.limit_bytes = spool.used_bytes
    assert value(metrics.registry, "assay_agent_spool_waits") == 1
    assert value(metrics.registry, "assay_agent_spool_damaged") == 0
    spool.close()


def test_only_a_sample_of_this_minute_speaks_for_a_gpu(tmp_path: Path) -> None:
    clock = [100.0]
    metrics = AgentMetrics(tmp_path)
    readings = [LatestReading(lambda: clock[0]) for _ in range(2)]
    slots = [slot(measuring=True), slot("it fell off the bus")]
    gpus = [GpuSource(i, slots[i], readings[i]) for i in range(2)]
    spool = Spool(tmp_path / "spool")
    metrics.watch(spool, Session(), [*slots, slot()], gpus)

    def of(name: str, gpu: str) -> float | None:
        return metrics.registry.get_sample_value(f"assay_agent_gpu_{name}", {"gpu": gpu})

    assert [of("quarantined", gpu) for gpu in "01"] == [0, 1]
    assert of("temperature_celsius", "0") is None
    readings[0].note(Reading(temperature_celsius=71.0, event_reasons=EventReason.HARDWARE_THERMAL))
    assert (of("temperature_celsius", "0"), of("throttled", "0")) == (71, 1)
    clock[0] += 61
    assert (of("temperature_celsius", "0"), of("throttled", "0")) == (None, None)
    states = {s: value(metrics.registry, "assay_agent_slots", state=s) for s in SLOT_STATES}
    assert states == {"idle": 1, "measuring": 1, "quarantined": 1}
    spool.close()


@pytest.mark.parametrize(
    ("reason", "throttled"),
    [(reason, reason.name in {"HARDWARE_SLOWDOWN", "SOFTWARE_THERMAL", "HARDWARE_THERMAL",
                              "HARDWARE_POWER_BRAKE"}) for reason in EventReason],
)  # fmt: skip
def test_idle_and_chosen_clocks_are_not_throttling(reason: EventReason, throttled: bool) -> None:
    assert is_throttled(Reading(event_reasons=int(reason))) is throttled
    assert not is_throttled(Reading(event_reasons=None))


def test_an_agent_tells_when_its_certificate_ends(tmp_path: Path) -> None:
    meter = Agent(AgentSettings(state_dir=tmp_path)).meter
    assert isinstance(meter, AgentMetrics)
    assert (
        meter.registry.get_sample_value("assay_certificate_expires_seconds", {"certificate": "agent"}) is None
    )
    credentials = made_credentials(made_authority())
    credentials_folder(tmp_path).write(credentials)
    end = value(meter.registry, "assay_certificate_expires_seconds", certificate="agent")
    assert end == credentials.identity.not_after_ms / 1000
    assert 0.9 < value(meter.registry, "assay_certificate_left_ratio", certificate="agent") <= 1


def test_two_agents_of_one_process_count_apart(tmp_path: Path) -> None:
    first, second = (Agent(AgentSettings(state_dir=tmp_path / name)).meter for name in "ab")
    assert isinstance(first, AgentMetrics)
    assert isinstance(second, AgentMetrics)
    first.attempt_ended("failed", "hang")
    for metrics, failures in ((first, 1), (second, 0)):
        assert value(metrics.registry, "assay_agent_failures_total", failure_class="hang") == failures


def test_an_agent_without_prometheus_client_runs_and_refuses_only_to_serve_metrics() -> None:
    code = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "from assay_agent.config import AgentSettings\n"
        "from assay_agent.daemon.agent import Agent\n"
        "print(type(Agent(AgentSettings()).meter).__name__)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.stdout.strip() == "Meter", ended.stderr
    Meter().serve(None)
    with pytest.raises(MissingExtraError):
        Meter().serve(metrics_place("127.0.0.1:0", None, None, None))
