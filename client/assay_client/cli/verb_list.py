"""The list of all verbs: their names and what the help pages say of each, by who uses them.

It is a table, so that help and completion import no verb. What is said of a verb is the first sentence of its
own help; a test compares the two.
"""

from __future__ import annotations

import keyword
from typing import NamedTuple

_VERBS = "assay_client.cli.verbs"


class Group(NamedTuple):
    """Verbs of one user.

    Attributes:
        heading: Above them on the help page.
        folder: Of their modules, below ``assay_client.cli.verbs``.
        verbs: What each does, by name, in the order of the help page.
    """

    heading: str
    folder: str
    verbs: dict[str, str]

    def modules(self) -> dict[str, str]:
        """The module of each verb, by name."""
        return {verb: f"{_VERBS}.{self.folder}.{_module(verb)}" for verb in self.verbs}


LAB = Group(
    "Lab",
    "lab",
    {
        "login": "Log in to a server, or a browser to its live page.",
        "logout": "Log out of a server: revoke and delete the certificate.",
        "health": "Check server health.",
        "submit": "Submit a campaign file to a server.",
        "status": "Show all campaigns of a server, or one with its runs.",
        "queue": "Show why runs wait, who is ahead, and for how long.",
        "pause": "Pause a campaign, a workload or a run.",
        "resume": "Resume a paused campaign, workload or run.",
        "cancel": "Cancel the unfinished runs of a campaign.",
        "retry": "Re-queue failed and cancelled runs.",
        "fetch": "Download a campaign's report and published records.",
        "campaigns": "Delete, archive, export and import campaigns that have ended.",
        "agents": "List agents and what each GPU is running.",
        "gpus": "List GPUs and what each is running.",
        "slurm": "Submit agents as jobs of a Slurm cluster.",
    },
)
ADMIN = Group(
    "Admin",
    "admin",
    {
        "token": "Make a join token.",
        "identities": "Show who may connect to a server, and until when.",
        "revoke": "Revoke an identity, a key or a join token.",
        "role": "Give a person another role.",
        "budget": "Show people's budgets of GPU hours, or change one.",
        "audit": "Show who changed what on a server, newest first; for admins.",
    },
)
ONE_BOX = (
    Group(
        "Start here",
        "start",
        {
            "demo": "Run everything once on virtual GPUs, in under two minutes.",
            "samples": "Write a synthetic sample of recordings and traces to try the commands on.",
            "doctor": "List what this machine lacks, each with a remedy.",
            "docs": "Show a page of the documentation, or list all.",
            "help": "Show the help of a verb, or list all verbs.",
        },
    ),
    Group(
        "Measure",
        "measure",
        {
            "init": "Write a commented, valid campaign file.",
            "plan": "Check a campaign file and predict its hours and bytes.",
            "run": "Run a campaign, or measure one program at both levels, inside this process.",
            "report": "Show or write the report of a campaign.",
            "metrics": "Print the ncu and nsys command lines for a method.",
            "import": "Import recordings into a store, other tools' tables, or simulated launches.",
        },
    ),
    Group(
        "Select and judge",
        "judge",
        {
            "inspect": "Show what recordings contain.",
            "select": "Select the launches that stand for a workload.",
            "compare": "Compare selection methods on a workload.",
            "classify": "Assign every launch of a workload to a group.",
            "evaluate": "Score a saved selection on a recording.",
            "explain": "Explain a selection, a launch, a run, or a code.",
        },
    ),
    Group(
        "Simulate",
        "simulating",
        {
            "export": "Export a selection to a simulator, a tracer or a viewer.",
            "simulate": "Simulate the selected launches on designs of a GPU, and compare these.",
            "project": "Say how much of a launch to simulate; project the rest.",
            "pka-table": "Score selection with projection, as PKA's Table 4 does.",
            "scale-model": "Predict a large GPU's IPC from two small ones.",
            "cold-start": "Compare warm caches with cold ones, launch by launch.",
            "reuse": "Measure how much of each launch's data the next one touches again.",
        },
    ),
)
# On the first help page the verbs of a lab and of its admin are named in one line each.
GROUPS = (
    *ONE_BOX,
    Group(LAB.heading, "", {"lab": f"Measure on the GPUs of a lab: {', '.join(LAB.verbs)}."}),
    Group(ADMIN.heading, "", {"admin": f"Manage a lab's people and boxes: {', '.join(ADMIN.verbs)}."}),
)


def _module(verb: str) -> str:
    name = verb.replace("-", "_")
    return f"{name}_" if keyword.iskeyword(name) else name


# The modules of the verbs right behind ``assay``.
MODULES: dict[str, str] = {verb: module for group in ONE_BOX for verb, module in group.modules().items()} | {
    LAB.folder: f"{_VERBS}.{LAB.folder}",
    ADMIN.folder: f"{_VERBS}.{ADMIN.folder}",
}

__all__ = ["ADMIN", "GROUPS", "LAB", "MODULES", "ONE_BOX", "Group"]
