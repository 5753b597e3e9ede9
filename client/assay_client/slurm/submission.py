"""Handing a job script to sbatch.

The script goes through standard input, so no file is left behind. What the environment could change in it
(SBATCH_*) is taken away, except for defaults of a site that the script does not set.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from typing import Annotated

from assay_core.connecting.token_option import TOKEN_VARIABLE
from assay_sampling.documents.base import Part, says
from assay_sampling.errors import NotReadyError, RefusedError, ServerUnreachableError

_SUBMIT_SECONDS = 120.0
# Defaults of a person or a site that a script may leave open, by the option that overrides each.
_DEFAULTS = {
    "SBATCH_ACCOUNT": "account",
    "SBATCH_PARTITION": "partition",
    "SBATCH_QOS": "qos",
    "SBATCH_RESERVATION": "reservation",
    "SBATCH_CONSTRAINT": "constraint",
}
# Of ours, only what is meant for agents: the client's own server may be a socket of the login node.
_FOR_AGENTS = frozenset({"ASSAY_TRACER_CACHE"})
# A node's own; Slurm sets them for jobs with GPUs.
_OF_A_NODE = frozenset({"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "GPU_DEVICE_ORDINAL", "SLURM_JOB_GPUS"})


class SubmittedAgents(Part):
    """What ``assay lab slurm sbatch --json`` prints."""

    job_id: Annotated[
        int | None, says("the job, or the job array; `null`: it was not submitted (`--dry-run`)")
    ]
    cluster: Annotated[str, says("its cluster, where sbatch names one; else empty")]
    jobs: Annotated[list[str], says("one for each agent, as squeue and scancel name them")]
    state_root: Annotated[str, says("the folder that holds the state folder of each job")]
    script: Annotated[str, says("the job script")]
    warnings: Annotated[list[str], says("what may keep the agents from working")]


def submit(script: str, directives: Mapping[str, str], *, with_token: bool) -> tuple[int, str]:
    """Submit a job script; returns the job's number and its cluster ("" if sbatch names none).

    ``directives`` are those of the script that defaults in the environment must not override. Raises
    NotReadyError without sbatch, RefusedError with all that Slurm said. ``with_token``: the job gets the
    join token of this environment, in its own.
    """
    program = shutil.which("sbatch")
    if program is None:
        raise NotReadyError(
            "sbatch",
            "it is not in the PATH",
            "run this on a login node of the cluster; --dry-run prints the script",
        )
    try:
        completed = subprocess.run(
            [program, "--parsable"],
            input=script.encode("utf-8", "surrogateescape"),
            env=_environment(directives, with_token),
            capture_output=True,
            timeout=_SUBMIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ServerUnreachableError(
            "sbatch",
            f"it did not answer within {_SUBMIT_SECONDS:.0f} s",
            "see with squeue whether the job is there",
        ) from None
    except OSError as error:
        raise NotReadyError(program, f"it cannot be started ({error.strerror})", "look at it") from error
    error_text = completed.stderr.decode(errors="replace").strip()
    if completed.returncode != 0:
        cause = error_text or f"sbatch ended with {completed.returncode}"
        raise RefusedError("Slurm", cause, "change the options; --dry-run prints the script")
    answer = completed.stdout.decode(errors="replace").strip()
    match = re.fullmatch(r"([0-9]+)(?:;(\S+))?", answer.splitlines()[-1] if answer else "")
    if match is None:
        raise RefusedError(
            "Slurm",
            f"sbatch printed {answer!r} instead of a job's number",
            "see with squeue whether the job is there",
        )
    return int(match[1]), match[2] or ""


def job_names(job_id: int, agents: int) -> list[str]:
    """The jobs of an array of agents, as Slurm's programs name them."""
    return [f"{job_id}_{task}" for task in range(agents)] if agents > 1 else [str(job_id)]


def _environment(directives: Mapping[str, str], with_token: bool) -> dict[str, str]:
    """The environment for sbatch and, because it passes it on, for the job."""
    tokens = {TOKEN_VARIABLE} if with_token else set()

    def stays(name: str) -> bool:
        if name.startswith("SBATCH_"):
            return name in _DEFAULTS and _DEFAULTS[name] not in directives
        if name.startswith("ASSAY_"):
            return name in _FOR_AGENTS | tokens or name.startswith("ASSAY_AGENT_")
        return name not in _OF_A_NODE

    return {name: value for name, value in os.environ.items() if stays(name)}
