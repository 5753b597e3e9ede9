"""Faults of a campaign file with ``detailed: none``, which plans only light runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from assay_server.campaign_file.faults.messages import Fault
from assay_server.campaign_file.spec import Campaign

if TYPE_CHECKING:
    from assay_sampling.methods.needs import Needs


def light_only_faults(campaign: Campaign) -> Iterator[Fault]:
    """Detailed recordings, and methods that the analysis would have to refuse.

    Raises ParameterError for a method or parameter that does not exist: check these first.
    """
    from assay_sampling.methods.registry import (  # noqa: PLC0415 - they need their extra
        methods_without_counters,
        needs,
    )

    for position, workload in enumerate(campaign.workloads):
        for number, recording in enumerate(workload.recordings):
            if recording.detailed is not None:
                yield Fault(
                    ("workloads", position, "recordings", number, "detailed"),
                    "the campaign says 'detailed: none'; leave out one of the two",
                )
    for position, method in enumerate(campaign.methods):
        method_needs = needs(method.name, method.parameters)
        if method_needs is not None and not method_needs.nothing:
            yield Fault(
                ("analysis", "methods", position),
                f"{method.name} needs {_counters(method_needs)}, and 'detailed: none' collects none; "
                f"methods that need none are {', '.join(methods_without_counters())}",
            )


def _counters(method_needs: Needs) -> str:
    names = method_needs.to_collect()
    return f"the counter {names[0]}" if len(names) == 1 else f"{len(names)} counters"
