"""The gating rules: turn what was seen of a GPU while it measured into validity flags.

Source: docs/validity.md, "How the GPU is watched". Causes, remedies and effects are in
``assay_sampling.running.validity``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from assay_agent.gpus.event_reasons import LIMITS, THERMAL, EventReason, reason_names
from assay_agent.telemetry.summary import TelemetrySummary
from assay_core.records.validity_flag import ValidityFlag
from assay_sampling.scoring.two_conditions import share_bounds

CLOCK_BAND_PERCENT = 5.0
_LEAST_BUSY_SAMPLES = 5

Rule = Callable[[TelemetrySummary], str]  # why the flag is set; "": not set


def telemetry_flags(summary: TelemetrySummary) -> Iterator[ValidityFlag]:
    """The flags that the rules set, in the order of the table."""
    for name, rule in _RULES:
        detail = rule(summary)
        if detail:
            yield ValidityFlag.of_kind(name, detail)


def share_flag(
    asked_percent: float | None, effective_sms: int | None, all_sms: int, compute_capability: str = ""
) -> ValidityFlag | None:
    """``sm_share_not_in_force`` if the workload's processes see another share than was asked for."""
    if asked_percent is None or asked_percent >= 100 or effective_sms is None or not all_sms:
        return None
    least, most = share_bounds(all_sms, asked_percent, compute_capability)
    if effective_sms < all_sms and least <= effective_sms <= most:
        return None
    detail = f"{asked_percent:g} % was asked for, but {effective_sms:,} of {all_sms:,} SMs are seen"
    return ValidityFlag.of_kind("sm_share_not_in_force", detail)


def _reasons(mask: int, without: int = 0) -> Rule:
    def rule(summary: TelemetrySummary) -> str:
        reasons = summary.event_reasons & mask
        if not reasons or summary.event_reasons & without:
            return ""
        counts = [
            f"{reason_names(bit)[0]} in {count:,}"
            for bit, count in sorted(summary.reason_samples.items())
            if bit & reasons
        ]
        return f"{', '.join(counts)} of {summary.samples:,} samples"

    return rule


def _lost(summary: TelemetrySummary) -> str:
    return summary.problem if summary.lost else ""


def _missing(summary: TelemetrySummary) -> str:
    if summary.problem:
        return "" if summary.lost else summary.problem
    if not summary.samples:
        return "no sample was taken"
    lacking = [name for name in ("sm_clock_mhz", "temperature_celsius") if not summary.statistics[name].count]
    if all(reading.event_reasons is None for _, reading in summary.series.points):
        lacking.append("event_reasons")
    return f"the GPU does not report its {', '.join(lacking)}" if lacking else ""


def _foreign(summary: TelemetrySummary) -> str:
    return _processes(summary.foreign_processes)


def _desktop(summary: TelemetrySummary) -> str:
    return _processes(summary.desktop_processes)


def _processes(named: Mapping[int, str]) -> str:
    return ", ".join(f"process {pid} {name}".rstrip() for pid, name in named.items())


def _xid(summary: TelemetrySummary) -> str:
    numbers = ", ".join(str(number) for number in dict.fromkeys(summary.xid_events))
    return f"XID {numbers}" if numbers else ""


def _ecc(counter: str) -> Rule:
    def rule(summary: TelemetrySummary) -> str:
        grown = summary.grown(counter)
        return f"{grown:,} errors during the run" if grown else ""

    return rule


def _hot(summary: TelemetrySummary) -> str:
    if not summary.started_hot:
        return ""
    return f"{summary.began_celsius:g} °C after a wait of {summary.waited_seconds:.0f} s"


def _clock_varied(summary: TelemetrySummary) -> str:
    """By the 5th and 95th percentile, so that the first clock after an idle time does not count."""
    clocks = summary.busy_clocks_mhz()
    if len(clocks) < _LEAST_BUSY_SAMPLES:
        return ""
    low, high = (float(value) for value in np.percentile(clocks, (5, 95)))
    spread_percent = 100 * (high - low) / float(np.mean(clocks))
    if spread_percent <= CLOCK_BAND_PERCENT:
        return ""
    return f"{low:,.0f} to {high:,.0f} MHz in 90 % of the busy samples, {spread_percent:.1f} % of the mean"


def _settings_changed(summary: TelemetrySummary) -> str:
    changed = []
    for what in ("compute_mode", "mig_mode"):
        first, last = (getattr(state, what, None) for state in (summary.before, summary.after))
        if first is not None and last is not None and first != last:
            changed.append(f"{what.replace('_', ' ')} was {first} and is {last}")
    return ", ".join(changed)


def _persistence_off(summary: TelemetrySummary) -> str:
    state = summary.before
    return "persistence mode is off" if state is not None and state.persistence is False else ""


_HARDWARE_CAUSES = EventReason.HARDWARE_THERMAL | EventReason.HARDWARE_POWER_BRAKE
_RULES: tuple[tuple[str, Rule], ...] = (
    ("gpu_lost", _lost),
    ("xid_error", _xid),
    ("ecc_error", _ecc("ecc_uncorrected")),
    ("ecc_corrected", _ecc("ecc_corrected")),
    ("foreign_process", _foreign),
    ("desktop_on_gpu", _desktop),
    ("throttled_thermal", _reasons(THERMAL)),
    ("throttled_power", _reasons(EventReason.HARDWARE_POWER_BRAKE)),
    ("throttled_hardware", _reasons(EventReason.HARDWARE_SLOWDOWN, without=_HARDWARE_CAUSES)),
    ("power_capped", _reasons(EventReason.SOFTWARE_POWER_CAP)),
    ("clock_limited", _reasons(LIMITS)),
    ("clock_varied", _clock_varied),
    ("started_hot", _hot),
    ("gpu_settings_changed", _settings_changed),
    ("persistence_off", _persistence_off),
    ("telemetry_missing", _missing),
)
