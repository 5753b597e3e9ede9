"""Typed errors of the whole product: each names the thing, the cause and the remedy.

Library code raises these and never exits or prints; the command line catches :class:`AssayError` once
and turns ``exit_code`` into the exit status of the process (table in ``docs/exit-codes.md``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

from assay_sampling.installation import install_command


class AssayError(Exception):
    """Something a person can act on.

    Args:
        subject: the thing that failed (a file, a run, a server address).
        cause: what is wrong with it, in one sentence without a final full stop.
        remedy: what to do about it, in one sentence without a final full stop.

    ``code`` names the kind of error: programs decide by its class or code and the class's parameters, never
    by its words.
    """

    exit_code = 1
    code: str = "failed"
    # Attributes that to_dict gives besides the texts.
    parameters: ClassVar[tuple[str, ...]] = ()

    def __init__(self, subject: str, cause: str, remedy: str = "") -> None:
        self.subject = subject
        self.cause = cause
        self.remedy = remedy
        super().__init__(str(self))

    def __str__(self) -> str:
        return sentence_of(self.subject, self.explained, self.remedy)

    @property
    def explained(self) -> str:
        """The cause with its parameters, for places that show only this text."""
        return self.cause

    @property
    def text(self) -> str:
        """The sentence for people who see the parameters elsewhere."""
        return sentence_of(self.subject, self.cause, self.remedy)

    def to_dict(self) -> dict[str, Any]:
        """As JSON: ``code``, ``subject``, ``cause``, ``remedy``, and the parameters by their names."""
        values = {name: getattr(self, name) for name in self.parameters}
        return {
            "code": self.code, "subject": self.subject, "cause": self.cause, "remedy": self.remedy,
            **{name: list(v) if isinstance(v, tuple) else v for name, v in values.items()},
        }  # fmt: skip

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process pools: pickle must not rebuild them from the one formatted string.
        return (_rebuild, (type(self), dict(self.__dict__)))


def sentence_of(subject: str, cause: str, remedy: str) -> str:
    """``subject: cause; remedy``, without an empty remedy."""
    text = f"{subject}: {cause}"
    return f"{text}; {remedy}" if remedy else text


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
    code = "input"
    parameters = ("path", "line", "field")

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


class CutOffError(InputError):
    """A compressed file ends before its end; what was read from it before is right."""

    code = "cut_off"


class NoLaunchesError(InputError):
    """A recording is complete but holds no launches."""

    code = "no_launches"


class LaunchTableError(AssayError):
    """A batch does not satisfy the launch table's schema or its invariants."""

    exit_code = 3
    code = "launch_table"


class CounterUnavailableError(AssayError):
    """A counter that the caller needs was not measured for every launch."""

    exit_code = 3
    code = "counter_unavailable"


class ParameterError(AssayError):
    """A method was given a parameter that it does not have, or a value outside its range."""

    exit_code = 2
    code = "parameter"


class CampaignError(AssayError):
    """A campaign file or a request about a campaign is not valid."""

    exit_code = 4
    code = "campaign"


class ServerUnreachableError(AssayError):
    """No server answered at the address."""

    exit_code = 5
    code = "server_unreachable"


class RunFailedError(AssayError):
    """At least one run of a campaign, or one simulated launch, failed for good."""

    exit_code = 6
    code = "run_failed"


RefusalCode = Literal["refused", "no_counters"]


class RefusedError(AssayError):
    """The numbers asked for would be wrong or misleading, so they are not computed.

    ``code`` is "no_counters" where a method that needs counters was given launches without any.
    """

    exit_code = 7
    code = "refused"

    def __init__(
        self, subject: str, cause: str, remedy: str = "", *, code: RefusalCode | None = None
    ) -> None:
        if code is not None:
            self.code = code
        super().__init__(subject, cause, remedy)


class DuplicateIdentityError(RefusedError):
    """Two running agents have the same identity: their state folders are copies of each other."""

    code = "duplicate_identity"


class MisalignedError(RefusedError):
    """Two recordings of one workload do not hold the same launches.

    ``differences`` lists the first launches that differ, one human-readable line each. ``spelling`` says
    that they differ by the spelling of their kernel names alone, which no other unit would mend.
    """

    code = "misaligned"
    parameters = ("differences",)
    differences: tuple[str, ...] = ()
    spelling: bool = False

    def __init__(
        self,
        subject: str,
        cause: str,
        remedy: str,
        differences: tuple[str, ...] = (),
        *,
        spelling: bool = False,
    ) -> None:
        self.differences = differences
        self.spelling = spelling
        super().__init__(subject, cause, remedy)

    @property
    def explained(self) -> str:
        """The cause with the first differences."""
        shown = f"; first differences: {' | '.join(self.differences)}" if self.differences else ""
        return self.cause + shown


JoinReason = Literal["two_kinds_of_gpu", "same_content", "two_workloads", "overlapping_launches"]


class NotJoinableError(RefusedError):
    """Recordings given together are not one workload on one kind of GPU; ``reason`` is the first found."""

    code = "not_joinable"
    parameters = ("reason",)

    def __init__(self, reason: JoinReason, subject: str, cause: str, remedy: str) -> None:
        self.reason = reason
        super().__init__(subject, cause, remedy)


class StorageError(AssayError):
    """A disk refused a write, or its data are damaged; nothing acknowledged was lost."""

    exit_code = 8
    code = "storage"


class MissingExtraError(AssayError):
    """Part of the product needs packages that are not installed.

    Args:
        program: the part of the product.
        module: the module that is missing.
        extra: the extra of the distribution that brings it.
        instead: what else helps.
    """

    exit_code = 9
    code = "missing_extra"

    def __init__(self, program: str, module: str, extra: str, instead: str = "") -> None:
        super().__init__(
            program,
            f"the Python module {module!r} is not installed",
            f"install it with: {install_command(extra)}{', or ' if instead else ''}{instead}",
        )


class MethodFailedError(AssayError):
    """A selection method failed, or returned what cannot be a selection: a bug of the method."""

    exit_code = 7
    code = "method_failed"


class NotIdentifiedError(AssayError):
    """The server cannot tell who is calling: there is no certificate, or it is not valid any more."""

    exit_code = 11
    code = "not_identified"


class NotPermittedError(AssayError):
    """The server knows who is calling, and the caller may not do this."""

    exit_code = 11
    code = "not_permitted"


class NotReadyError(AssayError):
    """Something that is needed on this machine is missing."""

    exit_code = 10
    code = "not_ready"
