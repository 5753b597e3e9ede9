"""Traces of Accel-Sim 2.0, ``kernel-N-ctx_0xC.tracez``: headers are read, instructions are not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.client.simulate_bench import Bench, made_bench

Assay = Callable[..., Any]
# What follows the header: sizes of a dictionary and of sub-chunks, then frames and an index.
_PACKED = b"\0" + (0).to_bytes(4, "little") + (2048).to_bytes(4, "little") + b"\x28\xb5\x2f\xfd\0\xff" * 9


@pytest.fixture
def packed(tmp_path: Path, assay: Assay) -> Bench:
    """The bench with its traces packed: their headers as the tracer wrote them, then bytes of no text."""
    bench = made_bench(tmp_path, assay, "random", "launches=3")
    listed = bench.traces / "kernelslist.g"
    for trace in sorted(bench.traces.glob("kernel-*.traceg")):
        head = trace.read_bytes().partition(b"#BEGIN_TB")[0]
        name = trace.name.replace(".traceg", "-ctx_0x55d0c0ffee.tracez")
        trace.with_name(name).write_bytes(head + _PACKED)
        trace.unlink()
        listed.write_text(listed.read_text().replace(trace.name + "\n", name + "\n"))
    return bench


def test_packed_traces_are_listed_and_handed_over(packed: Bench, assay: Assay, tmp_path: Path) -> None:
    ended = assay(
        "export", packed.selection, "--to", "accel-sim", "--traces", packed.traces, "-o", tmp_path / "handed",
        "--json",
    )  # fmt: skip
    assert ended.code == 0, ended.stderr
    chosen = [f"kernel-{number}-ctx_0x55d0c0ffee.tracez" for number in sorted(packed.weights)]
    assert (tmp_path / "handed" / "kernelslist.g").read_text().split() == chosen
    assert all((tmp_path / "handed" / name).resolve().is_file() for name in chosen)


def test_packed_traces_of_another_workload_are_refused(packed: Bench, assay: Assay, tmp_path: Path) -> None:
    (trace,) = packed.traces.glob(f"kernel-{max(packed.weights)}-ctx*")
    trace.write_bytes(
        trace.read_bytes().replace(b"_Z4evenPf", b"_Z4elsePf").replace(b"_Z3oddPf", b"_Z3elsPf")
    )
    words = ("--to", "accel-sim", "--traces", packed.traces, "-o", tmp_path / "handed")
    ended = assay("export", packed.selection, *words)
    assert ended.code == 7 and "els" in ended.stderr


def test_what_needs_instructions_says_how_to_get_them(packed: Bench, assay: Assay) -> None:
    ended = assay(*packed.command("--design", "big=BIG", "--warm-up", "tail"))
    assert ended.code != 0
    assert "of a .tracez only the header is read" in ended.stderr
    assert "post-traces-processing FOLDER --text" in ended.stderr


def test_a_packed_trace_that_is_cut_in_its_header_is_refused(packed: Bench, assay: Assay) -> None:
    (trace,) = packed.traces.glob(f"kernel-{max(packed.weights)}-ctx*")
    trace.write_bytes(trace.read_bytes()[:60])
    ended = assay(*packed.command("--design", "big=BIG"))
    assert ended.code == 3
    assert "its header does not end" in ended.stderr and trace.name in ended.stderr
