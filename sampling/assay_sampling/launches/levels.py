"""Checks that a detailed and a light recording belong together: one kind of data, one GPU, one condition, and
the same launches.

Source: docs/methods/comparing.md, "Between GPUs".
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from assay_sampling.errors import NotJoinableError, RefusedError
from assay_sampling.launches.alignment import LEAST_MATCH_PERCENT, align_window, require_match
from assay_sampling.launches.in_memory import Launches
from assay_sampling.running.identity import Device, condition_conflict, may_be_one_kind


def check_levels(detailed: Launches, light: Launches) -> None:
    """Refuse two levels that may be of different workloads.

    Raises RefusedError for other data, GPUs or conditions, MisalignedError with the first differences
    where fewer than 99 % of the launches match exactly.
    """
    subject = f"{source_of(detailed)} and {source_of(light)}"
    refuse_other_kind(subject, detailed, light)
    require_match(align_window(detailed, light, "exact"), LEAST_MATCH_PERCENT, subject)


def source_of(launches: Launches) -> str:
    """What to call a recording in messages: its files, else its level."""
    return ", ".join(launches.sources) or f"the {launches.metadata.level} run"


def refuse_other_kind(subject: str, detailed: Launches, light: Launches) -> None:
    """Raise RefusedError where the levels differ in kind of data, GPU or condition.

    A value that a recording does not give never differs.
    """
    ours, theirs = detailed.metadata, light.metadata
    if ours.origin != theirs.origin:
        raise RefusedError(
            subject,
            f"the detailed run is {ours.origin} and the light run is {theirs.origin}",
            "join recordings of one kind; mark a file that is synthetic with --synthetic",
        )
    if condition_conflict(ours.condition, theirs.condition):
        raise RefusedError(
            subject,
            f"they were made under two conditions ({ours.condition} and {theirs.condition})",
            "join recordings made under one condition",
        )
    refuse_other_devices(subject, detailed.devices(), light.devices())


def refuse_other_devices(subject: str, ours: Sequence[Device], theirs: Sequence[Device]) -> None:
    """Raise NotJoinableError unless the recordings may share a kind of GPU."""
    pairs = list(product(ours, theirs))
    if pairs and not any(may_be_one_kind(one, other) for one, other in pairs):
        labels = [", ".join(dict.fromkeys(device.label() for device in side)) for side in (ours, theirs)]
        raise NotJoinableError(
            "two_kinds_of_gpu",
            subject,
            f"they were made on two kinds of GPU ({labels[0]} and {labels[1]})",
            "join recordings of one GPU; a selection can be scored on another with: assay evaluate",
        )
