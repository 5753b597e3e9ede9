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
        "logout": "Withdraw and forget the login to a server.",
        "health": "Check server health.",
        "submit": "Hand a campaign file to a server.",
        "status": "Show all campaigns of a server, or one with its runs.",
        "queue": "Show why runs wait, who is ahead, and until when.",
        "pause": "Hold a campaign, a workload or a run.",
        "resume": "Let a paused campaign, workload or run go on.",
        "cancel": "Cancel what has not finished of a campaign.",
        "retry": "Re-queue failed and cancelled runs.",
        "fetch": "Get a campaign's report and published records as files.",
        "campaigns": "Delete, archive, export and import campaigns that have ended.",
        "agents": "List agents and what each GPU is running.",
        "gpus": "Show all GPUs, what they are and what they run.",
        "slurm": "Submit agents as jobs of a Slurm cluster.",
    },
)
ADMIN = Group(
    "Admin",
    "admin",
    {
        "token": "Make a join token.",
        "identities": "Show who may connect to a server, and until when.",
        "revoke": "Withdraw an identity, a key or a join token.",
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
            "demo": "Show the whole way on virtual GPUs, in under two minutes.",
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
            "init": "Write a commented campaign file, valid as it stands.",
            "plan": "Check a campaign file and predict its hours and bytes.",
            "run": "Run a campaign, or measure one program at both levels, inside this process.",
            "report": "Show or write the report of a campaign.",
            "metrics": "Print the ncu and nsys command lines for a method.",
            "import": "Take recordings into a store, read other tools' tables, or join simulated launches.",
        },
    ),
    Group(
        "Select and judge",
        "judge",
        {
            "inspect": "Show what recordings hold.",
            "select": "Select the launches that stand for a workload.",
            "compare": "Compare selection methods on a workload.",
            "classify": "Give every launch of a workload a group.",
            "evaluate": "Score a saved selection on a recording.",
            "explain": "Say why: of a launch, a run, or a code.",
        },
    ),
    Group(
        "Simulate",
        "simulating",
        {
            "export": "Hand a selection to a simulator, a tracer or a viewer.",
            "simulate": "Simulate the selected launches on designs of a GPU, and compare these.",
            "project": "Say how much of a launch to simulate; project the rest.",
            "pka-table": "Score selection with projection, as PKA's Table 4 does.",
            "scale-model": "Predict a large GPU's IPC from two small ones.",
            "cold-start": "Compare warm caches with cold ones, launch by launch.",
            "reuse": "Measure what each launch touches that the next touches again.",
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
