"""The error of a measurement that failed for a known cause."""

from __future__ import annotations

import errno

from assay_core.records.failure import Failure, failure
from assay_sampling.errors import AssayError
from assay_sampling.running.failures import FailureClass


class ProfilerError(AssayError):
    """A measurement failed for a known cause: ``failure_class`` decides whether to try again.

    Args:
        failure_class: the class of the cause.
        subject: the thing that failed.
        cause: what is wrong with it; default: the meaning of the class.
        remedy: what to do; default: the remedy of the class.
        tool_said: the line of a tool or workload that decided the class.
    """

    exit_code = 6

    def __init__(
        self,
        failure_class: FailureClass,
        subject: str,
        cause: str = "",
        remedy: str = "",
        *,
        tool_said: str = "",
    ) -> None:
        self.failure_class = failure_class
        self.tool_said = tool_said
        super().__init__(subject, cause or failure_class.meaning, remedy or failure_class.remedy)

    @property
    def failure(self) -> Failure:
        """What to tell the server."""
        return failure(self.failure_class, self.subject, self.cause, self.remedy, tool_said=self.tool_said)


def not_started(program: str, error: OSError) -> ProfilerError:
    """The error of a program that the box did not start."""
    no_room = error.errno in (errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE)
    return ProfilerError(
        FailureClass.BOX_MEMORY if no_room else FailureClass.TOOL_UNUSABLE,
        program,
        f"it cannot be started ({error})",
    )
