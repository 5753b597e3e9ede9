"""Numbers and times in words for people."""

from __future__ import annotations

from datetime import UTC, datetime

from assay_sampling.running.identity import Condition


def span(milliseconds: float) -> str:
    """A time span in at most two units: "3 d 4 h", "12 min", "40 s"."""
    seconds = max(0, round(milliseconds / 1000))
    for size, unit, next_size, next_unit in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if seconds >= size:
            whole, rest = divmod(seconds, size)
            smaller = rest // next_size
            return f"{whole} {unit} {smaller} {next_unit}" if smaller and whole < 10 else f"{whole} {unit}"
    return f"{seconds} s"


def moment(milliseconds: int) -> str:
    """A moment (Unix time) in UTC."""
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def amount(number: float) -> str:
    """A count with separators, short above a million: "12,345", "3.2 M"."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if abs(number) >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:,.0f}"


def size(number: float) -> str:
    """Bytes in binary units: "1.5 GiB"."""
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if abs(number) >= 1 << power:
            return f"{number / (1 << power):.3g} {unit}"
    return f"{number:,.0f} B"


def percent(value: float | None) -> str:
    """A percentage with the digits that people compare; "-" without one."""
    if value is None:
        return "-"
    return f"{value:.2f} %" if abs(value) < 10 else f"{value:.1f} %"


def special_condition(cache: str | None, clock: object, sm_percent: float | None) -> str:
    """What is special about a condition; "" for free clocks, caches left alone and all SMs."""
    parts = ["flushed caches"] if cache == "all" else []
    if clock not in (None, "none"):
        parts.append(f"clock {clock}")
    if sm_percent is not None and sm_percent < 100:
        parts.append(f"{sm_percent:g} % of the SMs")
    return ", ".join(parts)


def condition(given: Condition) -> str:
    """The condition of a run; what was not recorded is not said."""
    if given == Condition():
        return "not recorded"
    words = special_condition(given.cache, given.clock, given.sm_percent)
    return words or "free clocks, caches as they are"
