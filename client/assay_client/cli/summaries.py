"""What the help page says of each verb, so that it is printed without importing the verbs.

It is the first sentence of the verb's own help; a test compares the two.
"""

from __future__ import annotations

SUMMARIES: dict[str, str] = {
    "doctor": "List what this machine lacks, each with a remedy.",
    "init": "Write a commented campaign file, valid as it stands.",
    "plan": "Check a campaign file and predict its hours and bytes.",
    "metrics": "Print the ncu and nsys command lines for a method.",
    "samples": "Write a synthetic sample of recordings and traces to try the commands on.",
    "inspect": "Show what recordings hold.",
    "select": "Select the launches that stand for a workload.",
    "compare": "Compare selection methods on a workload.",
    "classify": "Give every launch of a workload a group.",
    "evaluate": "Score a saved selection on a recording.",
    "project": "Say how much of a launch to simulate; project the rest.",
    "export": "Hand a selection to a simulator, a tracer or a viewer.",
    "simulate": "Simulate the selected launches on designs of a GPU, and compare these.",
    "pka-table": "Score selection with projection, as PKA's Table 4 does.",
    "scale-model": "Predict a large GPU's IPC from two small ones.",
    "cold-start": "Compare warm caches with cold ones, launch by launch.",
    "reuse": "Measure what each launch touches that the next touches again.",
    "import": "Take recordings into a store, read other tools' tables, or join simulated launches.",
    "run": "Run a campaign, or measure one program at both levels, inside this process.",
    "submit": "Hand a campaign file to a server.",
    "status": "Show all campaigns of a server, or one with its runs.",
    "watch": "Follow a campaign until it has ended.",
    "pause": "Hold a campaign, a workload or a run.",
    "resume": "Let a paused campaign, workload or run go on.",
    "cancel": "Cancel what has not finished of a campaign.",
    "retry": "Let failed and cancelled runs wait again.",
    "agents": "Show who is there, and what each slot runs.",
    "gpus": "Show all GPUs, what they are and what they run.",
    "queue": "Show why runs wait, who is ahead, and until when.",
    "health": "Ask the server whether it does its work.",
    "runs": "Look at single runs of campaigns.",
    "explain": "Say why: of a launch, a run, or a code.",
    "report": "Show or write the report of a campaign.",
    "fetch": "Get a campaign's report and published records as files.",
    "campaigns": "Delete, archive, export and import campaigns that have ended.",
    "role": "Give a person another role.",
    "budget": "Show people's budgets of GPU hours, or change one.",
    "audit": "Show who changed what on a server, newest first; for admins.",
    "demo": "Show the whole way on virtual GPUs, in under two minutes.",
    "login": "Log in to a server, or a browser to its live page.",
    "logout": "Withdraw and forget the login to a server.",
    "token": "Make a join token.",
    "identities": "Show who may connect to a server, and until when.",
    "revoke": "Withdraw an identity, a key or a join token.",
    "slurm": "Submit agents as jobs of a Slurm cluster.",
    "docs": "Show a page of the documentation, or list all.",
    "help": "Show the help of a verb, or list all verbs.",
}

# The headings of the help page, by what somebody wants to do, and the verbs below each in order.
GROUPS: dict[str, tuple[str, ...]] = {
    "Start here": ("demo", "samples", "doctor", "docs", "help"),
    "Measure": ("init", "plan", "run", "metrics", "import"),
    "Select and judge": ("inspect", "select", "compare", "classify", "evaluate", "explain"),
    "Simulate": ("export", "simulate", "project", "pka-table", "scale-model", "cold-start", "reuse"),
    "Lab": (
        "login", "logout", "submit", "status", "watch", "queue", "pause", "resume", "cancel", "retry", "runs",
        "report", "fetch", "campaigns", "agents", "gpus", "slurm",
    ),
    "Admin": ("health", "token", "identities", "revoke", "role", "budget", "audit"),
}  # fmt: skip
