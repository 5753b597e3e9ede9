"""Typed errors of the whole product: each names the thing, the cause and the remedy.

Library code raises these and never exits or prints; the command line catches :class:`AssayError` once
and turns ``exit_code`` into the exit status of the process (table in ``docs/exit-codes.md``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal


class AssayError(Exception):
    """Something a person can act on.

    Args:
        subject: the thing that failed (a file, a run, a server address).
        cause: what is wrong with it, in one sentence without a final full stop.
        remedy: what to do about it, in one sentence without a final full stop.
    """

    exit_code = 1

    def __init__(self, subject: str, cause: str, remedy: str = "") -> None:
        self.subject = subject
        self.cause = cause
        self.remedy = remedy
        super().__init__(str(self))

    def __str__(self) -> str:
        text = f"{self.subject}: {self.cause}"
        return f"{text}; {self.remedy}" if self.remedy else text

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process pools: pickle must not rebuild them from the one formatted string.
        return (_rebuild, (type(self), dict(self.__dict__)))


def _rebuild(kind: type[AssayError], state: dict[str, object]) -> AssayError:
    error = kind.__new__(kind)
    Exception.__init__(error)
    error.__dict__.update(state)
    return error


class InputError(AssayError):
    """A file cannot be read as what it claims to be.

    Args:
        path: the file.
        cause: what is wrong.
        remedy: what to do.
        line: 1-based line of the file, where there are lines.
        field: column, key or table the fault is in.
    """

    exit_code = 3

    def __init__(
        self,
        path: str | Path,
        cause: str,
        remedy: str = "",
        *,
        line: int | None = None,
        field: str | None = None,
    ) -> None:
        self.path = str(path)
        self.line = line
        self.field = field
        subject = self.path if line is None else f"{self.path}:{line}"
        if field is not None:
            subject = f"{subject}: field {field!r}"
        super().__init__(subject, cause, remedy)


class NoLaunchesError(InputError):
    """A recording is whole, but there is not one launch in it."""


class LaunchTableError(AssayError):
    """A batch does not satisfy the launch table's schema or its invariants."""

    exit_code = 3


class CounterUnavailableError(AssayError):
    """A counter that the caller needs was not measured, or not for every launch."""

    exit_code = 3


class ParameterError(AssayError):
    """A method was given a parameter that it does not have, or a value outside its range."""

    exit_code = 2


class CampaignError(AssayError):
    """A campaign file or a request about a campaign is not valid."""

    exit_code = 4


class ServerUnreachableError(AssayError):
    """No server answered at the address."""

    exit_code = 5


class RunFailedError(AssayError):
    """At least one run of a campaign failed for good."""

    exit_code = 6


class RefusedError(AssayError):
    """The numbers asked for would be wrong or misleading, so they are not computed."""

    exit_code = 7


class DuplicateIdentityError(RefusedError):
    """Two agents that both live have one identity: their state folders are copies of each other."""


class MisalignedError(RefusedError):
    """Two recordings of one workload do not hold the same launches.

    ``differences`` lists the first launches that differ, one human-readable line each.
    """

    def __init__(self, subject: str, cause: str, remedy: str, differences: tuple[str, ...] = ()) -> None:
        self.differences = differences
        shown = f"; first differences: {' | '.join(differences)}" if differences else ""
        super().__init__(subject, cause + shown, remedy)


JoinReason = Literal["two_kinds_of_gpu", "same_content", "two_workloads", "overlapping_launches"]


class NotJoinableError(RefusedError):
    """Recordings that were given together are not one workload on one kind of GPU; ``reason``: the first."""

    def __init__(self, reason: JoinReason, subject: str, cause: str, remedy: str) -> None:
        self.reason = reason
        super().__init__(subject, cause, remedy)


class StorageError(AssayError):
    """A disk refused a write, or what is on it is damaged; nothing acknowledged was lost."""

    exit_code = 8


class MissingExtraError(AssayError):
    """A part of the product needs packages that are not installed.

    Args:
        program: what was asked for.
        module: the module that is missing.
        extra: the extra of the distribution that brings it.
    """

    exit_code = 9

    def __init__(self, program: str, module: str, extra: str) -> None:
        super().__init__(
            program,
            f"the Python module {module!r} is not installed",
            f"install it with: pip install 'assay-gpu[{extra}]'",
        )


class NotReadyError(AssayError):
    """Something that is needed on this machine is missing."""

    exit_code = 10
