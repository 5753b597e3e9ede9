"""The report of a campaign, as it is in JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

from assay_report.model.compared import (
    ColdStartEntry,
    Compared,
    LockedClockEntry,
    NoiseEntry,
    OverheadEntry,
    SequenceEntry,
    SmShareEntry,
)
from assay_report.model.drawn import Drawn
from assay_report.model.external_results import PublishedEntry, SimulatedEntry
from assay_report.model.runs import FailedRunEntry, ProvenanceEntry, RunEntry
from assay_report.model.scores import RecommendedEntry, Row, SummaryEntry
from assay_report.model.slices import ChosenSlicesEntry
from assay_report.model.verdicts import Verdicts
from assay_sampling.documents.base import ArrangedPart, Part, says
from assay_sampling.documents.selection import SelectionInReport

REPORT_VERSION = 2


class CampaignEntry(Part):
    """The campaign of a report."""

    id: Annotated[str, says("its name in the store")]
    name: Annotated[str, says("the name that its file gives it")] = ""
    owner_name: Annotated[str, says("who submitted it; empty: nobody is known")] = ""
    project: Annotated[str, says("the project it belongs to; empty: none")] = ""
    synthetic: Annotated[bool, says("no silicon produced its data")]
    seed: Annotated[int, says("seed of every random choice")]

    @property
    def belongs(self) -> str:
        """For people, after its name: `` of vera in project vision``, or nothing."""
        owner = f" of {self.owner_name}" if self.owner_name else ""
        return owner + (f" in project {self.project}" if self.project else "")


class Comparisons(Part):
    """Comparisons of runs. A kind without entries has no key in the report."""

    sm_share: Annotated[
        list[SmShareEntry], says("one for each workload, GPU and SM share with a light run")
    ] = []
    cold_start: Annotated[
        list[ColdStartEntry], says("one for each workload and GPU with a detailed run with flushed caches")
    ] = []
    locked_clock: Annotated[
        list[LockedClockEntry], says("one for each workload, GPU and locked clock with live runs under it")
    ] = []
    noise: Annotated[
        list[NoiseEntry], says("one for each workload, GPU, level and condition with two repeats or more")
    ] = []
    overhead: Annotated[
        list[OverheadEntry],
        says("with bare runs, one for each workload, GPU, level and condition"),
    ] = []
    sequences: Annotated[
        list[SequenceEntry],
        says("one for each live run whose launches differ from those of the first light run"),
    ] = []

    def entries(self) -> Iterator[Compared]:
        """All entries, part by part."""
        for part in COMPARISONS:
            yield from getattr(self, part)

    def add(self, other: Comparisons) -> None:
        """Add the entries of another workload."""
        for part in COMPARISONS:
            getattr(self, part).extend(getattr(other, part))


COMPARISONS: tuple[str, ...] = tuple(Comparisons.model_fields)


class Report(Comparisons, ArrangedPart):
    """The report of a campaign. A value that was not measured or does not apply is `null`."""

    left_out_unless_set: ClassVar[frozenset[str]] = frozenset(
        {*COMPARISONS, "chosen_slices", "published", "simulated"}
    )

    format_version: Annotated[int, says("2; it grows when a key changes its meaning")] = REPORT_VERSION
    campaign: Annotated[CampaignEntry, says("the campaign")]
    versions: Annotated[
        dict[str, str],
        says(
            "`assay`, `numpy`, `pyarrow`, `scikit-learn`, `python` that computed the numbers, and packages "
            "that methods come from"
        ),
    ] = {}
    verdicts: Annotated[
        Verdicts | None,
        says("what the report says in one screen"),
    ] = None
    runs: Annotated[list[RunEntry], says("every run with data")] = []
    provenance: Annotated[
        list[ProvenanceEntry], says("what each workload's numbers on each GPU were measured with")
    ] = []
    chosen_slices: Annotated[
        list[ChosenSlicesEntry],
        says("with `detailed.first: auto`, one for each workload and GPU: its slices, and why these"),
    ] = []
    failed_runs: Annotated[list[FailedRunEntry], says("every run without data")] = []
    summary: Annotated[list[SummaryEntry], says("one for each workload, GPU and condition")] = []
    rows: Annotated[list[Row], says("one for each workload, GPU, condition and method")] = []
    recommendations: Annotated[
        list[RecommendedEntry],
        says("where two methods or more selected: one for each workload, GPU and condition"),
    ] = []
    selections: Annotated[
        dict[str, SelectionInReport],
        says("by the key that rows name, as in [selection-format.md](selection-format.md)"),
    ] = {}
    published: Annotated[
        list[PublishedEntry], says("published results that a reader set beside: `assay report --beside FILE`")
    ] = []
    simulated: Annotated[
        list[SimulatedEntry], says("imported simulations: `assay report --simulated FILE`")
    ] = []
    drawn: Annotated[dict[str, Drawn], says("data of figures, by the selection's key")] = {}

    def to_document(self) -> dict[str, Any]:
        """The JSON form."""
        document = self.model_dump(mode="json")
        compared = {part: document.pop(part) for part in COMPARISONS if part in document}
        return {**document, **compared}
