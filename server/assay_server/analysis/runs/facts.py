"""The facts of a run, gathered from its published attempts; light, because the server does it when runs end.

Source: docs/nvidia-tools.md, "What makes two measurements comparable".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from assay_sampling.running.attempt_facts import AttemptFacts, LibraryFact, parse_facts
from assay_server.analysis.runs.request import RunFacts


def run_facts(attempts: Iterable[tuple[int, str]], *, measured: bool) -> RunFacts:
    """The facts of a run, from its published attempts.

    Args:
        attempts: for each, when it was leased (Unix time in milliseconds), and its facts as text.
        measured: whether the attempts measured silicon; if not, the days are left out.
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
        gpus=distinct_texts(facts.gpu for facts in attempts),
        drivers=distinct_texts(facts.driver for facts in attempts),
        tools=tuple(dict.fromkeys((tool.name, tool.version) for facts in attempts for tool in facts.tools)),
        libraries=_by_name(library for facts in attempts for library in facts.libraries.found),
        library_notes=distinct_texts(facts.libraries.note for facts in attempts),
        bundles=distinct_texts(facts.bundle for facts in attempts),
        programs=distinct_texts(facts.program.sha256 for facts in attempts),
        compile_caches=distinct_texts(facts.compile_cache for facts in attempts),
    )


def distinct_texts(texts: Iterable[str]) -> tuple[str, ...]:
    """Each text once, in order of its first place, without empty ones."""
    return tuple(dict.fromkeys(text for text in texts if text))


def _by_name(libraries: Iterable[LibraryFact]) -> dict[str, dict[str, str]]:
    """The libraries that the workload itself loaded: by name, each build with its version for people."""
    builds: dict[str, dict[str, str]] = {}
    for library in libraries:
        if not library.of_tool:
            builds.setdefault(library.name, {}).setdefault(library.build, library.label)
    return builds
