"""Runs of a campaign, and what each workload's numbers on each GPU were measured with."""

from __future__ import annotations

from typing import Annotated

from assay_core.records.failure import Failure
from assay_report.model.common import FlagEntry
from assay_sampling.documents.base import Part, says
from assay_sampling.documents.common import ConditionEntry


class RunEntry(Part):
    """A run with data."""

    run_id: Annotated[str, says("its name")]
    workload: Annotated[str, says("workload")]
    device: Annotated[str, says("kind of GPU")]
    level: Annotated[str, says("`detailed`, `light` or `bare`")]
    condition: Annotated[ConditionEntry, says("condition that it was planned under")]
    repeat: Annotated[int, says("0-based among runs that differ in nothing else", "ordinal")] = 0
    under_mps: Annotated[bool, says("made under an MPS daemon")] = False
    launches: Annotated[int, says("launches in its records", "launches")] = 0
    content_hash: Annotated[str, says("hash of its records")] = ""
    flags: Annotated[list[FlagEntry], says("its flags")] = []
    synthetic: Annotated[bool, says("no silicon produced it")] = False


class FailureEntry(Part):
    """A classified failure."""

    failure_class: Annotated[str, says("its class ([failures.md](failures.md))")]
    subject: Annotated[str, says("what failed")]
    cause: Annotated[str, says("what is wrong with it")]
    remedy: Annotated[str, says("what to do about it")] = ""

    @classmethod
    def of(cls, failure: Failure) -> FailureEntry:
        return cls(**{name: getattr(failure, name) for name in cls.model_fields})


class FailedRunEntry(Part):
    """A run without data."""

    run_id: Annotated[str, says("its name")]
    workload: Annotated[str, says("workload")] = ""
    device: Annotated[str, says("kind of GPU")] = ""
    level: Annotated[str, says("`detailed`, `light` or `bare`")] = ""
    condition: Annotated[ConditionEntry | None, says("condition that it was planned under")] = None
    repeat: Annotated[int, says("0-based among runs that differ in nothing else", "ordinal")] = 0
    reason: Annotated[str, says("why it has no data")]
    failure: Annotated[FailureEntry | None, says("its failure, as values; `null` if it was cancelled")] = None


class ToolEntry(Part):
    """A release of a tool that measured."""

    name: Annotated[str, says("its name")]
    version: Annotated[str, says("its release; empty if unknown")]
    levels: Annotated[list[str], says("the levels that it measured")]


class LibraryEntry(Part):
    """A library of CUDA or of a framework that the workload loaded; those of profilers are left out."""

    name: Annotated[str, says("its name")]
    versions: Annotated[list[str], says("its versions")]


class Days(Part):
    """Days of measuring, as ISO dates in UTC."""

    first: Annotated[str, says("the first day")]
    last: Annotated[str, says("the last day")]


class ProvenanceEntry(Part):
    """What a workload's numbers on a kind of GPU were measured with, from all runs that have data."""

    workload: Annotated[str, says("workload")]
    device: Annotated[str, says("kind of GPU")]
    synthetic: Annotated[bool, says("no silicon produced the data")]
    gpus: Annotated[list[str], says("names of the GPUs, as the driver gives them")]
    drivers: Annotated[list[str], says("versions of NVIDIA's driver")]
    tools: Annotated[list[ToolEntry], says("the tools that measured")]
    libraries: Annotated[list[LibraryEntry], says("the libraries that the workload loaded")]
    library_notes: Annotated[
        list[str],
        says("why libraries are missing: a virtual GPU, a recording, a runtime linked statically"),
    ]
    bundles: Annotated[list[str], says("SHA-256 of the submitter's files that ran; empty without any")] = []
    programs: Annotated[
        list[str], says("SHA-256 of the program that ran, several if it differed; empty where not known")
    ] = []
    compile_caches: Annotated[
        list[str], says("hashes of the compiled code that runs began with; empty where they began with none")
    ] = []
    measured_on: Annotated[
        Days | None, says("when live runs were measured; `null` for recordings and virtual GPUs")
    ]
    runs: Annotated[list[str], says("its runs")]
    flags: Annotated[list[FlagEntry], says("differences between them")] = []
