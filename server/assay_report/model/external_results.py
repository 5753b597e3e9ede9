"""Numbers from elsewhere that a reader sets beside a report: published results, and imported simulations."""

from __future__ import annotations

from typing import Annotated, Literal

from assay_sampling.documents.base import Part, says
from assay_sampling.documents.common import Parameters


class PublishedEntry(Part):
    """A published result of a method on a workload."""

    workload: Annotated[str, says("workload, as the publication names it")]
    suite: Annotated[str, says("its suite; empty if the file does not say")] = ""
    method: Annotated[str, says("method; empty if the file does not say")] = ""
    device: Annotated[str, says("kind of GPU; empty if the file does not say")] = ""
    error_percent: Annotated[float | None, says("published error", "percent")] = None
    speedup: Annotated[float | None, says("published speedup", "times")] = None
    source: Annotated[str, says("where it was published; the file's name if it does not say")] = ""


class SimulatedNumbers(Part):
    """The simulator's columns of PKA's Table 4."""

    simulator_error_percent: Annotated[
        float | None, says("of simulating every launch, against silicon", "percent")
    ] = None
    pks_error_percent: Annotated[float | None, says("of simulating the selected ones", "percent")] = None
    pka_error_percent: Annotated[
        float | None, says("of these, each until its projection stops it", "percent")
    ] = None
    active_simulator_error_percent: Annotated[
        float | None, says("in active cycles, which leave out the launch latency", "percent")
    ] = None
    active_pks_error_percent: Annotated[float | None, says("in active cycles", "percent")] = None
    active_pka_error_percent: Annotated[float | None, says("in active cycles", "percent")] = None
    pks_speedup: Annotated[float | None, says("simulated cycles of all / of the selected", "times")] = None
    pka_speedup: Annotated[float | None, says("the same with projection", "times")] = None
    pka_speedup_over: Annotated[
        Literal["full", "pks"] | None,
        says("`full`: over all launches; `pks`: these were not simulated, so over the selected ones"),
    ] = None


class SimulatedEntry(SimulatedNumbers):
    """Simulations of a workload's launches: a document of `assay import accel-sim`, or a row of that of
    `assay pka-table`."""

    suite: Annotated[str, says("its suite")] = ""
    application: Annotated[str, says("the workload's name")] = ""
    method: Annotated[str, says("method of the selection; empty if the document does not say")] = ""
    parameters: Annotated[Parameters, says("parameters of the selection")] = {}
    silicon_devices: Annotated[list[str], says("GPUs whose cycles are the truth; empty: not known")] = []
    simulator: Annotated[str, says("the simulated GPU; empty if the document does not say")] = ""
    applications: Annotated[int, says("1, or how many a row of means rests on", "applications")] = 1
    synthetic: Annotated[bool, says("no silicon produced the cycles of silicon")] = False
    means: Annotated[bool, says("the row holds the means of its suite")] = False
