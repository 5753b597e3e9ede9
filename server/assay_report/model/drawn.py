"""The data behind a selection's figures, from the run that it was made on."""

from __future__ import annotations

from typing import Annotated

from assay_sampling.documents.base import Part, says
from assay_sampling.documents.common import ConditionEntry


class GroupShares(Part):
    """Which kernels a group holds: a share for each of `kernels`, and a last one for all others."""

    id: Annotated[int | None, says("the group; `null`: all others together")]
    launches: Annotated[int, says("its launches", "launches")]
    launches_percent: Annotated[list[float | None], says("of all launches of the workload", "percent")]
    cost_percent: Annotated[list[float | None], says("of the cost of the workload", "percent")]


class Composition(Part):
    """Which kernels each group holds."""

    kernels: Annotated[list[str], says("the seven that cost most, by name")]
    other_kernels: Annotated[int, says("how many more", "kernels")]
    groups: Annotated[list[GroupShares], says("the forty that cost most, and the others as one entry")]
    groups_together: Annotated[int, says("how many groups the last entry joins", "groups")]


class Marks(Part):
    """Where the representatives are: all of them, or every n-th where there are more than 400."""

    row: Annotated[list[int], says("row in the order of process and launch", "ordinal")]
    group: Annotated[list[int], says("group")]
    value: Annotated[list[float | None], says("value of the quantity")]


class ByLaunch(Part):
    """A quantity launch by launch, in at most 400 bins."""

    quantity: Annotated[str, says("IPC where instructions and cycles were counted, else the cost")]
    unit: Annotated[str, says("its unit")]
    launches: Annotated[int, says("launches in all bins", "launches")]
    bin_starts: Annotated[list[int], says("row at which each bin begins", "ordinal")]
    least: Annotated[list[float | None], says("least value of each bin; `null`: no launch has one")]
    mean: Annotated[list[float | None], says("mean of each bin")]
    most: Annotated[list[float | None], says("largest value of each bin")]
    process_starts: Annotated[list[int], says("rows at which another process begins", "ordinal")]
    representatives: Annotated[int, says("how many there are", "launches")]
    marks: Annotated[Marks, says("where they are")]


class Lanes(Part):
    """When each group ran: its share of the cost of each bin of launches, in order."""

    groups: Annotated[list[int | None], says("the seven that cost most; `null`: all others together")]
    kernels: Annotated[list[str], says("of each, the kernel that costs most")]
    bin_starts: Annotated[list[int], says("row at which each bin begins", "ordinal")]
    cost_percent: Annotated[
        list[list[float | None]], says("for each of `groups`, its share of the cost of each bin", "percent")
    ]


class PicturedCost(Part):
    """The cost that figures show."""

    quantity: Annotated[str, says("`duration_ns` or a kind of cycles")]
    unit: Annotated[str, says("`ns` or `cycle`")]


class Drawn(Part):
    """The data behind a selection's figures."""

    level: Annotated[str, says("level of the run")]
    condition: Annotated[ConditionEntry, says("condition of the run")]
    synthetic: Annotated[bool, says("no silicon produced the data")]
    cost: Annotated[PicturedCost, says("the cost that is shown")]
    composition: Annotated[Composition | None, says("`null` if the group of every launch is not known")] = (
        None
    )
    by_launch: Annotated[ByLaunch | None, says("`null` if no launch has a value")] = None
    lanes: Annotated[
        Lanes | None, says("when each group ran; `null` if the group of every launch is not known")
    ] = None
