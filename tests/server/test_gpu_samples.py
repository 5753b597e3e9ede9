"""What sensors said, from an agent's heartbeat to whoever asks for agents."""

from __future__ import annotations

import math

from assay_core.records.lease import Heartbeat
from assay_core.records.machine import GpuSample
from assay_server.campaigns.last_heard import LastHeard

WARM = GpuSample("GPU-1", 500, 61.5, 210.0, 99.0, 1530.0)


def test_a_sample_ages_and_is_forgotten_after_two_minutes() -> None:
    heard = LastHeard(spool_ms=1_000)
    heard.note(Heartbeat("a", "s", gpus=(WARM,)), 1_000)
    assert heard.gpu_samples("a", 3_000)["GPU-1"].age_ms == 2_500
    assert heard.gpu_samples("a", 120_500)["GPU-1"].temperature_celsius == 61.5
    assert heard.gpu_samples("a", 120_501) == {}
    assert heard.gpu_samples("b", 1_000) == {}


def test_a_heartbeat_without_samples_keeps_those_of_the_last_one() -> None:
    heard = LastHeard(spool_ms=1_000)
    heard.note(Heartbeat("a", "s", gpus=(WARM,)), 1_000)
    heard.note(Heartbeat("a", "s"), 2_000)
    assert list(heard.gpu_samples("a", 2_000)) == ["GPU-1"]


def test_agents_that_went_away_take_no_memory() -> None:
    heard = LastHeard(spool_ms=1_000)
    for number in range(1_000):
        heard.note(Heartbeat(f"agent-{number}", "s", gpus=(WARM,)), number * 10_000)
    assert sum(bool(heard.gpu_samples(f"agent-{number}", 9_990_000)) for number in range(1_000)) == 12
    assert len(heard._samples) <= 100


def test_numbers_that_are_not_numbers_and_long_names_are_not_kept() -> None:
    ugly = GpuSample("x" * 1_000, -5, math.nan, math.inf, 3.0)
    sent = Heartbeat("a", "s", gpus=(ugly,) * 300).to_proto()
    told = Heartbeat.from_proto(sent).gpus
    assert len(told) == 256
    assert told[0] == GpuSample("x" * 200, 0, None, None, 3.0)
