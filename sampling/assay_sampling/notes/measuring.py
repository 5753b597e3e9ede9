"""Notes on the command lines that measure what a method needs."""

from __future__ import annotations

from assay_sampling.notes.base import NoteKind

MEASURING = (
    NoteKind(
        "no_counters_needed",
        "the method needs no counters",
        lambda method: f"{method} needs no counters: a light run is enough ('assay docs light-only')",
    ),
    NoteKind(
        "basic_blocks_needed",
        "the method needs basic-block vectors, which no profiler gives",
        lambda method: (
            f"{method} needs basic-block vectors, which binary instrumentation gives: --param bbv=FILE "
            "('assay docs bbv-format' has the format)"
        ),
    ),
    NoteKind(
        "option_of_later_releases",
        "an option of later releases of Nsight Systems saves time",
        lambda option, first: f"Nsight Systems from {first} on: add {option}=false, which saves time",
    ),
    NoteKind(
        "operators_of_pytorch",
        "how Nsight Systems records PyTorch's operators",
        lambda option, first: (
            f"for PyTorch's operators add {option}=autograd-shapes-nvtx (Nsight Systems from {first} on), or "
            "run the workload in torch.autograd.profiler.emit_nvtx(record_shapes=True)"
        ),
    ),
    NoteKind(
        "ranges_for_counters",
        "Nsight Compute records the ranges that the workload itself pushes",
        lambda: (
            "Nsight Compute sees only ranges that the workload pushes: for PyTorch run it in "
            "torch.autograd.profiler.emit_nvtx(record_shapes=True)"
        ),
    ),
    NoteKind(
        "counters_not_on_gpu",
        "optional counters are left out because the GPU cannot measure them",
        lambda counters: f"left out because this GPU cannot measure them: {', '.join(counters)}",
    ),
    NoteKind(
        "metrics_unlisted",
        "no release of Nsight Compute lists some metrics of the published artifact",
        lambda metrics: (
            f"ncu --query-metrics does not list {', '.join(metrics)} for any GPU; if ncu refuses them, use "
            "features=table2"
        ),
    ),
    NoteKind(
        "counters_of_every_launch",
        "the method needs the counters of every launch",
        lambda: "counters of every launch are needed",
    ),
    NoteKind(
        "window_is_enough",
        "counters of the first launches are enough for the method",
        lambda first: f"counters of the first launches are enough: --first {first}",
    ),
    NoteKind(
        "replay_disturbs_cycles",
        "the counters need several passes over each launch",
        lambda passes: (
            "replaying each launch disturbs its cycles; a campaign measures cycles in a separate run"
        ),
    ),
    NoteKind(
        "options_of_every_release",
        "no release of Nsight Compute was named, so the commands use only options that every one for the GPU "
        "has",
        lambda oldest, later: (
            f"these options exist in every release of Nsight Compute since {oldest}; name yours with "
            f"--tool-version, because later ones need more: {'; '.join(later)}. Without --rename-kernels off "
            "a release that has it shortens the names of kernels, and the two levels do not match"
        ),
    ),
    NoteKind(
        "last_release_for_gpu",
        "later releases of Nsight Compute do not measure the GPU",
        lambda architecture, last, source: (
            f"Nsight Compute measures {architecture} up to release {last} ({source})"
        ),
    ),
)  # fmt: skip
