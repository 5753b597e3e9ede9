"""What CPU-only PyTorch's own profiler records, and which operations it gives.

``recorded/pytorch_2.14.1_cpu.json.gz`` was recorded by the documented line
(``torch.profiler.profile(record_shapes=True)``, ``export_chrome_trace``) around one step of a convolution,
ReLU and a linear layer, forward and backward, on a machine without a GPU; only its host's name was replaced.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from assay_sampling.errors import NoLaunchesError
from assay_sampling.operations.identity import Operation
from assay_sampling.readers.base import ReadOptions
from assay_sampling.readers.opening import read_launches
from tests.support.sampling.reader_files import operations, trace_call, trace_kernel, write

RECORDED = Path(__file__).parent / "recorded" / "pytorch_2.14.1_cpu.json.gz"


def document() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(gzip.decompress(RECORDED.read_bytes()))
    return read


def test_a_trace_without_kernels_is_refused_with_the_remedy() -> None:
    with pytest.raises(NoLaunchesError) as caught:
        read_launches(RECORDED)
    assert caught.value.cause == "the trace is whole but holds no kernels"
    assert "ProfilerActivity.CUDA" in caught.value.remedy


def test_operators_of_a_real_trace_are_operations_with_their_shapes(tmp_path: Path) -> None:
    """Made-up kernels, one launched in the middle of each of some operators, show which operation it is."""
    whole = document()
    launching = [event for event in whole["traceEvents"] if event["name"] in _LAUNCHING]
    for number, one in enumerate(launching, 1):
        middle = one["ts"] + one["dur"] / 2
        place = {"pid": one["pid"], "tid": one["tid"], "dur": 0}
        whole["traceEvents"] += [
            trace_call(middle, number, **place), trace_kernel(middle + 1e6, number, name="made_up")
        ]  # fmt: skip
    path = write(tmp_path / "trace.json", json.dumps(whole))
    launches = read_launches(path, ReadOptions(synthetic=True))
    found = operations(launches)
    assert len(found) == len(launching)
    assert [one for _, one in sorted(dict(found).items())] == [
        Operation("operator", name, shapes) for name, shapes in _EXPECTED
    ]


# Operators that call no other one, within those that count.
_LAUNCHING = ("aten::resize_", "aten::clamp_min", "aten::copy_", "aten::fill_", "aten::threshold_backward")
_EXPECTED = [
    ("aten::conv2d", "[[2,3,8,8],[4,3,3,3],[4],[],[],[],[]]"),
    ("aten::relu", "[[2,4,6,6]]"),
    ("aten::linear", "[[2,144],[5,144],[5]]"),
    ("aten::sum", "[[2,5],[]]"),
    ("aten::ones_like", "[[],[],[],[],[],[]]"),
    # Backward: neither the engine's ranges nor "AddmmBackward0" count.
    ("aten::mm", "[[2,5],[5,144]]"),
    ("aten::mm", "[[5,2],[2,144]]"),
    ("aten::sum", "[[2,5],[],[],[]]"),
    ("aten::threshold_backward", "[[2,4,6,6],[2,4,6,6],[]]"),
    ("aten::convolution_backward", "[[2,4,6,6],[2,3,8,8],[4,3,3,3],[],[],[],[],[],[],[],[]]"),
]
