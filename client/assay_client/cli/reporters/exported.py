"""Draws what ``assay export`` wrote."""

from __future__ import annotations

from rich.console import Console

from assay_client.cli.reporters.tables import print_facts
from assay_client.cli.reporters.text import counted
from assay_sampling.documents.handover import HandOverDocument

_SHOWN_FILES = 12
_NEXT = {
    "accel-sim": "accel-sim.out -trace {output}/kernelslist.g -config ..., then assay import accel-sim LOG "
    "--selection {selection}",
    "accel-sim-jobs": "copy {output}/define-*.yml to util/job_launching/apps, then run_simulations.py -B "
    "WORKLOAD -T {output}/traces; hardware for plot-correlation.py -H: {output}/hardware",
    "nvbit": "trace with {output}/tracer.env, then assay export {selection} --to accel-sim --traces DIR",
    "macsim": "copy {output}/trace_file_list next to MacSim's params.in",
    "weights": "wherever a SELECTION is read: assay evaluate, export, import accel-sim",
    "perfetto": "open it at ui.perfetto.dev or chrome://tracing",
}
# Logs have the ids of the traces: these say which launches they are.
_NEXT_WITH_OTHER_IDS = {
    "accel-sim": " --traces {output}",
    "accel-sim-jobs": "; assay import accel-sim with --traces {output}/traces/*/selected/traces",
}


def render_exported(document: HandOverDocument, console: Console) -> None:
    """Draw the files, how many launches are handed over, and what to do next."""
    launches = len(document.launches)
    facts = [
        ("selection", document.selection),
        ("launches", f"{counted(launches, 'launch', 'launches')}, weights {sum(document.weights):,.6g}"),
        ("written to", document.output),
    ]
    facts += [("file", f"{each.path}: {each.about}") for each in document.files[:_SHOWN_FILES]]
    if len(document.files) > _SHOWN_FILES:
        facts.append(("files", f"and {len(document.files) - _SHOWN_FILES:,} more"))
    if document.links:
        facts.append(("links", f"{len(document.links):,} to traces"))
    facts += [("note", note.text) for note in document.notes]
    hint = _NEXT[document.target].format(output=document.output, selection=document.selection)
    if document.traced_ids:
        hint += _NEXT_WITH_OTHER_IDS[document.target].format(output=document.output)
    print_facts([*facts, ("next", hint)], console)
