"""What cannot stand in a campaign file beside ``detailed: none``, by which light runs alone are planned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from assay_server.campaigns.live_spec import Fault

if TYPE_CHECKING:
    from assay_sampling.samplers import Needs
    from assay_server.campaigns.spec import Campaign


def light_only_faults(campaign: Campaign) -> Iterator[Fault]:
    """Detailed recordings, and methods that could only be refused in the end.

    Raises ParameterError for a method or parameter that does not exist: check these before.
    """
    from assay_sampling.samplers import methods_without_counters, needs  # noqa: PLC0415 - they need their extra

    for position, workload in enumerate(campaign.workloads):
        for number, recording in enumerate(workload.recordings):
            if recording.detailed is not None:
                yield (
                    ("workloads", position, "recordings", number, "detailed"),
                    "the campaign says 'detailed: none'; leave out one of the two",
                )
    for position, method in enumerate(campaign.methods):
        wanted = needs(method.name, method.parameters)
        if wanted is not None and not wanted.nothing:
            yield (
                ("analysis", "methods", position),
                f"{method.name} needs {_counters(wanted)}, and 'detailed: none' collects none; methods that "
                f"need none are {', '.join(methods_without_counters())}",
            )


def _counters(wanted: Needs) -> str:
    names = wanted.to_collect()
    return f"the counter {names[0]}" if len(names) == 1 else f"{len(names)} counters"
