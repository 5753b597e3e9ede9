"""Draws what was submitted to Slurm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from assay_client.cli.reporters.text import counted
from assay_sampling.visible import visible

if TYPE_CHECKING:
    from assay_client.slurm.submission import SubmittedAgents


def render_submitted(made: SubmittedAgents, console: Console) -> None:
    """Draw the job and what comes next."""
    where = f" on {made.cluster}" if made.cluster else ""
    agents = counted(len(made.jobs), "agent", "agents")
    console.print(
        f"Slurm job {made.job_id}{where}: {agents}, state in {visible(made.state_root)}", soft_wrap=True
    )
    console.print(f"see them:  squeue -j {made.job_id}; assay lab agents", soft_wrap=True)
    console.print(f"stop them: scancel {made.job_id}", soft_wrap=True)
