"""What each workload's numbers on each GPU were measured with, and where compared runs differ in it.

Tools, libraries and driver come with the attempts of a run; without them they come from its launch table's
metadata, which has no libraries. Days are those on which live runs were measured: virtual
GPUs measure nothing, and recordings do not tell. Slices that were chosen from light runs are listed too.
Source: docs/nvidia-tools.md, "What makes two measurements comparable"."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from assay_report.model.compared import Compared
from assay_report.model.runs import Days, LibraryEntry, ProvenanceEntry, ToolEntry
from assay_report.model.scores import Row
from assay_report.model.slices import ChosenSlicesEntry, CostModel, SliceEntry
from assay_sampling.errors import AssayError
from assay_sampling.launches.table import table_metadata
from assay_sampling.readers.opening import open_recording
from assay_server.analysis import rows
from assay_server.analysis.runs.request import RunData, RunFacts, distinct_texts

_MOST_SHOWN = 6  # differences in one flag's text
_SHOWN_DIGITS = 12  # of a SHA-256


def with_facts_of_table(run: RunData) -> RunData:
    """The run; if its attempts recorded no facts, with those of its first file's metadata."""
    if run.facts.known or not run.files:
        return run
    try:
        with open_recording(run.files[0]) as recording:
            metadata = table_metadata(recording.schema)
    except AssayError:  # the entries that use the run report it
        return run
    table_facts = replace(
        run.facts,
        gpus=distinct_texts(device.name for device in metadata.devices),
        drivers=distinct_texts([metadata.driver_version]),
        tools=((metadata.tool, metadata.tool_version),) if metadata.tool else (),
    )
    return replace(run, facts=table_facts)


def flag_differences(entries: Iterable[Row | Compared | ProvenanceEntry], runs: Sequence[RunData]) -> None:
    """Flag, in each row or entry, the runs whose tools, libraries or driver differ from an earlier run's.

    ``runs`` are all runs of the report, in its order.
    """
    place = {run.run_id: at for at, run in enumerate(runs)}
    for entry in entries:
        compared = [runs[at] for at in sorted({place[run_id] for run_id in entry.runs if run_id in place})]
        for run, name, detail in _differences(compared):
            rows.flag(entry, run.run_id, name, detail)


def _differences(runs: Sequence[RunData]) -> Iterator[tuple[RunData, str, str]]:
    """Runs that differ from the first run with the same fact: the run, the flag, and the differences."""
    builds = [_builds(run.facts) for run in runs]
    for name in ("libraries_differ", "tools_differ", "drivers_differ", "programs_differ"):
        first: dict[str, tuple[RunData, Mapping[str, str]]] = {}
        for run, run_builds in zip(runs, builds, strict=True):
            changes = []
            for thing, own in run_builds[name].items():
                before, other = first.setdefault(thing, (run, own))
                if own.keys() != other.keys():
                    changes.append(f"{thing} {_text(own)} instead of {_text(other)} in {before.run_id}")
            if changes:
                more = f"; {len(changes) - _MOST_SHOWN:,} more" if len(changes) > _MOST_SHOWN else ""
                yield run, name, "; ".join(changes[:_MOST_SHOWN]) + more


def _builds(facts: RunFacts) -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    """By the flag of a difference, and the name of each thing: its builds, each with its text for people."""
    tools: dict[str, dict[str, str]] = {}
    for name, version in facts.tools:
        if version:
            tools.setdefault(name, {})[version] = version
    drivers = {driver: driver for driver in facts.drivers}
    programs = {sha256: sha256[:_SHOWN_DIGITS] for sha256 in facts.programs}
    return {
        "libraries_differ": facts.libraries,
        "tools_differ": tools,
        "drivers_differ": {"driver": drivers} if drivers else {},
        "programs_differ": {"program": programs} if programs else {},
    }


def _text(builds: Mapping[str, str]) -> str:
    return " and ".join(sorted(set(builds.values())))


def provenance_entries(runs: Sequence[RunData]) -> list[ProvenanceEntry]:
    """An entry for each workload and GPU, in the order of the campaign."""
    return [_entry(members) for members in _by_place(runs)]


def _by_place(runs: Iterable[RunData]) -> list[list[RunData]]:
    """The runs of each workload and GPU."""
    grouped: dict[tuple[str, str], list[RunData]] = {}
    for run in runs:
        grouped.setdefault((run.workload, run.device_kind), []).append(run)
    return list(grouped.values())


def _entry(runs: Sequence[RunData]) -> ProvenanceEntry:
    days = sorted({day for run in runs for day in run.facts.days})
    entry = ProvenanceEntry(
        workload=runs[0].workload,
        device=runs[0].device_kind,
        synthetic=any(run.synthetic for run in runs),
        tools=_tool_entries(runs),
        libraries=_library_entries(runs),
        **{
            name: list(dict.fromkeys(text for run in runs for text in getattr(run.facts, name)))
            for name in ("gpus", "drivers", "library_notes", "bundles", "programs", "compile_caches")
        },
        measured_on=Days(first=days[0], last=days[-1]) if days else None,
        runs=[run.run_id for run in runs],
    )
    flag_differences([entry], runs)
    return entry


def _tool_entries(runs: Sequence[RunData]) -> list[ToolEntry]:
    """Each release of each tool, with the levels that it measured."""
    levels: defaultdict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for run in runs:
        for tool in run.facts.tools:
            levels[tool][run.level] = None
    return [
        ToolEntry(name=name, version=version, levels=list(of_tool))
        for (name, version), of_tool in levels.items()
    ]


def _library_entries(runs: Sequence[RunData]) -> list[LibraryEntry]:
    """Each library with its versions for people, by name."""
    versions: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for name, builds in (item for run in runs for item in run.facts.libraries.items()):
        versions[name].update(dict.fromkeys(sorted(set(builds.values()))))
    return [LibraryEntry(name=name, versions=list(of_name)) for name, of_name in sorted(versions.items())]


def chosen_slices_entries(runs: Sequence[RunData]) -> list[ChosenSlicesEntry]:
    """One entry for each workload and GPU whose detailed runs have a plan, in the order of the runs."""
    return [_chosen_entry(members) for members in _by_place(run for run in runs if run.plan is not None)]


def _chosen_entry(runs: Sequence[RunData]) -> ChosenSlicesEntry:
    first, plan = runs[0], runs[0].plan
    assert plan is not None  # these runs were chosen by it
    # A budget drops the last slices of the plan from a run, never one in between.
    measured = min(run.slices for run in runs)
    slices = [
        SliceEntry(
            first_launch=piece.launch_skip,
            launches=piece.launch_count,
            new_time_percent=piece.new_percent,
            unseen_time_percent=piece.unseen_percent,
            expected_seconds=piece.seconds,
            measured=place < measured,
        )
        for place, piece in enumerate(plan.slices)
    ]
    last = slices[:measured][-1:]
    return ChosenSlicesEntry(
        workload=first.workload,
        device=first.device_kind,
        runs=[run.run_id for run in runs],
        light_run=plan.light_run,
        launches=plan.launches,
        most_unseen_time_percent=plan.most_unseen_percent,
        unseen_time_percent=last[0].unseen_time_percent if last else 100.0,
        ending=plan.ending if measured >= len(slices) else "budget",
        cost=CostModel(
            start_seconds=plan.start_seconds,
            skipped_launch_seconds=plan.skip_seconds,
            profiled_launch_seconds=plan.launch_seconds,
        ),
        slices=slices,
    )
