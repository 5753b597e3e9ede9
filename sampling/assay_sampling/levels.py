"""Whether a detailed and a light recording belong together: one kind of data, one GPU, one condition, and the
same launches.

Source: design, "Numbers that must mean one thing" (matching) and promise 2.
"""

from __future__ import annotations

from assay_sampling.alignment import LEAST_MATCH_PERCENT, align_window, require_match
from assay_sampling.errors import RefusedError
from assay_sampling.launch_table import Device
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
    for what in ("cache", "clock", "sm_percent"):
        values = getattr(ours.condition, what), getattr(theirs.condition, what)
        if None not in values and values[0] != values[1]:
            raise RefusedError(
                subject,
                f"they were made under two conditions ({ours.condition} and {theirs.condition})",
                "join recordings of one condition",
            )
    for of_device in (_capability, _model):
        found = [{of_device(device) for device in side.devices} - {""} for side in (ours, theirs)]
        if found[0] and found[1] and found[0].isdisjoint(found[1]):
            raise RefusedError(
                subject,
                f"they were made on two kinds of GPU ({', '.join(detailed.device_labels())} and "
                f"{', '.join(light.device_labels())})",
                "join recordings of one GPU; a selection can be scored on another with: assay evaluate",
            )


def _capability(device: Device) -> str:
    return device.compute_capability


def _model(device: Device) -> str:
    return device.name.casefold()
