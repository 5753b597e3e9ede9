"""An error as one paragraph for people, or one line of JSON for scripts."""

from __future__ import annotations

import json
from dataclasses import dataclass

from assay_sampling.errors import (
    AssayError,
    CampaignError,
    CounterUnavailableError,
    InputError,
    LaunchTableError,
    MisalignedError,
    ParameterError,
    RefusedError,
    RunFailedError,
    ServerUnreachableError,
    StorageError,
)
from assay_sampling.visible import visible


@dataclass(frozen=True)
class Failure:
    """Why a command ended: the kind of error, what it is about, the cause, the remedy, the exit code.

    ``differences``: the first launches that differ, if recordings do not hold the same ones.
    """

    kind: str
    subject: str
    cause: str
    remedy: str
    exit_code: int
    differences: tuple[str, ...] = ()

    @classmethod
    def of(cls, error: AssayError) -> Failure:
        remedy = error.remedy or _remedy_of(type(error))
        differences = error.differences if isinstance(error, MisalignedError) else ()
        return cls(type(error).__name__, error.subject, error.cause, remedy, error.exit_code, differences)


# Remedies of errors that carry none: nobody is left without a next step.
_REMEDIES: dict[type[AssayError], str] = {
    CampaignError: "correct the campaign file; 'assay docs campaign-file' shows every key",
    CounterUnavailableError: "choose other counters or features, or a GPU and tool that measure these",
    InputError: "make or export the file again; 'assay inspect FILE' says what is in it",
    LaunchTableError: "make or import the recording again; if that does not help, report it",
    ParameterError: "give another value; '--help' after the verb lists what it takes",
    RefusedError: "give other recordings or parameters; 'assay inspect FILE' says what is in one",
    RunFailedError: "see the run's log: assay explain RUN",
    ServerUnreachableError: "check that the server runs and is reachable, then try again",
    StorageError: "check the disk and its permissions; the log of the server or agent says more",
    AssayError: "try again; if it happens again, report it with this message",
}


def _remedy_of(kind: type[AssayError]) -> str:
    return next(_REMEDIES[base] for base in kind.__mro__ if base in _REMEDIES)


def render_failure(failure: Failure, *, as_json: bool) -> str:
    """``error: subject: cause; remedy`` in one paragraph, or as one line of JSON."""
    if as_json:
        error = {
            "type": failure.kind,
            "subject": failure.subject,
            "cause": failure.cause,
            "remedy": failure.remedy,
            "exit_code": failure.exit_code,
            **({"differences": list(failure.differences)} if failure.differences else {}),
        }
        return json.dumps({"error": error})
    # Each line of a cause is a separate fault.
    faults = "; ".join(line for line in failure.cause.splitlines() if line.strip())
    parts = f"{failure.subject}: {faults}"
    if failure.differences:
        parts = f"{parts}; first differences: {' | '.join(failure.differences)}"
    if failure.remedy:
        parts = f"{parts}; {failure.remedy}"
    return "error: " + " ".join(visible(parts).split())
