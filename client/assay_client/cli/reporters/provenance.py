"""Draws the facts of an attempt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console

from assay_client.cli.reporters.tables import SYNTHETIC_NOTICE, Table, print_facts
from assay_client.cli.reporters.text import count
from assay_sampling.running.attempt_facts import (
    AttemptFacts,
    ConditionFacts,
    CounterFacts,
    LibraryFacts,
    ProgramFact,
    facts_of,
)

_NONE = "-"


def render_facts(document: Mapping[str, Any] | None, console: Console) -> None:
    """Draw the facts of an attempt as lines, its libraries as a table; nothing if they are unknown."""
    if not document:
        return
    facts = facts_of(dict(document))
    if facts is None:
        console.print("rests on  facts of another release, see --json", soft_wrap=True)
        return
    print_facts(list(_lines(facts)), console)
    _render_libraries(facts.libraries, console)


def _lines(facts: AttemptFacts) -> Iterator[tuple[str, str]]:
    mark = f" ({SYNTHETIC_NOTICE})" if facts.synthetic else ""
    yield "rests on", f"{facts.gpu or 'a GPU that is not known'}{mark}"
    if facts.driver:
        cuda = f", CUDA {facts.cuda}" if facts.cuda else ""
        yield "driver", f"{facts.driver}{cuda}"
    for tool in facts.tools:
        where = f", {tool.path}" if tool.path else ""
        yield "tool", f"{tool.name} {tool.version or '(release not known)'}{where}"
    program = facts.program
    if program.path:
        size = f", {program.size_bytes:,} bytes" if program.size_bytes else ""
        yield "program", f"{program.path}{size}, {_hash_or_why(program)}"
    if facts.recording:
        yield "recording", facts.recording
    yield from _condition(facts.condition)
    yield from _counters(facts.counters)
    libraries = facts.libraries
    summary = f"{count(len(libraries.found))} found" if libraries.found else libraries.status
    more = f", {libraries.left_out:,} more left out" if libraries.left_out else ""
    yield "libraries", "; ".join(part for part in (summary + more, libraries.note) if part)
    if facts.environment_hash:
        yield "environment hash", facts.environment_hash


def _hash_or_why(program: ProgramFact) -> str:
    return f"SHA-256 {program.sha256}" if program.sha256 else f"no hash: {program.note}"


def _condition(condition: ConditionFacts) -> Iterator[tuple[str, str]]:
    yield "cache", f"{condition.cache or '?'}{': ' if condition.flush_method else ''}{condition.flush_method}"
    share = "?" if condition.sm_percent is None else f"{condition.sm_percent:g} %"
    parts = [f"{share} asked"]
    if condition.sm_percent_in_force is not None:
        parts.append(f"{condition.sm_percent_in_force:g} % in force")
    if condition.effective_sms is not None:
        parts.append(f"{condition.effective_sms} of {condition.all_sms or '?'} SMs as probed")
    if condition.sm_share == "partition":
        parts.append("static partition")
    if condition.mps_daemon == "private":
        parts.append(f"private MPS daemon {condition.mps_version or '(version not known)'}")
    yield "SM share", ", ".join(parts)
    by = f" by {condition.clock_locked_by}" if condition.clock_locked_by else ""
    why = f": {condition.clock_refused}" if condition.clock_refused else ""
    yield "clock", f"{condition.clock or '?'} asked, {condition.clock_state}{by}{why}"


def _counters(counters: CounterFacts) -> Iterator[tuple[str, str]]:
    if not counters.asked and not counters.collected:
        return
    summary = f"{count(len(counters.collected))} collected"
    if counters.missing:
        summary += f"; missing: {', '.join(counters.missing)}"
    if counters.least_passes is not None and counters.most_passes is not None:
        least, most = counters.least_passes, counters.most_passes
        summary += (
            f"; {least:,} passes a launch" if least == most else f"; {least:,} to {most:,} passes a launch"
        )
    yield "counters", summary


def _render_libraries(libraries: LibraryFacts, console: Console) -> None:
    if not libraries.found:
        return
    drawn = Table(
        "Libraries that its processes had loaded",
        ["library", "version", "package", "bytes", "build", "of", "path"],
        right=["bytes"],
    )
    for library in libraries.found:
        drawn.add_row(
            library.name,
            library.version or _NONE,
            library.package or _NONE,
            f"{library.size_bytes:,}" if library.size_bytes else _NONE,
            library.identity or _NONE,
            "profiler" if library.of_tool else "workload",
            library.path,
        )
    drawn.print(console)
