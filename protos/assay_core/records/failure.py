"""A classified failure: one record from the profiler to the report."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from assay_core.records.wire import UNSENT, Record, fields_of
from assay_protos import common_pb2
from assay_sampling.errors import AssayError
from assay_sampling.running.failures import FailureClass, failure_class_named


@dataclass(frozen=True)
class Failure(Record[common_pb2.Failure], tool_said=UNSENT):
    """A classified failure: ``subject`` is what failed, ``cause`` and ``remedy`` are one sentence each.

    ``failure_class`` is the name of a FailureClass, or one that only another release knows, kept unchanged.
    ``tool_said`` is the line of tool or workload output that showed the class; "" if there was none. It is
    never sent.
    """

    failure_class: str
    subject: str
    cause: str
    remedy: str = ""
    retryable: bool = False
    tool_said: str = field(default="", repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.subject}: {self.cause} [{self.failure_class}]; {self.remedy}"

    @property
    def known_class(self) -> FailureClass:
        """The class to act on: INTERNAL for one that this release does not know."""
        return failure_class_named(self.failure_class)

    def to_dict(self) -> dict[str, Any]:
        """For documents and the server's store."""
        return {each.name: getattr(self, each.name) for each in fields_of(Failure)}

    @classmethod
    def from_proto(cls, message: common_pb2.Failure) -> Failure:
        """A failure from a message; one without a class counts as internal."""
        why = super().from_proto(message)
        return why if why.failure_class else replace(why, failure_class=FailureClass.INTERNAL.value)


def failure(
    failure_class: FailureClass,
    subject: str,
    cause: str = "",
    remedy: str = "",
    *,
    retryable: bool | None = None,
    tool_said: str = "",
) -> Failure:
    """A failure of a class; texts that are left out come from the table of classes."""
    return Failure(
        failure_class,
        subject,
        cause or failure_class.meaning,
        remedy or failure_class.remedy,
        failure_class.retryable if retryable is None else retryable,
        tool_said,
    )


def failure_of(error: AssayError, failure_class: FailureClass) -> Failure:
    """An error as a failure: its subject and cause, and its remedy if it has one."""
    return failure(failure_class, error.subject, error.explained, error.remedy)
