"""The tables of the index, docs/README.md: the pages of each section with their titles."""

from __future__ import annotations

from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
SECTIONS = {
    "start": "commands python concepts",
    "how-to": (
        "how-to/counters how-to/gpu-box how-to/record-operations how-to/cluster how-to/foreign-tables "
        "how-to/own-method how-to/simulate how-to/own-workload how-to/paper-artifact"
    ),
    "measure": (
        "../campaigns/README campaign-file scheduling bundles agent slurm operate deploy web lab-format "
        "settings doctor light-only conditions tracer virtual-gpu"
    ),
    "select": (
        "recordings reading-recordings methods/README selection-format evaluation-format "
        "projection-format handover weights-format simulator-files bbv-format figures report-format"
    ),
    "methods": (
        "methods/pks methods/two-level methods/sieve methods/stem methods/balanced methods/tbpoint "
        "methods/photon methods/baselines methods/proportional methods/target-intervals methods/designs "
        "methods/intervals methods/error-decomposition methods/weights methods/comparing "
        "methods/projection methods/scale-model methods/cold-start"
    ),
    "wrong": "failures validity notes exit-codes scale server-state security limits",
    "built": "architecture benchmarks fidelity silicon nvidia-tools stand-in-tools hardware",
}


def page_table(section: str) -> str:
    """The pages of a section, each with its title."""
    rows = ["| | |", "|---|---|"]
    for name in SECTIONS[section].split():
        title = (DOCS / f"{name}.md").read_text().partition("\n")[0].removeprefix("# ")
        shown = name.removeprefix("../").removesuffix("/README").rpartition("/")[2]
        rows.append(f"| [{shown}]({name}.md) | {title} |")
    return "\n".join(rows)
