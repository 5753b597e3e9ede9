"""A warning about a run's numbers: one record from the profiler to the report."""

from __future__ import annotations

from dataclasses import dataclass

from assay_core.records.wire import Record
from assay_protos import common_pb2
from assay_sampling.running.validity import FLAGS, invalidates


@dataclass(frozen=True)
class ValidityFlag(Record[common_pb2.ValidityFlag]):
    """A flag of docs/validity.md, or one that only another release knows, kept unchanged.

    ``invalidates``: no result may use the run.
    """

    name: str
    detail: str = ""
    invalidates: bool = False

    @classmethod
    def of_kind(cls, name: str, detail: str) -> ValidityFlag:
        """The flag with its effect from the registry; an unknown flag invalidates."""
        return cls(name, detail, name not in FLAGS or invalidates(name))
