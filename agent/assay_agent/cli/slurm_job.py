"""``assay-agent slurm-job``: an agent that is a Slurm job, and the same agent after a requeue.

It replaces the shell of the job script (``exec``), so that each signal reaches it once: Slurm's warning
before the time limit (``--signal=B:TERM@60``) goes to the process of the script alone; at preemption and at
``scancel`` every process of the job gets a SIGTERM. A shell that passed signals on would double that one, and
a second SIGTERM means "hand back at once".
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from assay_agent.cli.join import join_lab
from assay_agent.cli.joining_in_jobs import ended_by_signals, join_patiently
from assay_agent.config import AgentSettings
from assay_agent.daemon.state import credentials_folder
from assay_agent.gpus.chosen import OF_THE_JOB, chosen_gpus
from assay_agent.jobs.slurm import SlurmJob, WhyStopped
from assay_core.connecting.token_option import TOKEN_VARIABLE, token_in_file
from assay_core.files.durable import storage_errors
from assay_core.files.private_folders import make_private_folder
from assay_core.loading import loading
from assay_core.program_log import set_up_log
from assay_core.settings.command_line import with_settings
from assay_sampling.errors import AssayError, NotReadyError

_log = logging.getLogger(__name__)

# The signal comes some seconds before the run must be back, and up to a minute earlier than asked for.
_EARLY_SECONDS = 90.0
# The job says these.
_OF_THE_JOB = {"state_dir", "name", "agent_id", "gpus"}
_OTHERS = tuple(each.field for each in AgentSettings.declared() if each.field not in _OF_THE_JOB)


@with_settings(AgentSettings, *_OTHERS)
def slurm_job(
    *,
    settings: AgentSettings,
    again: Callable[[], AgentSettings],
    state_root: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Folder for the state folders of jobs, on a shared file system."),
    ],
    join: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="The server's --join listener; needs a token once.")
    ] = "",
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help=f"Private file with the join token; without it ${TOKEN_VARIABLE}."),
    ] = None,
    requeue: Annotated[
        bool, typer.Option("--requeue", help="Have Slurm requeue the job after its time limit.")
    ] = False,
) -> None:
    """Work as a Slurm job: identity, name, state folder and GPUs are those of the job.

    Started by the job scripts of 'assay lab slurm sbatch'."""
    # First, because it takes a second, in which a signal of Slurm would end a job that has joined.
    with loading():
        from assay_agent.cli.running import run_agent  # noqa: PLC0415 - other commands do not need it

    token = os.environ.pop(TOKEN_VARIABLE, "")  # no child process needs it
    set_up_log(settings.log_level, settings.log_format)
    job = SlurmJob.of()
    # Slurm's ordinals are in this order; CUDA's own is by speed.
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    chosen_gpus((OF_THE_JOB,))  # a job without GPUs ends before it joins
    job.require_time(settings.drain_seconds)
    with storage_errors(state_root):
        make_private_folder(state_root)

    def of_the_job(base_settings: AgentSettings) -> AgentSettings:
        return base_settings.model_copy(
            update={
                "state_dir": state_root / job.folder,
                "name": job.agent_name,
                "agent_id": job.agent_id,
                "gpus": (OF_THE_JOB,),
            }
        )

    own = of_the_job(settings)
    ending = _Ending(job, settings.drain_seconds + _EARLY_SECONDS)
    if join and not _join_once(own, join, token, token_file):
        ending.look()
    else:
        run_agent(own, lambda: of_the_job(again()), ending.look, signals_reach_all=True)
    if ending.signalled:
        ending.look()
        ending.requeue(at_limit=requeue)


class _Ending:
    """Why Slurm ends the job, asked at the signal and after the drain: the signal may come first."""

    def __init__(self, job: SlurmJob, limit_seconds: float) -> None:
        self._job, self._limit_seconds = job, limit_seconds
        self._stop_reasons: list[WhyStopped] = []
        self.signalled = False

    def look(self) -> None:
        """Ask Slurm, and log what is new."""
        self.signalled = True
        try:
            stop_reason = self._job.why_stopped(self._limit_seconds)
        except AssayError as error:
            _log.warning("why the job ends is unknown: %s", error)
            return
        if stop_reason not in self._stop_reasons:
            _log.info("Slurm job %s: %s", self._job.shown, stop_reason.value)
        self._stop_reasons.append(stop_reason)

    def requeue(self, *, at_limit: bool) -> None:
        """Have the job run again if it was preempted, or is at its limit and that was asked for.

        A preempted job that ends within its grace time counts as complete, and Slurm would not run it again.
        Whether Slurm has ended it, the last answer says: while it preempts, it may tell a state in between.
        """
        again = {WhyStopped.PREEMPTED} | ({WhyStopped.LIMIT} if at_limit else set())
        if again & set(self._stop_reasons) and self._stop_reasons[-1] is not WhyStopped.ENDED:
            _log.info("Slurm job %s: asking for its requeue", self._job.shown)
            self._job.requeue()


def _join_once(settings: AgentSettings, address: str, token: str, token_file: Path | None) -> bool:
    """Join the lab unless the job's folder has a valid certificate, as after a requeue.

    Waits for a server that is away; False if the job was signalled meanwhile. Raises AssayError.
    """
    credentials = credentials_folder(settings.state_dir).read()
    if credentials is not None and not credentials.expired:
        return True
    if token_file is not None:
        token = token_in_file(token_file)
    if not token:
        raise NotReadyError(
            settings.name,
            f"it has no certificate of the lab, and no join token, by --token-file or ${TOKEN_VARIABLE}",
            "make one (assay admin token --role agent --uses NUMBER) and write it into a file of mode 0600",
        )
    with ended_by_signals() as asked_to_end:
        joined = join_patiently(lambda: join_lab(settings, address, token), asked_to_end)
    return joined and not asked_to_end.is_set()
