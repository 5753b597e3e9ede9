"""The sample as a folder: a workload file, recordings of it, traces, a simulator's log, and what each is."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path

from assay_client.files import write_atomically
from assay_client.samples.simulated import simulator_log, trace_files
from assay_core.files.durable import storage_errors
from assay_sampling.errors import StorageError
from assay_sampling.launches.in_memory import Launches
from assay_sampling.readers.opening import read_launches

WORKLOAD = "training.toml"
_README = "README.md"
_REMEDY = "free space there, correct its permissions, or name another folder"


@dataclass(frozen=True)
class SampleFile:
    """A file or folder of the sample, and what it is."""

    name: str
    about: str


FILES = (
    SampleFile(WORKLOAD, "a workload file, the program that virtual GPUs run"),
    SampleFile("profile.csv", "Nsight Compute, V100: counters of every launch"),
    SampleFile("other_gpu.csv", "Nsight Compute, RTX 3070: cycles of every launch"),
    SampleFile("window.csv", "Nsight Compute, V100: counters of the first launches, with operators"),
    SampleFile("whole.sqlite", "Nsight Systems, V100: every launch with its time, ranges and operators"),
    SampleFile("traces", "Accel-Sim: traces of every launch, of headers alone"),
    SampleFile("simulator.out.gz", "Accel-Sim: the standard output for every launch"),
    SampleFile(_README, "this list"),
)
NOTICE = (
    "synthetic: virtual GPUs and no simulator made these files; they say nothing about a real GPU or program"
)


def write_samples(folder: Path, *, force: bool = False) -> list[Path]:
    """Write the sample into a folder, made if need be; returns what was written. The same each time.

    Raises StorageError if a file of the sample is there and ``force`` is not set, or if the disk refuses.
    """
    paths = [folder / file.name for file in FILES]
    if not force:
        _refuse_to_replace(folder, paths)
    from assay_client.samples.recordings import VirtualRecordings  # noqa: PLC0415 - loads the model

    workload = folder / WORKLOAD
    write_atomically(workload, Path(__file__).with_name(WORKLOAD).read_text("utf-8"))
    with VirtualRecordings(workload.resolve()) as recordings:
        write_atomically(folder / "profile.csv", recordings.counters())
        write_atomically(folder / "other_gpu.csv", recordings.other_gpu())
        write_atomically(folder / "window.csv", recordings.window())
        with storage_errors(folder / "whole.sqlite", _REMEDY):
            recordings.trace(folder / "whole.sqlite")
    measured = read_launches(folder / "profile.csv")
    _write_traces(folder / "traces", measured)
    log = "".join(simulator_log(measured)).encode()
    write_atomically(folder / "simulator.out.gz", gzip.compress(log, mtime=0))
    write_atomically(folder / _README, _readme())
    return paths


def _write_traces(folder: Path, recording: Launches) -> None:
    """Without a look at whether each is on the disk: hundreds of small files that can be made again."""
    with storage_errors(folder, _REMEDY):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in trace_files(recording):
            (folder / name).write_text(text)


def _refuse_to_replace(folder: Path, paths: list[Path]) -> None:
    for path in paths:
        if path.is_symlink() or path.exists():
            raise StorageError(
                str(path), "it exists already", "name another folder, or replace the sample with --force"
            )


def _readme() -> str:
    rows = "".join(f"| {file.name} | {file.about} |\n" for file in FILES)
    return (
        "# A sample of Assay\n\n"
        "**Everything here is synthetic**: virtual GPUs made the recordings by a documented model\n"
        "(`assay docs virtual-gpu`), the traces hold no instructions, and no simulator ran. Nothing here\n"
        "says anything about a real GPU or program.\n\n"
        f"| file | what it is |\n|---|---|\n{rows}"
    )
