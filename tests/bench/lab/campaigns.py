"""Campaigns of any number of runs for one kind of simulated GPU."""

from __future__ import annotations

from collections.abc import Iterator

_MOST_REPEATS = 1000

KIND = "Simulated A100"
WATCHED_KIND = "Simulated B200"
SUDDEN_KIND = "Simulated L40"
OTHER_KIND = "Simulated H100"  # nobody asks for it


def campaign_of(name: str, runs: int, kind: str = KIND) -> str:
    """A campaign file with exactly ``runs`` runs, each a light recording of a command."""
    repeats = next(n for n in range(min(runs, _MOST_REPEATS), 0, -1) if runs % n == 0)
    workloads = "".join(
        f"  - name: workload-{number}\n    command: [train, '{number}']\n"
        for number in range(runs // repeats)
    )
    head = f"campaign: {name}\nsynthetic: true\ngpus: [{kind}]\ndetailed: none\nrepeats: {repeats}\n"
    return f"{head}workloads:\n{workloads}"


def shared_out(runs: int, campaigns: int) -> Iterator[tuple[str, int]]:
    """Names and sizes of ``campaigns`` campaigns with ``runs`` runs together."""
    for number in range(campaigns):
        yield f"lab-{number:04d}", runs // campaigns + (number < runs % campaigns)
