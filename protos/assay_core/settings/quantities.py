"""Durations and sizes as people write them, with a unit: ``90s``, ``8GiB``."""

from __future__ import annotations

import re

from assay_sampling.errors import ParameterError

_SPAN_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_BYTES = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY_BYTES = {"KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
_SHOWN_SPANS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1))
_SHOWN_BYTES = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


def parse_span_seconds(text: str, subject: str) -> float:
    """``500ms``, ``90s``, ``15m``, ``2h`` or ``1d`` in seconds; 0 needs no unit.

    Raises ParameterError for anything else: a number without a unit may have meant milliseconds.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower(), re.ASCII)
    unit = match[2] if match else ""
    if match and (unit in _SPAN_SECONDS or (not unit and float(match[1]) == 0)):
        return float(match[1]) * _SPAN_SECONDS.get(unit, 1.0)
    if match and not unit:
        raise ParameterError(subject, f"{text!r} has no unit", f"write {match[1]}s or {match[1]}ms")
    raise ParameterError(subject, f"{text!r} is not a span of time", "write 500ms, 90s, 15m, 2h or 1d")


def parse_bytes(text: str, subject: str, *, least: int = 0) -> int:
    """``8589934592``, ``500M`` or ``8GiB`` as bytes; raises ParameterError for other texts or too few."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]I?)?B?", text.strip().upper(), re.ASCII)
    amount = int(float(match[1]) * {**_BYTES, **_BINARY_BYTES}[match[2] or ""]) if match else -1
    if amount < least:
        raise ParameterError(subject, f"{text!r} is not a number of bytes", "write 8GiB or 8589934592")
    return amount


def span_text(seconds: float) -> str:
    """Seconds as people write them, in the largest unit that divides them: ``90s``, ``15m``."""
    milliseconds = round(seconds * 1000)
    if milliseconds == 0:
        return "0s"
    unit, size = next((unit, size) for unit, size in _SHOWN_SPANS if milliseconds % size == 0)
    return f"{milliseconds // size}{unit}"


def bytes_text(size_bytes: int) -> str:
    """Bytes as people write them: ``8GiB``, or the bare number if no binary unit divides it."""
    fitting = (f"{size_bytes // size}{unit}" for unit, size in _SHOWN_BYTES if size_bytes % size == 0)
    return next(fitting, str(size_bytes)) if size_bytes else "0"
