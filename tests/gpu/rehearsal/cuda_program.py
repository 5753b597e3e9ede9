"""A program whose kernels the fake CUPTI records: those of a workload file, as a virtual GPU runs it.

    python cuda_program.py LIBCUPTI WORKLOAD.toml

Bare, and under the stand-in of ncu, only the workload file counts; the tracer is injected into this. Where a
run asks for the workload's own trace, the program writes one.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from assay_virtual.model.gpu import ProcessLaunches

# Run as a script in the environment of a workload, which knows no packages of ours.
_ROOT = Path(__file__).resolve().parents[3]
# As nvcc names the kernels of tests/gpu/workloads.
SYMBOLS = {
    "scale(const float *, float *, long, float)": b"_Z5scalePKfPflf",
    "combine(const float *, const float *, float *, long)": b"_Z7combinePKfS0_Pfl",
    "smooth(const float *, float *, long)": b"_Z6smoothPKfPfl",
    "step(float *, long, float)": b"_Z4stepPflf",
    "turn(float *, long)": b"_Z4turnPfl",
    "short_kernel(float *, int)": b"_Z12short_kernelPfi",
}
_KERNEL, _GRAPH = 0, 1  # enum fake_call
_PLAIN_GRAPH = 0  # enum fake_graph


class _Kernel(ctypes.Structure):
    """struct fake_kernel."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("start_ns", ctypes.c_uint64),
        ("end_ns", ctypes.c_uint64),
        ("grid", ctypes.c_int32 * 3),
        ("block", ctypes.c_int32 * 3),
        ("registers", ctypes.c_int32),
        ("static_bytes", ctypes.c_int32),
        ("dynamic_bytes", ctypes.c_int32),
        ("stream", ctypes.c_uint32),
    )


def main(library: str, workload: str) -> int:
    """Launch what the workload file says on the virtual GPU of this environment; the exit status."""
    sys.path[:0] = [str(_ROOT), *(str(_ROOT / name) for name in ("agent", "sampling"))]
    from assay_agent.profilers.kineto_file import KINETO_VARIABLE  # noqa: PLC0415 - see above
    from assay_sampling.running.identity import Condition  # noqa: PLC0415
    from assay_virtual.tools.environment import virtual_environment  # noqa: PLC0415
    from assay_virtual.tools.program import find_program, run_launches  # noqa: PLC0415
    from tests.gpu.rehearsal.own_trace import write_trace  # noqa: PLC0415

    environment = virtual_environment(os.environ)
    program = find_program([workload], environment)
    condition = Condition(cache="none", clock=environment.clock, sm_percent=environment.sm_percent)
    launches = run_launches(program, environment, 0, level="light", condition=condition)
    if own_trace := os.environ.get(KINETO_VARIABLE):
        write_trace(Path(own_trace), launches)
    fake = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    fake.fake_init()
    _launch(fake, launches)
    program.write_output(sys.stdout, sys.stderr)
    return program.ending.exit_code


def _launch(fake: ctypes.CDLL, launches: ProcessLaunches) -> None:
    """Make every launch call, each with its kernels."""
    rule_type = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint32)
    rules = {kind: rule_type(lambda _, kind=kind: kind) for kind in (_KERNEL, _GRAPH)}
    kernels, nodes = _described(launches), 0
    for first, stop in _calls(launches.call):
        is_graph = launches.graph_node[first] >= 0
        if is_graph and stop - first != nodes:
            nodes = stop - first
            fake.fake_make_graph(_PLAIN_GRAPH, nodes)
        fake.fake_describe(ctypes.byref(kernels, first * ctypes.sizeof(_Kernel)))
        fake.fake_call(rules[_GRAPH if is_graph else _KERNEL])


def _described(launches: ProcessLaunches) -> ctypes.Array[_Kernel]:
    kernels = (_Kernel * len(launches))()
    for i, described in enumerate(kernels):
        kernel = launches.kernels[launches.kernel[i]]
        start = int(launches.start_ns[i])
        described.name = SYMBOLS[kernel.name]
        described.start_ns, described.end_ns = start, start + int(launches.duration_ns[i])
        described.grid[:] = launches.grid[i].tolist()
        described.block[:] = kernel.block
        described.registers = kernel.registers
        described.static_bytes, described.dynamic_bytes = (
            kernel.static_shared_bytes,
            kernel.dynamic_shared_bytes,
        )
        described.stream = int(launches.stream[i])
    return kernels


def _calls(call: np.ndarray) -> Iterator[tuple[int, int]]:
    """[first, stop) of the launches of each API call."""
    ends = np.flatnonzero(np.append(np.diff(call) != 0, True)) + 1
    yield from zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
