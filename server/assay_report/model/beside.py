"""Numbers from elsewhere that a reader sets beside a report: published results, and imported simulations."""

from __future__ import annotations

from typing import Annotated

from assay_sampling.documents.base import Part, says


class PublishedEntry(Part):
    """A published result of a method on a workload."""

    workload: Annotated[str, says("workload, as the publication names it")]
    suite: Annotated[str, says("its suite; empty if the file does not say")] = ""
    method: Annotated[str, says("method; empty if the file does not say")] = ""
    device: Annotated[str, says("kind of GPU; empty if the file does not say")] = ""
    error_percent: Annotated[float | None, says("published error", "percent")] = None
    speedup: Annotated[float | None, says("published speedup", "times")] = None
    source: Annotated[str, says("where it was published; the file's name if it does not say")] = ""


class SimulatedEntry(Part):
    """A row of the document of `assay pka-table`: simulations of a workload's launches."""

    suite: Annotated[str, says("its suite")] = ""
    application: Annotated[str, says("its name")] = ""
    simulator_error_percent: Annotated[
        float | None, says("of simulating every launch, against silicon", "percent")
    ] = None
    pks_error_percent: Annotated[float | None, says("of simulating the selected ones", "percent")] = None
    pka_error_percent: Annotated[
        float | None, says("of these, each until its projection stops it", "percent")
    ] = None
    pks_speedup: Annotated[float | None, says("simulated cycles of all / of the selected", "times")] = None
    pka_speedup: Annotated[float | None, says("the same with projection", "times")] = None
    applications: Annotated[int, says("1, or how many a row of means rests on", "applications")] = 1
