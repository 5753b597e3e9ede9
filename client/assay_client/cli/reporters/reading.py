"""How far the reading of a file has come, in words for a line of progress."""

from __future__ import annotations

from assay_client.cli.reporters.text import counted, size
from assay_sampling.files.watching import ReadState


def describe_reading(state: ReadState, now_s: float) -> str:
    """``34.00 MiB of 210.00 MiB, 1,200,000 launches, about 12 s left``; leaves out what is not known."""
    parts = []
    if state.total_bytes:
        parts.append(f"{size(state.read_bytes)} of {size(state.total_bytes)}")
    if state.total_launches:
        parts.append(f"{state.launches:,} of {counted(state.total_launches, 'launch', 'launches')}")
    elif state.launches:
        parts.append(counted(state.launches, "launch", "launches"))
    remaining_s = state.remaining_s(now_s)
    if remaining_s is not None:
        parts.append(f"about {_in_words(remaining_s)} left")
    return ", ".join(parts)


def _in_words(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if minutes else f"{rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
