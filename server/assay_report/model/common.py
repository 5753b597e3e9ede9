"""Parts that appear in many places of a report: flags, matches, outcomes."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict

from assay_sampling.documents.base import ArrangedPart, Part, says
from assay_sampling.documents.common import ConditionEntry
from assay_sampling.errors import AssayError
from assay_sampling.launches.alignment import MatchKind

Status = Literal["ok", "refused", "failed", "not applicable"]


class FlagEntry(Part):
    """A validity flag of a run."""

    run_id: Annotated[str, says("the run that it is about")]
    name: Annotated[str, says("its name, as in [validity.md](validity.md)")]
    detail: Annotated[str, says("what was found")] = ""
    invalidates: Annotated[bool, says("whether numbers that use the run are refused")] = False


class Match(Part):
    """How far two runs hold the same launches."""

    percent: Annotated[float, says("by the `kind` that counts", "percent")]
    kind: Annotated[MatchKind, says("the kind that counts")]
    between: Annotated[str, says("what was matched: `levels`, `GPUs`, `caches`, `clocks`, `SM shares`")]
    exact: Annotated[float, says("by kernel, grid and block", "percent")]
    name_block: Annotated[float, says("by kernel and block", "percent")]
    position: Annotated[float, says("by position alone", "percent")]
    at_least: Annotated[list[str], says("the kinds whose percentage is a lower bound")] = []


class ErrorEntry(ArrangedPart):
    """The error behind a reason, as values. Some codes have further parameters."""

    model_config = ConfigDict(extra="allow")
    left_out_unless_set: ClassVar[frozenset[str]] = frozenset({"differences"})

    code: Annotated[str, says("which kind of thing went wrong")]
    subject: Annotated[str, says("what it is about")] = ""
    cause: Annotated[str, says("what is wrong with it")] = ""
    remedy: Annotated[str, says("what to do about it")] = ""
    differences: Annotated[
        list[str], says("of `misaligned`: the first launches that differ, one sentence for each")
    ] = []

    @classmethod
    def of(cls, error: AssayError) -> ErrorEntry:
        return cls.model_validate(error.to_dict())


class OverlapEntry(Part):
    """How far launches ran at the same time."""

    sum_ns: Annotated[int, says("sum of the durations", "ns")]
    span_ns: Annotated[int, says("union of the launches' intervals", "ns")]
    overlap_percent: Annotated[float, says("share of the sum that overlaps", "percent")]


class Placed(Part):
    """An entry about a workload on a kind of GPU under a condition."""

    workload: Annotated[str, says("workload")]
    device: Annotated[str, says("kind of GPU")]
    condition: Annotated[ConditionEntry, says("condition of the runs")]


class Outcome(Part):
    """An entry that may be refused: its status, and why."""

    status: Annotated[
        Status, says("`ok`, `refused` (the number would mislead), `failed` or `not applicable`")
    ] = "ok"
    reason: Annotated[str, says("why it is not `ok`")] = ""
    error: Annotated[ErrorEntry | None, says("the error behind the reason, as values")] = None


class Judged(Outcome):
    """An entry with an error that is held against the campaign's target."""

    within_target: Annotated[
        bool | None,
        says("`error_percent` is at most `verdicts.target_error_percent`; `null`: there is no error"),
    ] = None
