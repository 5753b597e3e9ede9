"""What streams: its memory must not grow with the launches or samples that pass through."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from pathlib import Path

import numpy as np

from assay_core.files.launch_file import new_launch_file
from assay_sampling.projection.projector import LaunchSize, ProjectionParameters, Projector
from assay_sampling.readers.inspection.recording import inspect_recording
from tests.bench.made_data import SCHEMA, light_batches
from tests.bench.measure import Measurement

_STEP_CYCLES = 500
_CHUNK_SAMPLES = 10_000


def project(samples: int) -> Measurement:
    """The online projector over a series that never becomes stable."""
    rng = np.random.default_rng(0)
    projector = Projector(
        LaunchSize(total_ctas=10**9, wave_ctas=640, total_instructions=10.0**15),
        ProjectionParameters(s=1e-9),
    )
    cycles, instructions, seconds = 0.0, 0.0, 0.0
    for first in range(0, samples, _CHUNK_SAMPLES):
        executed = rng.uniform(1e4, 1e6, min(_CHUNK_SAMPLES, samples - first)).tolist()
        began = time.perf_counter()
        for count in executed:
            cycles += _STEP_CYCLES
            instructions += count
            projector.push(cycles, instructions, 1.0)
        seconds += time.perf_counter() - began
    assert projector.stop is None
    return Measurement(samples, seconds, {})


def _write(path: Path, launches: int) -> None:
    with new_launch_file(path, SCHEMA) as writer:
        for batch in light_batches(launches):
            writer.write(batch)


def inspect(launches: int) -> Measurement:
    """Reading a recording from the disk to its end, counting."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "launches.parquet"
        # In a process of its own: the peak of memory is to be the reader's.
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            pool.apply(_write, (path, launches))
        began = time.perf_counter()
        found = inspect_recording(path)
        seconds = time.perf_counter() - began
    assert found["launches"] == launches
    return Measurement(launches, seconds, {})
