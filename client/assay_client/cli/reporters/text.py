"""Numbers and names as people read them; names from files cannot control the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay_sampling.visible import visible


def clipped(text: str, width: int) -> str:
    """``text`` in one line of at most ``width`` characters; the middle is cut, where names agree."""
    line = " ".join(visible(text).split())
    if len(line) <= width:
        return line
    tail = width // 3
    return f"{line[: width - tail - 3]}...{line[len(line) - tail :]}"


def count(value: int | None) -> str:
    """A whole number with thousands separators."""
    return "n/a" if value is None else f"{value:,}"


def counted(value: int, one: str, many: str) -> str:
    """``1 group``, ``1,106 launches``."""
    return f"{value:,} {one if value == 1 else many}"


def percent(value: float | None, digits: int = 2) -> str:
    """A value in percent: 3.72 is ``3.72 %``."""
    return "n/a" if value is None else f"{value:z,.{digits}f} %"


def times(value: float | None) -> str:
    """A speedup: ``1,404.85x``."""
    return "n/a" if value is None else f"{value:,.2f}x"


def quantity(value: float | None, unit: str) -> str:
    """A cost in its unit; nanoseconds also in a larger unit."""
    if value is None:
        return "n/a"
    if unit == "ns":
        for size, name in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
            if abs(value) >= size:
                return f"{value:,.0f} ns ({value / size:,.3f} {name})"
    return f"{value:,.2f} {unit}{'s' if unit == 'cycle' else ''}"


def size(value: int) -> str:
    """A size in bytes: ``3.75 GiB``."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= unit:
            return f"{value / unit:,.2f} {name}"
    return f"{value:,} bytes"


def shape(values: Sequence[int]) -> str:
    """A grid or block: ``128x1x1``; ``?`` if it is not known."""
    return "x".join(str(v) for v in values) if all(values) else "?"


ASSUMED = "condition_assumed"


def condition_of(run: Mapping[str, Any]) -> str:
    """The condition of a run or row, marked if it is assumed because the campaign file left it out."""
    names = {flag["name"] if isinstance(flag, Mapping) else flag for flag in run.get("flags") or ()}
    return f"{condition(run['condition'])}{' (assumed)' if ASSUMED in names else ''}"


def condition(document: Mapping[str, object] | None) -> str:
    """The triple that every comparing table shows; ``?`` for a value that was not recorded."""
    document = document or {}
    share = document.get("sm_percent")
    shown = f"{share:g}" if isinstance(share, int | float) else "?"
    triple = f"cache={document.get('cache') or '?'} clock={document.get('clock') or '?'} sm={shown}%"
    return triple + share_kind(document)


def share_kind(document: Mapping[str, object]) -> str:
    """The suffix of a share of the SMs that is not a limit in percent."""
    return " partition" if document.get("sm_share") == "partition" else ""


@dataclass(frozen=True)
class UnitWords:
    """What a selection's groups divide, in words: one of it, several, and what tells them apart.

    On other GPUs errors are by ``part``, expected errors over ``sizes``; those of a ``kind`` scale alike.
    """

    one: str
    several: str
    kinds: str
    kind: str
    part: str
    sizes: str


_WORDS = {
    "launch": UnitWords("launch", "launches", "kernels", "kernel", "kernel and grid", "kernels and sizes"),
    "operation": UnitWords(
        "operation", "operations", "strata", "stratum", "stratum and size", "operators and shapes"
    ),
}


def words_of(document: Mapping[str, Any]) -> UnitWords:
    """The words for the unit of a selection's, evaluation's or comparison's document."""
    return _WORDS[document.get("unit", "launch")]


def profile_text(profile: Mapping[str, Any]) -> str:
    """A profile in short: its launches, its GPU and its ranks."""
    return (
        f"{counted(profile['launches'], 'launch', 'launches')} of "
        f"{counted(profile['kernels'], 'kernel', 'kernels')} on "
        f"{', '.join(dict.fromkeys(profile['devices'])) or 'an unnamed device'}{ranks_text(profile)}"
    )


def ranks_text(profile: Mapping[str, Any]) -> str:
    """``, 2 ranks of one job``; "" if only one is known."""
    ranks = profile.get("ranks") or 1
    return f", {ranks:,} ranks of one job" if ranks > 1 else ""
