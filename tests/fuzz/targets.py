"""What is fed: every reader of files that come from elsewhere, each by its public function."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from assay_client.recordings import analyses
from assay_sampling.errors import AssayError
from assay_sampling.files.reading import PlainFile
from assay_sampling.handover.weights_file import read_weights
from assay_sampling.projection.files import ProjectionOptions, project_file
from assay_sampling.readers.block_files import read_basic_block_vectors, read_block_size_variation
from assay_sampling.readers.foreign_table.conversion import read_foreign_table
from assay_sampling.readers.foreign_table.mapping import Source, TableMapping, read_mapping
from assay_sampling.readers.inspection.recording import inspect_recording
from assay_sampling.readers.ncu.container import read_container
from assay_sampling.readers.opening import read_launches
from assay_sampling.scoring.saved.labels import first_difference
from assay_sampling.simulators.accel_sim.block_times import read_block_times
from assay_sampling.simulators.accel_sim.kernels_list import read_kernels_list
from assay_sampling.simulators.accel_sim.output import read_output
from assay_sampling.simulators.accel_sim.trace import block_counts, read_blocks
from assay_sampling.simulators.accel_sim.visualizer import IntervalLog
from assay_sampling.simulators.macsim import read_kernel_config, read_traced_warps
from tests.fuzz import seeds
from tests.fuzz.mutations import mutate_bytes, mutate_parquet, mutate_sqlite, mutate_text
from tests.support.server.campaign_files import load_campaign

_MEMORY_LIMIT_BYTES = 512 << 20
_ANY = ("gzip", "zstd")


@dataclass(frozen=True)
class Target:
    """A reader: what it does with a file, whole inputs, how these are mutated, compressions it knows."""

    feed: Callable[[Path], object]
    seeds: Callable[[], Sequence[seeds.Seed]]
    mutate: Callable[[bytes, Random], bytes]
    compressions: tuple[str, ...] = ()


def each(*reads: Callable[[], object]) -> None:
    """Do all of them, although some may refuse; raises the last refusal where all do."""
    refused: list[AssayError] = []
    for read in reads:
        try:
            read()
        except AssayError as error:
            refused.append(error)
    if len(refused) == len(reads):
        raise refused[-1]


def _recording(path: Path) -> None:
    def shown() -> None:
        # What is read must be printable, as the command line prints it.
        json.dumps(inspect_recording(path), ensure_ascii=False).encode()

    each(shown, lambda: read_launches(path, memory_limit_bytes=_MEMORY_LIMIT_BYTES))


def _container(path: Path) -> None:
    """A report is read by NVIDIA's package, in a process of its own, once its container is found whole."""
    with closing(PlainFile(path)) as plain:
        read_container(path, plain.path)


def _projected(path: Path) -> None:
    options = ProjectionOptions(wave_ctas=8, total_ctas=64)
    known = ProjectionOptions(wave_ctas=8, total_ctas=64, total_instructions=1e9)
    each(*(partial(project_file, path, options=given) for given in (None, options, known)))


def _selection(path: Path) -> None:
    saved = analyses.load_selection(path)
    labels = saved.document.labels
    each(
        saved.labels,
        lambda: first_difference(labels, seeds.launches(), "exact"),
        lambda: analyses.evaluate(path, path.parent / "profile.json"),
    )


_TABLES = tuple(
    TableMapping(
        records=records,
        other_columns=["*__*"],
        launches={"kernel": Source(column="kernel"), "duration_ns": Source(column="ms", unit="ms")},
        counters={"instructions": Source(column="insts")},
    )
    for records in ("", "results")
)


def _foreign_table(path: Path) -> None:
    each(*(partial(read_foreign_table, path, mapping) for mapping in _TABLES))


def _broken(path: Path) -> None:
    """Fails as readers must not, so that a test can see the harness notice it."""
    text = path.read_bytes()
    if text == b"raise":
        1 / 0  # noqa: B018
    if text == b"memory":
        bytearray(b"x") * ((1 << 30) + (64 << 20))


TARGETS = {
    "broken": Target(_broken, lambda: [b"fine", b"raise", b"memory"], mutate_bytes),
    "kineto": Target(_recording, seeds.kineto, mutate_text, _ANY),
    "ncu-raw": Target(_recording, seeds.ncu_raw, mutate_text, _ANY),
    "ncu-details": Target(_recording, seeds.ncu_details, mutate_text, _ANY),
    "ncu-report": Target(_container, seeds.ncu_report, mutate_bytes, ("zstd",)),
    "nsys-sqlite": Target(_recording, seeds.nsys_sqlite, mutate_sqlite, _ANY),
    "nsys-parquet": Target(_recording, seeds.nsys_parquet, mutate_parquet),
    "assay-parquet": Target(_recording, seeds.assay_parquet, mutate_parquet, _ANY),
    "foreign-table": Target(_foreign_table, seeds.foreign_tables, mutate_text, _ANY),
    "foreign-parquet": Target(_foreign_table, seeds.foreign_parquet, mutate_parquet, _ANY),
    "table-mapping": Target(read_mapping, seeds.mappings, mutate_text),
    "simulator-recording": Target(_recording, seeds.simulator_recording, mutate_text, _ANY),
    "simulator-output": Target(
        lambda path: each(lambda: read_output(path), lambda: _projected(path)),
        seeds.simulator_output, mutate_text, _ANY,
    ),
    "simulator-block-times": Target(
        lambda path: [times.by_index((4, 1, 1), "launch") for times in read_block_times(path).values()],
        seeds.block_times, mutate_text, _ANY,
    ),
    "simulator-intervals": Target(
        lambda path: each(lambda: list(IntervalLog(path).series()), lambda: _projected(path)),
        seeds.simulator_intervals, mutate_text, _ANY,
    ),
    "series": Target(_projected, seeds.series, mutate_text, _ANY),
    "trace": Target(
        lambda path: each(lambda: list(read_blocks(path)), lambda: block_counts(path, line_bytes=128)),
        seeds.traces, mutate_text, (*_ANY, "xz"),
    ),
    "kernels-list": Target(read_kernels_list, seeds.kernels_list, mutate_text),
    "kernel-config": Target(read_kernel_config, seeds.kernel_configs, mutate_text),
    "macsim-warps": Target(read_traced_warps, seeds.macsim_warps, mutate_text),
    "weights": Target(read_weights, seeds.weights_files, mutate_text, _ANY),
    "block-vectors": Target(
        lambda path: each(
            lambda: read_basic_block_vectors(path, seeds.launches()),
            lambda: read_block_size_variation(path, seeds.launches()),
        ),
        seeds.block_vectors, mutate_text, _ANY,
    ),
    "block-vectors-parquet": Target(
        lambda path: read_basic_block_vectors(path, seeds.launches()),
        seeds.block_vectors_parquet, mutate_parquet,
    ),
    "selection": Target(_selection, seeds.selections, mutate_text),
    "campaign": Target(
        lambda path: load_campaign(path.read_bytes(), "campaign.yaml"), seeds.campaigns, mutate_text
    ),
}  # fmt: skip
