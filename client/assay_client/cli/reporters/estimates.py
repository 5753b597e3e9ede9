"""Estimates in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_HOUR_MS = 3_600_000


def eta_in_words(eta: Mapping[str, Any]) -> str:
    """``2 h 05 min``, ``at least 3 min``, or why there is no estimate yet."""
    remaining_ms = eta["remaining_ms"]
    if remaining_ms is None:
        return f"no estimate yet ({eta['missing']})" if eta["missing"] else "no estimate yet"
    hours, rest_ms = divmod(remaining_ms, _HOUR_MS)
    minutes = -(-rest_ms // 60_000)
    text = f"{hours:,} h {minutes:02d} min" if hours else f"{minutes} min"
    return f"at least {text}" if eta["at_least"] else text
