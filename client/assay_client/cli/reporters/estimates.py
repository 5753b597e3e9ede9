"""Estimates in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_HOUR_MS = 3_600_000


def eta_in_words(eta: Mapping[str, Any]) -> str:
    """``2 h 05 min (1 h 30 min to 3 h 00 min)``, ``at least 3 min``, or why there is no estimate yet."""
    remaining_ms = eta["remaining_ms"]
    if remaining_ms is None:
        return f"no estimate yet ({eta['missing']})" if eta["missing"] else "no estimate yet"
    text = _span(remaining_ms)
    low, high = (_span(eta[end] or 0) for end in ("low_ms", "high_ms"))
    interval = f" ({low} to {high})" if eta["high_ms"] and low != high else ""
    return f"at least {text}{interval}" if eta["at_least"] else f"{text}{interval}"


def _span(milliseconds: int) -> str:
    hours, rest_ms = divmod(milliseconds, _HOUR_MS)
    minutes = -(-rest_ms // 60_000)
    return f"{hours:,} h {minutes:02d} min" if hours else f"{minutes} min"
