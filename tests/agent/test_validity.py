"""The registry of validity flags: its users in the code, and that each is set where it is due."""

from __future__ import annotations

import re
from pathlib import Path

from assay_core.records.validity_flag import ValidityFlag
from assay_sampling.launches.alignment import match_flags
from assay_sampling.running.validity import FLAGS, invalidates
from assay_virtual.sensors import FAULTS

ROOT = Path(__file__).resolve().parents[2]
# How the code names a flag that it sets.
_SET = (
    r"ValidityFlag(?:\.of_kind)?\(\s*\"([a-z_]+)\"",
    r"\.flag\(\s*\"([a-z_]+)\"",
    r"\bFlag\(\s*\"([a-z_]+)\"",
    r"flag\(entry, \w+, \"([a-z_]+)\"",
    r"\"name\": \"([a-z_]+)\", *\n? *\"detail\"",
)


def flags_set_in_the_code() -> set[str]:
    found: set[str] = set()
    for package in ("agent", "server"):
        for source in (ROOT / package).rglob("*.py"):
            text = source.read_text()
            for pattern in _SET:
                found |= set(re.findall(pattern, text))
    return found


def test_every_flag_that_the_code_sets_is_in_the_registry() -> None:
    found = flags_set_in_the_code()
    assert len(found) > 10
    assert found <= set(FLAGS)


def test_a_flag_has_a_cause_and_a_remedy_of_one_phrase() -> None:
    assert len(FLAGS) >= 18
    for name, kind in FLAGS.items():
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", name)
        for phrase in (kind.cause, kind.remedy):
            assert phrase
            assert not phrase.endswith(".")
            assert " | " not in phrase
        # Only what makes numbers wrong is worth days of profiling again.
        assert kind.invalidates or kind.retry_as is None
        assert kind.retry_as is None or kind.retry_as.retryable


def test_the_registry_decides_what_a_flag_does() -> None:
    assert ValidityFlag.of_kind("gpu_lost", "why") == ValidityFlag("gpu_lost", "why", invalidates=True)
    assert ValidityFlag.of_kind("slice_short", "why") == ValidityFlag("slice_short", "why")
    assert not invalidates("a_flag_of_a_newer_release")


def _texts(*folders: str) -> str:
    """All Python of some folders, without the registry and this file."""
    return "\n".join(
        path.read_text()
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if path.name not in {"validity.py", Path(__file__).name}
    )


def test_the_registry_holds_no_flag_that_nothing_sets() -> None:
    code = _texts("agent", "server", "sampling")
    # Composed of a kind of match.
    composed = {"matched_by_name_block", "matched_by_position"}
    assert {name for name in FLAGS if f'"{name}"' not in code} == composed
    assert 'f"matched_by_{kind}"' in code


def test_every_flag_is_provoked_by_a_test() -> None:
    # Its faults provoke the flags of the same names, by a test over all of them.
    by_sensors = set(FAULTS)
    tests = _texts("tests/agent", "tests/server", "tests/sampling", "tests/client", "tests/integration")
    assert {*match_flags("name_block"), *match_flags("position")} <= set(FLAGS)
    assert [
        name
        for name in FLAGS.keys() - by_sensors - {"matched_by_position"}
        if not re.search(rf"[\"\']{name}\b", tests)
    ] == []
