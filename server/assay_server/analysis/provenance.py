"""What the numbers of each workload on each GPU rest on, and which runs that are compared do not share it.

Tools, libraries and driver come with the attempts of a run; of a run of an earlier release, from the metadata
of its launch table, which has no libraries. Days are those on which live runs were measured: a virtual GPU
measures nothing, and of a recording nobody knows. Source: notes on Nsight Compute, Nsight Systems, MPS and
NVML, sections 6 (validity of a measurement) and 8 (a library may be another one under a profiler).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from assay_sampling.attempt_facts import AttemptFacts, LibraryFact, ToolFact, parse_facts
from assay_sampling.errors import AssayError
from assay_sampling.launch_table import table_metadata
from assay_sampling.readers import open_recording
from assay_server.analysis.request import RunData, RunFacts

Entry = dict[str, Any]
_MOST_SHOWN = 6  # differences in the text of one flag


def run_facts(attempts: Iterable[tuple[int, str]], *, measured: bool) -> RunFacts:
    """The facts of a run from those of its published attempts.

    Args:
        attempts: when each was leased (Unix time in milliseconds), and its facts as text.
        measured: whether silicon was measured then, so that the days mean something.
    """
    days, texts = set[str](), dict[str, None]()
    for leased_at_ms, text in attempts:
        texts[text] = None
        if measured and leased_at_ms:
            days.add(datetime.fromtimestamp(leased_at_ms / 1000, UTC).date().isoformat())
    known = [facts for facts in map(parse_facts, texts) if facts is not None]
    return replace(_merged(known), days=tuple(sorted(days)))


def _merged(attempts: Sequence[AttemptFacts]) -> RunFacts:
    return RunFacts(
        gpus=_distinct(facts.gpu for facts in attempts),
        drivers=_distinct(facts.driver for facts in attempts),
        tools=tuple(dict.fromkeys(_plain(tool) for facts in attempts for tool in facts.tools)),
        libraries=_by_name(library for facts in attempts for library in facts.libraries.found),
        library_notes=_distinct(facts.libraries.note for facts in attempts),
    )


def _distinct(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for text in texts if text))


def _plain(tool: ToolFact) -> tuple[str, str]:
    return tool.name, tool.version


def _by_name(libraries: Iterable[LibraryFact]) -> dict[str, dict[str, str]]:
    """What the workload itself loaded: by name, the builds of each with their versions for people."""
    found: dict[str, dict[str, str]] = {}
    for library in libraries:
        if not library.of_tool:
            found.setdefault(library.name, {}).setdefault(library.build, library.said)
    return found


def with_facts_of_table(run: RunData) -> RunData:
    """The run; one whose attempts told nothing has what the metadata of its first file says."""
    if run.facts.known or not run.files:
        return run
    try:
        with open_recording(run.files[0]) as recording:
            metadata = table_metadata(recording.schema)
    except AssayError:  # whatever rests on the run says why
        return run
    told = replace(
        run.facts,
        gpus=_distinct(device.name for device in metadata.devices),
        drivers=_distinct([metadata.driver_version]),
        tools=((metadata.tool, metadata.tool_version),) if metadata.tool else (),
    )
    return replace(run, facts=told)


def flag_differences(entries: Iterable[Entry], runs: Sequence[RunData]) -> None:
    """Flag, in each row or entry, the runs whose tools, libraries or driver are others than of those before.

    ``runs`` are all of the report, in its order.
    """
    place = {run.run_id: at for at, run in enumerate(runs)}
    for entry in entries:
        compared = [runs[at] for at in sorted({place[run_id] for run_id in entry["runs"] if run_id in place})]
        for run, name, detail in _differences(compared):
            entry["flags"].append(
                {"run_id": run.run_id, "name": name, "detail": detail, "invalidates": False}
            )


def _differences(runs: Sequence[RunData]) -> Iterator[tuple[RunData, str, str]]:
    """Runs that differ from the first one that tells the same thing, what in, and how."""
    yield from _told(runs, "libraries_differ", [_libraries(run.facts) for run in runs])
    yield from _told(runs, "tools_differ", [_tools(run.facts) for run in runs])
    yield from _told(runs, "drivers_differ", [_driver(run.facts) for run in runs])


# Of each thing by its name: what tells it from another, and what people call that.
_Known = Mapping[str, tuple[frozenset[str], str]]


def _told(runs: Sequence[RunData], name: str, known: Sequence[_Known]) -> Iterator[tuple[RunData, str, str]]:
    first: dict[str, tuple[int, frozenset[str], str]] = {}
    for at, things in enumerate(known):
        found = []
        for thing, (builds, said) in things.items():
            before, other, there = first.setdefault(thing, (at, builds, said))
            if builds != other:
                found.append(f"{thing} {said} instead of {there} in {runs[before].run_id}")
        if found:
            more = f"; {len(found) - _MOST_SHOWN:,} more" if len(found) > _MOST_SHOWN else ""
            yield runs[at], name, "; ".join(found[:_MOST_SHOWN]) + more


def _libraries(facts: RunFacts) -> _Known:
    return {
        name: (frozenset(builds), " and ".join(sorted(set(builds.values()))))
        for name, builds in facts.libraries.items()
    }


def _tools(facts: RunFacts) -> _Known:
    versions: dict[str, list[str]] = {}
    for name, version in facts.tools:
        if version:
            versions.setdefault(name, []).append(version)
    return {name: (frozenset(found), " and ".join(sorted(found))) for name, found in versions.items()}


def _driver(facts: RunFacts) -> _Known:
    if not facts.drivers:
        return {}
    return {"driver": (frozenset(facts.drivers), " and ".join(sorted(facts.drivers)))}


def provenance_entries(runs: Sequence[RunData]) -> list[Entry]:
    """An entry for each workload and GPU, in the order of the campaign; runs as the report lists them."""
    grouped: dict[tuple[str, str], list[RunData]] = {}
    for run in runs:
        grouped.setdefault((run.workload, run.device_kind), []).append(run)
    return [_entry(workload, device, members) for (workload, device), members in grouped.items()]


def _entry(workload: str, device: str, runs: Sequence[RunData]) -> Entry:
    days = sorted({day for run in runs for day in run.facts.days})
    entry: Entry = {
        "workload": workload,
        "device": device,
        "synthetic": any(run.synthetic for run in runs),
        "gpus": _all(run.facts.gpus for run in runs),
        "drivers": _all(run.facts.drivers for run in runs),
        "tools": _tool_entries(runs),
        "libraries": _library_entries(runs),
        "library_notes": _all(run.facts.library_notes for run in runs),
        "measured_on": {"first": days[0], "last": days[-1]} if days else None,
        "runs": [run.run_id for run in runs],
        "flags": [],
    }
    flag_differences([entry], runs)
    return entry


def _all(texts: Iterable[Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(text for some in texts for text in some))


def _tool_entries(runs: Sequence[RunData]) -> list[Entry]:
    """Each release of each tool, with the levels that it measured."""
    levels: dict[tuple[str, str], dict[str, None]] = {}
    for run in runs:
        for tool in run.facts.tools:
            levels.setdefault(tool, {})[run.level] = None
    return [
        {"name": name, "version": version, "levels": list(found)} for (name, version), found in levels.items()
    ]


def _library_entries(runs: Sequence[RunData]) -> list[Entry]:
    """Each library with its versions for people, by name."""
    versions: dict[str, dict[str, None]] = {}
    for run in runs:
        for name, builds in run.facts.libraries.items():
            versions.setdefault(name, {}).update(dict.fromkeys(sorted(set(builds.values()))))
    return [{"name": name, "versions": list(found)} for name, found in sorted(versions.items())]
