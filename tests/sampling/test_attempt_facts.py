"""The facts of an attempt: there and back, bounded, and refused where they are not what they should be."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_sampling.running.attempt_facts import (
    LONGEST_TEXT,
    MOST_BYTES,
    AttemptFacts,
    ConditionFacts,
    CounterFacts,
    LibraryFact,
    LibraryFacts,
    ProgramFact,
    ToolFact,
    parse_facts,
)

CUBLAS = LibraryFact(
    "libcublas", "12", "nvidia-cublas-cu12 12.4.5.8", "/venv/libcublas.so.12", 109_000_000, "edges:ab"
)
FACTS = AttemptFacts(
    gpu="H100",
    driver="550.163.01",
    cuda="12.4",
    tools=(ToolFact("ncu", "2024.1.1", "/usr/bin/ncu"),),
    libraries=LibraryFacts("found", (CUBLAS,), 2, "some"),
    condition=ConditionFacts("all", "by ncu", 50.0, 50.0, 66, 132, "private", "550.163.01", "/usr/bin/mps"),
    counters=CounterFacts(("instructions",), {"instructions": "smsp__inst_executed.sum"}, (), 1, 3),
    environment_hash="00ff",
    program=ProgramFact("/opt/train", 4096, "ab" * 32),
)


def test_facts_come_back_as_they_were_written() -> None:
    assert parse_facts(FACTS.to_json()) == FACTS
    assert parse_facts(AttemptFacts().to_json()) == AttemptFacts()
    assert json.loads(FACTS.to_json())["version"] == 1


texts = st.text(max_size=500)
libraries = st.builds(LibraryFact, texts, texts, texts, texts, st.integers(0, 2**60), texts, st.booleans())


@given(
    st.builds(
        AttemptFacts,
        program=st.builds(ProgramFact, texts, st.integers(0, 2**60), texts, texts),
        tools=st.lists(st.builds(ToolFact, texts, texts, texts), max_size=3).map(tuple),
        libraries=st.builds(LibraryFacts, found=st.lists(libraries, max_size=3).map(tuple)),
    )
)
def test_any_facts_can_be_read_again_and_are_never_long(facts: AttemptFacts) -> None:
    text = facts.to_json()
    found = parse_facts(text)
    assert found is not None
    assert len(text.encode()) <= MOST_BYTES
    assert parse_facts(found.to_json()) == found
    assert all(len(library.path) <= LONGEST_TEXT for library in found.libraries.found)


def test_too_many_libraries_lose_their_paths_first_and_then_go() -> None:
    long = "ü" * 300
    many = [replace(CUBLAS, name=f"lib{n}", path=long) for n in range(120)]
    found = parse_facts(replace(FACTS, libraries=LibraryFacts("found", tuple(many))).to_json())
    assert found is not None
    assert {library.path for library in found.libraries.found} == {""}
    assert [library.name for library in found.libraries.found] == [f"lib{n}" for n in range(120)]
    worse = [replace(library, name=long, package=long, identity=long) for library in many]
    found = parse_facts(replace(FACTS, libraries=LibraryFacts("found", tuple(worse))).to_json())
    assert found is not None
    assert found.libraries == LibraryFacts("found", note="too many to keep")
    assert found.tools == FACTS.tools


def changed(**changes: Any) -> str:
    return json.dumps(json.loads(FACTS.to_json()) | changes)


@pytest.mark.parametrize(
    "text",
    [
        "", "no json", "[]", "null", "[" * 100_000, changed(version=2), changed(tools={}),
        changed(tools=[{"name": 3}]), changed(tools=[{}]), changed(synthetic="yes"), changed(driver=None),
        changed(libraries={"status": "stolen"}), changed(condition={"effective_sms": True}),
        changed(condition={"sm_percent": "50"}), changed(counters={"collected": {"a": 1}}),
        changed(program={"size_bytes": "4096"}), changed(program="/opt/train"),
    ],
)  # fmt: skip
def test_what_is_no_facts_is_none(text: str) -> None:
    assert parse_facts(text) is None


def test_keys_that_a_later_release_adds_are_passed_over_and_missing_ones_are_default() -> None:
    assert parse_facts(changed(colour="red")) == FACTS
    assert parse_facts('{"version": 1, "driver": "550"}') == AttemptFacts(driver="550")
    earlier = json.loads(FACTS.to_json())
    del earlier["program"]
    assert parse_facts(json.dumps(earlier)) == replace(FACTS, program=ProgramFact())


def test_a_library_is_known_by_its_build_and_named_by_its_package() -> None:
    assert (CUBLAS.label, CUBLAS.build) == ("nvidia-cublas-cu12 12.4.5.8", "edges:ab")
    plain = LibraryFact("libcudart", "12.4.127")
    assert (plain.label, plain.build) == ("12.4.127", "12.4.127")
    assert (LibraryFact("libx").label, LibraryFact("libx").build) == ("unknown version", "")
