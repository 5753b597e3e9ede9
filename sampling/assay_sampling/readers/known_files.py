"""What a file is that is no recording, and which verbs read it: the one place that all refusals ask.

A kind is told by its first bytes, never by its name. What is not sure is unknown: readers then say what they
miss.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from assay_sampling.errors import InputError
from assay_sampling.files.reading import read_head
from assay_sampling.simulators.accel_sim.output import looks_like_output
from assay_sampling.simulators.accel_sim.visualizer import looks_like_intervals

WEIGHTS_MAGIC = "# assay-weights"


@dataclass(frozen=True)
class FileKind:
    """A kind of file: ``what`` it is, and the commands that read it (``readers``), for people."""

    code: str
    what: str
    readers: str

    @property
    def explained(self) -> str:
        """As the cause of a refusal."""
        return f"it is {self.what}, which {self.readers}"


RECORDING = FileKind("recording", "a recording", "'assay inspect FILE' and 'assay select METHOD FILE' read")
SIMULATOR_OUTPUT = FileKind(
    "simulator_output",
    "the standard output of Accel-Sim",
    "'assay project FILE' and 'assay import accel-sim FILE --selection SELECTION' read",
)
INTERVALS = FileKind(
    "intervals",
    "an interval log of Accel-Sim",
    "'assay project OUTPUT --intervals FILE' and 'assay import accel-sim OUTPUT --intervals FILE' read",
)
LIST = FileKind(
    "kernels_list",
    "a list of launches for Accel-Sim (kernelslist.g)",
    "'assay export SELECTION --to accel-sim --traces FILE', 'assay reuse FILE' and 'assay classify LOG "
    "--launches FILE' read",
)
TRACE = FileKind("trace", "a trace of a launch", "'assay reuse FILE...' reads")
WEIGHTS = FileKind(
    "weights",
    "a weights file",
    "'assay evaluate FILE RECORDING', 'assay export FILE' and 'assay import accel-sim LOG --selection FILE' "
    "read",
)
SELECTION = FileKind(
    "selection",
    "a selection",
    "'assay evaluate FILE RECORDING', 'assay export FILE --to accel-sim' and 'assay pka-table row FILE LOG' "
    "read",
)
SELECTION_CSV = FileKind(
    "selection_csv",
    "a selection as CSV",
    "job lists read; verbs read the JSON that 'assay select METHOD FILE -o selection.json' writes",
)
PKA_ROWS = FileKind("pka_rows", "rows of PKA's table", "'assay pka-table suites FILE...' reads")
SIMULATION = FileKind(
    "simulation",
    "simulated launches that were joined to a selection",
    "scripts read ('assay docs handover')",
)
HAND_OVER = FileKind("handover", "what assay export printed", "scripts read ('assay docs handover')")
EVALUATION = FileKind(
    "evaluation", "the scores of a selection", "scripts read ('assay docs evaluation-format')"
)
REPORT = FileKind(
    "report",
    "the report of a campaign",
    "'assay report ID' shows, and scripts read ('assay docs report-format')",
)
SCHEMA = FileKind("schema", "a JSON schema", "editors read next to the file that it describes")
SERIES = FileKind("series", "a CSV of a launch's samples", "'assay project FILE' reads")
SCALING_TABLE = FileKind(
    "scaling_table", "a table of a workload at several sizes", "'assay scale-model predict FILE' reads"
)
LABELS = FileKind("labels", "the group of every launch", "scripts read; 'assay classify' writes it")
STATS = FileKind(
    "tracer_statistics",
    "the tracer's list of all launches (stats.csv)",
    "nothing reads here: name its folder with 'assay export SELECTION --to accel-sim --traces DIR'",
)
CAMPAIGN = FileKind(
    "campaign", "a campaign file", "'assay plan FILE', 'assay run FILE' and 'assay lab submit FILE' read"
)
WORKLOAD = FileKind(
    "workload",
    "a workload of a virtual GPU",
    "a campaign file names as a command, for 'assay run CAMPAIGN --virtual V100'",
)

# By keys of the document itself; the first of which all are there.
_DOCUMENTS = (
    ({"simulation_version"}, SIMULATION),
    ({"method", "groups", "profile"}, SELECTION),
    ({"selected_on", "evaluated_on"}, EVALUATION),
    ({"target", "selection", "links"}, HAND_OVER),
    ({"rows", "selection", "simulations"}, PKA_ROWS),
    ({"format_version", "campaign"}, REPORT),
    ({"$schema"}, SCHEMA),
)
# By columns of the first line.
_TABLES = (
    ({"cycles", "instructions", "ctas"}, SERIES),
    ({"workload", "size", "ipc"}, SCALING_TABLE),
    ({"group", "group_launches", "sim_id"}, SELECTION_CSV),
    ({"process", "launch", "group", "origin"}, LABELS),
    ({"kernel id", "kernel mangled name"}, STATS),
)
_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"(\s*:)?|[{}\[\]]', re.DOTALL)
_LIST_LINE = re.compile(rb"(?:kernel-[^\s,]*\.trace(?:g(?:\.xz)?|z)|MemcpyHtoD,[^\n]*)\s*(?:\n|$)")


def known_file(head: bytes) -> FileKind | None:
    """The kind of a file that begins with ``head`` (decompressed) and is no recording; None if unknown.

    A simulator's standard output is one of these kinds, although it is a recording, too.
    """
    if head.startswith(WEIGHTS_MAGIC.encode()):
        return WEIGHTS
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"{"):
        return _document(text)
    if b'"Kernel Name"' in head or b"\0" in head:
        return None
    if looks_like_intervals(head):
        return INTERVALS
    if looks_like_output(head):
        return SIMULATOR_OUTPUT
    return _text_file(text)


def _text_file(text: bytes) -> FileKind | None:
    if _LIST_LINE.match(text):
        return LIST
    if text.startswith(b"-kernel name = "):
        return TRACE
    if re.search(rb"^campaign *:", text, re.MULTILINE) and re.search(rb"^workloads *:", text, re.MULTILINE):
        return CAMPAIGN
    if re.search(rb"^workload *=", text, re.MULTILINE) and b"[kernels." in text:
        return WORKLOAD
    columns = {name.strip() for name in text.split(b"\n", 1)[0].decode(errors="replace").split(",")}
    return next((kind for names, kind in _TABLES if names <= columns), None)


def _document(head: bytes) -> FileKind | None:
    keys: set[str] = set()
    for key in _own_keys(head.decode(errors="replace")):
        keys.add(key)
        if key == "traceEvents":
            return None
    return next((kind for needed, kind in _DOCUMENTS if needed <= keys), None)


def _own_keys(text: str) -> Iterator[str]:
    """The keys of a JSON document itself, as far as its beginning shows them."""
    depth = 0
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark in "{[":
            depth += 1
        elif mark in "}]":
            depth -= 1
        elif depth == 1 and token[2]:
            yield token[1]


def known_file_at(path: Path) -> FileKind | None:
    """:func:`known_file` of a file; None where it cannot be read."""
    try:
        return known_file(read_head(path)) if path.is_file() else None
    except (InputError, OSError, ValueError):
        return None
