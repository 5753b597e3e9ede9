"""The folder in which a command runs, and checks that both are still those that the policy allowed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from assay_agent.execution.errors import ProfilerError
from assay_agent.execution.pinned import JudgedCommand, entered_folder, first_fault, pins_of
from assay_core.records.work import CommandSource, Work
from assay_sampling.running.failures import FailureClass


def working_folder(command: CommandSource, job: Path) -> Path:
    """The folder in which the command runs, ``job`` by default. Raises ProfilerError if the box lacks it."""
    directory = Path(command.working_directory or job)
    if not (directory.is_absolute() and directory.is_dir()):
        raise ProfilerError(
            FailureClass.INPUT_UNREADABLE,
            str(directory),
            "it is not a folder on this box, and the command must run there",
            "put the workload there, or correct the campaign file",
        )
    return directory


@contextlib.contextmanager
def judged_folder(work: Work, directory: Path) -> Iterator[Path]:
    """The working directory; if a policy judged it, exactly the folder that was judged."""
    command = work.command
    if not isinstance(command, JudgedCommand) or not command.working_directory:
        yield directory
        return
    with contextlib.ExitStack() as stack:
        try:
            entered = stack.enter_context(entered_folder(directory))
        except OSError as error:
            raise _not_judged(work, f"cannot be entered: {str(directory)!r}: {error.strerror}") from error
        yield entered


def require_judged(work: Work, when: str) -> None:
    """Raises ProfilerError if the command is no longer the one that the policy allowed."""
    assert work.command is not None
    fault = first_fault(pins_of(work.command))
    if fault:
        raise _not_judged(work, f"{when}: {fault}")


def _not_judged(work: Work, why: str) -> ProfilerError:
    return ProfilerError(
        FailureClass.REFUSED_BY_POLICY,
        str(work.key),
        f"what the policy allowed the command to run {why}",
        "find out who changes it, and submit the campaign again",
    )
