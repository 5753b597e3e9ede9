"""Notes: what a reader found in a file that people, and the checks after it, must know.

A note is a code of the registry below with parameters; the sentence for people is made from both. A code
stands for at most one validity flag (:mod:`assay_sampling.validity`). Whoever acts on a note looks at its
code or its flag, never at the sentence. ``docs/notes.md`` is the same table; a test keeps them equal.

Source: design, promise 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from assay_sampling.validity import invalidates

NoteValue = str | int | float | tuple[str, ...] | tuple[int, ...]


@dataclass(frozen=True)
class NoteKind:
    """A kind of note. ``meaning`` is a phrase without a full stop, Markdown allowed; ``flag`` the name of
    the validity flag that the note stands for, or None; ``sentence`` takes the parameters by name."""

    code: str
    meaning: str
    sentence: Callable[..., str]
    flag: str | None = None


@dataclass(frozen=True)
class Note:
    """What a reader wants known. Make it by :func:`make_note`, which knows the parameters of each code.

    ``parameters`` are (name, value) in the order given; notes that are equal say the same.
    """

    code: str
    parameters: tuple[tuple[str, NoteValue], ...] = ()

    @property
    def text(self) -> str:
        """The sentence for people, without a full stop."""
        return NOTES[self.code].sentence(**dict(self.parameters))

    @property
    def flag(self) -> str | None:
        """The name of the validity flag that the note stands for, or None."""
        return NOTES[self.code].flag

    @property
    def invalidates(self) -> bool:
        """Whether results refuse to rest on launches that come with the note."""
        return self.flag is not None and invalidates(self.flag)

    def to_dict(self) -> dict[str, Any]:
        """As JSON: ``code``, ``text``, ``flag``, ``invalidates``, and the parameters by their names."""
        values = {name: list(v) if isinstance(v, tuple) else v for name, v in self.parameters}
        return {
            "code": self.code, "text": self.text, "flag": self.flag, "invalidates": self.invalidates,
            **values,
        }  # fmt: skip

    def __str__(self) -> str:
        return self.text


def make_note(code: str, **parameters: NoteValue) -> Note:
    """A note of the registry; raises KeyError or TypeError for a code or parameters that it does not have."""
    made = Note(code, tuple(parameters.items()))
    made.text  # noqa: B018  # a wrong parameter must show here, not where somebody prints the note
    return made


def distinct_notes(notes: Iterable[Note]) -> tuple[Note, ...]:
    """Each note once, in the order of its first appearance."""
    return tuple(dict.fromkeys(notes))


def flags_of(notes: Iterable[Note]) -> dict[str, str]:
    """The validity flags that notes stand for, each with the sentences of its notes as detail."""
    found: dict[str, list[str]] = {}
    for note in notes:
        if note.flag is not None:
            found.setdefault(note.flag, []).append(note.text)
    return {flag: "; ".join(texts) for flag, texts in found.items()}


def count_of(number: int, one: str, more: str) -> str:
    """``1 launch``, ``2 launches``."""
    return f"{number:,} {one if number == 1 else more}"


def _launches(number: int) -> str:
    return count_of(number, "launch", "launches")


_READING = (
    NoteKind(
        "profiler_message",
        "the profiler wrote an error or a warning into the file",
        lambda message: f"the profiler says: {message}",
    ),
    NoteKind(
        "profiler_lost_events",
        "the profiler says that it dropped or lost events",
        lambda message: f"the profiler says: {message}",
        "launches_dropped",
    ),
    NoteKind(
        "profiler_doubt",
        "the profiler says that it cannot vouch for all events; it says so of many a whole trace too",
        lambda message: f"the profiler warns: {message}",
    ),
    NoteKind(
        "kernels_lost",
        "launch calls have no kernel in the file",
        lambda calls: (
            "the profiler lost kernels: "
            + (f"{calls:,} launch calls have" if calls != 1 else "1 launch call has")
            + " none in the file"
        ),
        "launches_dropped",
    ),
    NoteKind(
        "capture_cut",
        "the capture ended before the kernels of the last launch calls ran",
        lambda calls: (
            "the capture ended before the kernels of "
            f"{'its last launch call' if calls == 1 else f'its last {calls:,} launch calls'} ran"
        ),
        "capture_cut",
    ),
    NoteKind(
        "messages_left_out",
        "the profiler wrote more messages than are told",
        lambda messages: (
            f"{count_of(messages, 'more message', 'more messages')} of the profiler "
            f"{'is' if messages == 1 else 'are'} not told here: see the table DIAGNOSTIC_EVENT"
        ),
    ),
    NoteKind(
        "graphs_as_a_whole",
        "CUDA graphs were traced as a whole, so their kernels are not in the file",
        lambda graph_launches: (
            f"{count_of(graph_launches, 'graph launch was', 'graph launches were')} traced as a whole, the "
            "kernels are not in the file: profile with --cuda-graph-trace=node"
        ),
        "launches_missing",
    ),
    NoteKind(
        "fewer_than_announced",
        "the profiler announced more launches than the file holds",
        lambda announced, launches: (
            f"the profiler announced {announced:,} launches, but the file holds {launches:,}: it may be cut"
        ),
        "launches_missing",
    ),
    NoteKind(
        "lines_skipped",
        "lines that are no launches, such as output of the application, were left out",
        lambda lines, first_line: (
            f"{count_of(lines, 'line that is no launch was', 'lines that are no launches were')} skipped, "
            f"the first is line {first_line}"
        ),
    ),
    NoteKind(
        "no_api_call",
        "launches have no API call in the file, so they stand by their start on the GPU",
        lambda launches: (
            f"{_launches(launches)} {'has' if launches == 1 else 'have'} no API call in the file: ordered by "
            "the start on the GPU"
        ),
    ),
    NoteKind(
        "short_names",
        "kernels are known by their short names only, so those that differ in parameters look alike",
        lambda: "kernels are known by their short names only",
    ),
    NoteKind(
        "devices_unknown",
        "devices come up only later in the file, so their kind is not known",
        lambda devices: (
            f"devices {', '.join(map(str, devices))} appear only later in the file: their kind is not known"
        ),
    ),
)  # fmt: skip
_SHAPES_AND_COUNTERS = (
    NoteKind(
        "shapes_totals_only",
        "only total numbers of blocks and threads are known (Nsight Compute's classic layout)",
        lambda: "only total numbers of blocks and threads are known: grid_x and block_x hold them",
        "shapes_totals_only",
    ),
    NoteKind(
        "units_assumed",
        "the file has no units row",
        lambda: "the file has no units row: base units are assumed",
        "units_assumed",
    ),
    NoteKind(
        "counter_not_measured",
        "launches have no value (`n/a`, NaN) of a counter",
        lambda counter, launches, place, first: (
            f"{counter} was not measured for {_launches(launches)}, the first is {place} {first}"
        ),
        "counters_nan",
    ),
    NoteKind(
        "counter_of_several_metrics",
        "several metrics of the file measure one counter; one of them is read",
        lambda counter, metric, others: (
            f"{counter} is read from {metric}; {', '.join(others)} is left aside"
        ),
    ),
    NoteKind(
        "metric_unreadable",
        "a metric of a report is left out because its unit is not known or its values are no numbers; only "
        "an analysis that needs it refuses",
        lambda counter, metric, cause: f"{counter} is left out: {metric} cannot be read ({cause})",
        "metrics_missing",
    ),
    NoteKind(
        "metric_late",
        "a metric is left aside because the first launches do not have it",
        lambda metric: f"{metric} is left aside: it is not there for the first launches",
    ),
    NoteKind(
        "values_rounded",
        "values are rounded as the details page prints them",
        lambda: "values are rounded as the details page prints them: export the raw page for exact ones",
    ),
    NoteKind(
        "shared_memory_static_only",
        "the dynamic part of the shared memory was not collected",
        lambda: "shared memory is the static part only: the dynamic part was not collected",
    ),
)  # fmt: skip
_DOUBTFUL_NUMBERS = (
    NoteKind(
        "ids_missing",
        "Nsight Compute numbers its launches without a gap, and the file has gaps",
        lambda missing, first, last: (
            f"{count_of(missing, 'launch ID', 'launch IDs')} between {first} and {last} "
            f"{'is' if missing == 1 else 'are'} not in the file"
        ),
        "launches_missing",
    ),
    NoteKind(
        "kernel_events_twice",
        "kernel events of a trace are in it twice; they count once",
        lambda events: (
            f"{count_of(events, 'kernel event is', 'kernel events are')} in the file twice, and "
            f"{'counts' if events == 1 else 'count'} once"
        ),
    ),
    NoteKind(
        "percent_over_100",
        "a share is over 100 % by more than rounding, as counters of several passes over a short launch give "
        "it",
        lambda counter, launches, greatest, process, launch: (
            f"{counter} is over 100 % for {_launches(launches)}, up to {greatest:g} %, first for launch "
            f"{launch} of process {process}: counters of several passes do not fit together"
        ),
    ),
    NoteKind(
        "zero_cost",
        "launches cost nothing in a quantity that is scored: the clock is too coarse for them, or lost them",
        lambda quantity, launches, process, launch: (
            f"{quantity} is 0 for {_launches(launches)}, first for launch {launch} of process {process}"
        ),
    ),
    NoteKind(
        "representative_without_cost",
        "a representative costs nothing, so what it stands for is projected as nothing",
        lambda quantity, representatives, of, process, launch: (
            f"{representatives:,} of {count_of(of, 'representative', 'representatives')} "
            f"{'costs' if representatives == 1 else 'cost'} nothing in {quantity}, first launch {launch} of "
            f"process {process}: what {'it stands' if representatives == 1 else 'they stand'} for is "
            "projected as nothing"
        ),
        "representative_without_cost",
    ),
)  # fmt: skip
_OF_SEVERAL_FILES = (
    NoteKind(
        "gpu_unknown",
        "one of several files does not say on which GPU it was recorded",
        lambda files: (
            f"{', '.join(files)} {'does' if len(files) == 1 else 'do'} not say on which GPU: taken for that "
            "of the other files"
        ),
    ),
    NoteKind(
        "ranks_share_no_kernel",
        "a rank launches no kernel that another rank launches",
        lambda files: (
            f"{', '.join(files)} {'has' if len(files) == 1 else 'have'} no kernel in common with the other "
            f"ranks: {'is it' if len(files) == 1 else 'are they'} of one job?"
        ),
    ),
)  # fmt: skip
_RANGES_AND_OPERATORS = (
    NoteKind(
        "start_stop_ranges_unread",
        "start/stop ranges of NVTX are not read",
        lambda: "start/stop ranges of NVTX are not read, only push/pop ranges",
    ),
    NoteKind(
        "nvtx_ranges_unread",
        "NVTX ranges are of a form that is not known",
        lambda launches: f"the NVTX ranges of {_launches(launches)} are of a form that is not known",
    ),
    NoteKind(
        "no_operators",
        "the trace has no operators",
        lambda: "the trace has no operators",
    ),
    NoteKind(
        "operators_joined",
        "how operators and launches were joined, and how many launches have one",
        lambda way, joined, launches: (
            f"operators are joined by {way}: {joined:,} of {_launches(launches)} "
            f"{'has' if joined == 1 else 'have'} one"
        ),
    ),
)  # fmt: skip
_OF_SEVERAL_RUNS = (
    NoteKind(
        "cycles_of_another_run",
        "cycles are those of a run in one pass, the other counters of another run",
        lambda cycles, counters: f"cycles of {cycles}, other counters of {counters}",
    ),
    NoteKind(
        "launches_in_both",
        "only the launches that both runs have are used",
        lambda joined, launches: f"{joined:,} of {_launches(launches)} are in both",
    ),
    NoteKind(
        "cycles_disturbed",
        "the run that was to measure cycles in one pass took several",
        lambda run, passes: f"{run} took {passes:g} passes, so its cycles are disturbed too",
    ),
)  # fmt: skip

NOTES: Mapping[str, NoteKind] = MappingProxyType(
    {
        kind.code: kind
        for kind in (
            *_READING,
            *_SHAPES_AND_COUNTERS,
            *_DOUBTFUL_NUMBERS,
            *_RANGES_AND_OPERATORS,
            *_OF_SEVERAL_FILES,
            *_OF_SEVERAL_RUNS,
        )
    }
)


def note_table() -> str:
    """The reference table of docs/notes.md, as Markdown."""
    lines = ["| code | flag | meaning |", "|---|---|---|"]
    for kind in NOTES.values():
        lines.append(f"| `{kind.code}` | {f'`{kind.flag}`' if kind.flag else ''} | {kind.meaning} |")
    return "\n".join(lines)
