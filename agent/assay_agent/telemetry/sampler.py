"""The thread that samples a GPU's sensors while a command runs. No error of it ever ends a run."""

from __future__ import annotations

import logging
import threading
import time
from types import TracebackType
from typing import Self

from assay_agent.gpus.latest import LatestReading
from assay_agent.gpus.processes import ProcessOwners
from assay_agent.gpus.sensors import GpuLostError, GpuSensors, SensorError, clients_of
from assay_agent.gpus.telemetry_settings import TelemetrySettings
from assay_agent.telemetry.summary import TelemetrySummary

_log = logging.getLogger(__name__)
_JOIN_SECONDS = 10.0


class Sampler:
    """Samples into ``summary`` while it is entered; may be entered several times, one after the other."""

    def __init__(
        self,
        sensors: GpuSensors,
        summary: TelemetrySummary,
        owners: ProcessOwners,
        settings: TelemetrySettings,
        latest: LatestReading,
    ) -> None:
        self._latest = latest
        self._sensors, self._summary = sensors, summary
        self._owners, self._settings = owners, settings
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._began = 0.0
        self._before = 0.0

    def __enter__(self) -> Self:
        self._stop.clear()
        self._before = self._summary.seconds
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="assay-telemetry", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._summary.seconds = self._elapsed()
        self._stop.set()
        if self._thread is not None:
            # A driver that hangs must not block the run: the thread is abandoned.
            self._thread.join(_JOIN_SECONDS)
            if self._thread.is_alive():
                self._summary.problem = "the driver stopped answering"

    def _elapsed(self) -> float:
        return self._before + time.monotonic() - self._began

    def _run(self) -> None:
        try:
            self._sample()
        except GpuLostError as error:
            self._summary.lost, self._summary.problem = True, error.cause
        except SensorError as error:
            self._summary.problem = str(error)
        except Exception as error:  # noqa: BLE001 - no fault of the sensors may end a measurement
            _log.exception("telemetry failed unexpectedly")
            self._summary.problem = f"{type(error).__name__}: {error}"

    def _sample(self) -> None:
        last, slow_due = self._elapsed(), 0.0
        while True:
            reading, at = self._sensors.read(), self._elapsed()
            self._summary.add(at, reading, at - last)
            self._latest.note(reading)
            last = at
            self._summary.add_xid_events(self._sensors.xid_events())
            if time.monotonic() >= slow_due:
                slow_due = time.monotonic() + self._settings.slow_interval_seconds
                self._look_for_others()
                self._summary.after = self._sensors.state()
            if self._stop.wait(self._settings.interval_seconds):
                # Assume that it was as busy until the end as at the last sample.
                self._summary.add_busy(reading, self._summary.seconds - last)
                return

    def _look_for_others(self) -> None:
        self._summary.add_others(*self._owners.others(clients_of(self._sensors), known_only=True))
