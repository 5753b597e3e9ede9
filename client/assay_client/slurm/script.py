"""The job script of an agent. Pure: it touches neither disk nor Slurm.

Slurm keeps the script and shows it to operators, so it holds no secret. Nothing that a person wrote becomes
shell: words of the command are quoted, values of directives have few kinds of characters or are quoted as
sbatch reads them.
Source: sbatch(1), "--signal", "--output" and "filename pattern".
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from assay_core.settings.slurm_times import slurm_seconds
from assay_sampling.errors import ParameterError

# Extra options of sbatch that change neither what runs, as whom, when it is signalled, nor where it writes.
FURTHER_OPTIONS = (
    "begin", "comment", "constraint", "cpus-per-gpu", "cpus-per-task", "deadline", "dependency", "exclude",
    "gpu-freq", "gpus", "gpus-per-node", "hint", "licenses", "mail-type", "mail-user", "mem", "mem-per-cpu",
    "mem-per-gpu", "mincpus", "nice", "nodelist", "prefer", "priority", "qos", "reservation",
    "threads-per-core", "tmp", "wckey",
)  # fmt: skip
_VALUE = re.compile(r"[A-Za-z0-9_.:/=@%+\[\]()!*&|<>~,-]+")
# A run must be back before Slurm kills the job.
_MARGIN_SECONDS = 15
# Slurm may signal so much earlier than it was asked to.
_EARLY_SECONDS = 60
_LONGEST_SIGNAL_SECONDS = 65535


@dataclass(frozen=True)
class AgentJob:
    """Agents as one Slurm job, or as the tasks of a job array.

    Args:
        program: the words that start ``assay-agent`` on a node.
        state_root: absolute folder on a file system that the nodes share.
        agents: how many; more than one make an array.
        drain_seconds: how long a run may continue after Slurm's signal.
        directives: options of sbatch by name without dashes; "" for a flag.
        arguments: further words for ``assay-agent slurm-job``.
    """

    program: Sequence[str]
    state_root: Path
    agents: int = 1
    drain_seconds: int = 45
    directives: Mapping[str, str] = field(default_factory=dict)
    arguments: Sequence[str] = ()

    @property
    def signal_seconds(self) -> int:
        """How long before the time limit Slurm signals the agent."""
        return self.drain_seconds + _MARGIN_SECONDS


def job_script(job: AgentJob) -> str:
    """The script that sbatch takes; raises ParameterError for values that a script cannot hold."""
    if not 1 <= job.signal_seconds <= _LONGEST_SIGNAL_SECONDS:
        raise ParameterError("--drain", f"{job.drain_seconds} s cannot be", "give less than 18 hours")
    limit = slurm_seconds(job.directives.get("time", ""))
    if limit is not None and limit <= job.signal_seconds + _EARLY_SECONDS:
        raise ParameterError(
            "--time",
            f"{limit} s leave no time to work: Slurm announces the end {job.signal_seconds} s before it, and "
            f"may do so {_EARLY_SECONDS} s earlier",
            "give a longer one, or a shorter --drain",
        )
    log = "%A_%a" if job.agents > 1 else "%j"
    fixed = {
        "job-name": "assay-agent",
        "output": _quoted_path(job.state_root, f"slurm-{log}.log"),
        "open-mode": "append",
        "requeue": "",
        "signal": f"B:TERM@{job.signal_seconds}",
    }
    if job.agents > 1:
        fixed["array"] = f"0-{job.agents - 1}"
    extra = {name: _checked(name, value) for name, value in job.directives.items()}
    lines = [f"#SBATCH --{name}{'=' if value else ''}{value}" for name, value in {**fixed, **extra}.items()]
    words = [
        *job.program, "slurm-job", "--state-root", str(job.state_root), "--drain", f"{job.drain_seconds}s",
        *job.arguments,
    ]  # fmt: skip
    return "\n".join(
        [
            "#!/bin/bash",
            "# Written by 'assay lab slurm sbatch'. The agent replaces this shell: signals reach it once.",
            *lines,
            "umask 077",
            f"exec {' '.join(_quoted_word(word) for word in words)}",
            "",
        ]
    )


def further_options(options: Mapping[str, str]) -> dict[str, str]:
    """Extra options of sbatch by name; raises ParameterError for one not in :data:`FURTHER_OPTIONS`."""
    for name in options:
        if name not in FURTHER_OPTIONS:
            raise ParameterError(
                "--sbatch", f"{name!r} is not passed on", f"one of {', '.join(FURTHER_OPTIONS)}"
            )
    return dict(options)


def _checked(name: str, value: str) -> str:
    if value and not _VALUE.fullmatch(value):
        raise ParameterError(
            f"--{name}",
            f"{value!r} has characters that no value of sbatch needs",
            "use letters, digits and _.:/=@%+[]()!*&|<>~,-",
        )
    return value


def _quoted_path(folder: Path, pattern: str) -> str:
    """A file name pattern in double quotes, as sbatch reads them in a directive."""
    text = str(folder)
    if not text.isprintable() or "\\" in text:
        raise ParameterError(
            "--state-root",
            f"{text!r} has a character that Slurm cannot have in the name of a log",
            "name a folder without backslashes and control characters",
        )
    escaped = text.replace("%", "%%").replace('"', '\\"')
    return f'"{escaped}/{pattern}"'


def _quoted_word(word: str) -> str:
    if "\0" in word:
        raise ParameterError("argument", "it has a null character", "no command line can have one")
    return shlex.quote(word)
