"""Whether a detailed and a light recording belong together: one kind of data, one GPU, one condition, and the
same launches.

Source: design, "Numbers that must mean one thing" (matching) and promise 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from assay_sampling.alignment import LEAST_MATCH_PERCENT, align_window, require_match
from assay_sampling.errors import NotJoinableError, RefusedError
from assay_sampling.identity import Device, condition_conflict, may_be_one_kind
from assay_sampling.launches import Launches


def check_levels(detailed: Launches, light: Launches) -> None:
    """Refuse to use two levels of which nobody can say that they are of one workload.

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
    """Raise RefusedError where the levels are not of one kind of data, one GPU and one condition.

    What a recording does not say cannot speak against it.
    """
    ours, theirs = detailed.metadata, light.metadata
    if ours.synthetic != theirs.synthetic:
        raise RefusedError(
            subject,
            f"the {'detailed' if ours.synthetic else 'light'} run is synthetic and the other is measured",
            "join recordings of one kind; mark a file that is synthetic with --synthetic",
        )
    if condition_conflict(ours.condition, theirs.condition):
        raise RefusedError(
            subject,
            f"they were made under two conditions ({ours.condition} and {theirs.condition})",
            "join recordings of one condition",
        )
    refuse_other_devices(subject, detailed.devices(), light.devices())


def refuse_other_devices(subject: str, ours: Sequence[Device], theirs: Sequence[Device]) -> None:
    """Raise NotJoinableError where no device of one recording may be of the kind of one of the other's."""
    pairs = list(product(ours, theirs))
    if pairs and not any(may_be_one_kind(one, other) for one, other in pairs):
        labels = [", ".join(dict.fromkeys(device.label() for device in side)) for side in (ours, theirs)]
        raise NotJoinableError(
            "two_kinds_of_gpu",
            subject,
            f"they were made on two kinds of GPU ({labels[0]} and {labels[1]})",
            "join recordings of one GPU; a selection can be scored on another with: assay evaluate",
        )
