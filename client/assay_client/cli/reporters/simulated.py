"""Draws simulated launches joined to a selection: errors, what starting cold costs, which launches count."""

from __future__ import annotations

from rich.console import Console

from assay_client.cli.reporters.tables import Table, print_facts, synthetic_mark
from assay_client.cli.reporters.text import clipped, count, counted, percent, times
from assay_sampling.documents.handover import SimulatedErrors, SimulationDocument

_SHOWN_LAUNCHES = 40


def render_simulated(document: SimulationDocument, console: Console) -> None:
    """Draw the errors in all and in active cycles, the representatives, and the logs."""
    _errors(document, console)
    _representatives(document, console)
    facts = [("simulated", f"{document.simulator.tool} {document.simulator.version}".strip())]
    facts.append(("GPU", document.simulator.gpu))
    facts.append(("weights", _weights(document.selection.weights)))
    for log in document.logs:
        what = "all launches" if log.kind == "full" else "selected launches"
        ids = f" ({log.counted_ids})" if log.counted_ids else ""
        facts.append((what, f"{log.path}: {counted(log.counted, 'launch counts', 'launches count')}{ids}"))
    facts += synthetic_mark(document.synthetic)
    facts += [("note", note.text) for note in (*document.notes, *(n for g in document.logs for n in g.notes))]
    print_facts(facts, console)


def _weights(kind: str) -> str:
    """Which weights multiplied the cycles, and where ``assay evaluate`` takes others."""
    if kind == "light_time":
        return "by light time"
    return (
        f"by {kind}, as PKA has them; assay evaluate takes light time on another GPU "
        "(--weights light_time; 'assay docs weights')"
    )


def _errors(document: SimulationDocument, console: Console) -> None:
    names = ["simulator error", "PKS error", "PKA error", "PKS of full run", "PKA of full run", "cold start",
             "PKS speedup", "PKA speedup"]  # fmt: skip
    table = Table(f"{document.workload}, simulated", ["cycles", *names], right=names)
    for name, errors in (("all", document.all_cycles), ("active", document.active_cycles)):
        table.add_row(name, *_cells(errors))
    table.print(console)


def _cells(errors: SimulatedErrors) -> list[str]:
    over = " over PKS" if errors.pka_speedup_over == "pks" else ""
    return [
        percent(errors.simulator_error_percent),
        percent(errors.pks_error_percent),
        percent(errors.pka_error_percent),
        percent(errors.pks_error_of_full_percent),
        percent(errors.pka_error_of_full_percent),
        percent(errors.cold_start_percent),
        times(errors.pks_speedup),
        f"{times(errors.pka_speedup)}{over}",
    ]


def _representatives(document: SimulationDocument, console: Console) -> None:
    right = ["launch", "weight", "cycles", "active", "in full run", "cold start", "projected"]
    names = ["kernel"]
    if any(each.operation is not None for each in document.representatives):
        names = ["operation", "kernel"]
    table = Table("representatives, ids from 1", ["launch", *names, *right[1:]], right=right, clip=names)
    for each in document.representatives[:_SHOWN_LAUNCHES]:
        table.add_row(
            str(each.sim_id),
            *([] if len(names) == 1 else [clipped(each.operation or "-", 60)]),
            each.kernel,
            f"{each.weight:,.6g}",
            *(
                count(None if value is None else round(value))
                for value in (
                    each.cycles,
                    each.active_cycles,
                    each.full_run_cycles,
                    each.cold_start_cycles,
                    each.projected_cycles,
                )
            ),
        )
    table.print(console)
    more = len(document.representatives) - _SHOWN_LAUNCHES
    if more > 0:
        console.print(f"and {more:,} more: --json or -o has them all", soft_wrap=True)
