"""The thermal gate: a hot GPU cools down before a run begins, with hysteresis and a time limit.

The idea (pause at one temperature, resume at a lower one, poll, give up after a while) is that of
nsight-python's ``thermovision``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from assay_agent.gpus.telemetry_settings import TelemetrySettings

_LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class GatePassage:
    """How the gate was passed; ``began_celsius`` is None if the GPU does not report its temperature."""

    waited_seconds: float = 0.0
    began_celsius: float | None = None
    still_hot: bool = False


def pass_gate(
    temperature: Callable[[], float | None],
    settings: TelemetrySettings,
    cancelled: threading.Event,
    *,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], object] | None = None,
) -> GatePassage:
    """Wait until the GPU is cool enough, its time is over, or the run is cancelled.

    Args:
        temperature: degrees Celsius now; its errors propagate.
        settings: the gate's temperatures and longest wait.
        cancelled: ends the wait.
        clock: seconds; only tests replace it.
        pause: waits for some seconds; default: that of ``cancelled``.
    """
    wait = pause or cancelled.wait
    began = clock()
    now = temperature()
    if not settings.pause_at_celsius or now is None or now < settings.pause_at_celsius:
        return GatePassage(0.0, now)
    while now is not None and now >= settings.resume_below_celsius and not cancelled.is_set():
        seconds = began + settings.longest_wait_seconds - clock()
        if seconds <= 0:
            return GatePassage(clock() - began, now, still_hot=True)
        wait(min(_LOOK_SECONDS, seconds))
        now = temperature()
    return GatePassage(clock() - began, now)
