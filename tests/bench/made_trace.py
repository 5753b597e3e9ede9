"""A synthetic Kineto trace of any length: a transformer's operators with their launches, by seed.

Of each operator one or two kernels are launched; sequence lengths change from step to step, so that operators
have several input shapes, of which some are rare. A launch has what it has in three real traces (training on
V100 and A100, 2022; 2.4 to 3.6 kB a launch, here 2.0): another call, flow events, events of memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

_HIDDEN, _HEADS, _LAYERS = 768, 12, 12
# An operator, the one that it calls, its kernels, and microseconds a token.
_OF_LAYER = (
    ("aten::layer_norm", "aten::native_layer_norm", ("vectorized_layer_norm_kernel",), 0.010),
    ("aten::linear", "aten::addmm", ("ampere_bf16_s16816gemm_bf16_128x128_tn", "splitKreduce_kernel"), 0.060),
    ("aten::scaled_dot_product_attention", "aten::_flash_attention_forward", ("flash_fwd_kernel",), 0.050),
    ("aten::linear", "aten::addmm", ("ampere_bf16_s16816gemm_bf16_64x64_tn",), 0.020),
    ("aten::add", "", ("vectorized_elementwise_kernel",), 0.004),
    ("aten::gelu", "", ("vectorized_elementwise_kernel",), 0.006),
    ("aten::dropout", "aten::native_dropout", ("fused_dropout_kernel_vec",), 0.005),
    ("aten::mul", "", ("elementwise_kernel", "reduce_kernel"), 0.007),
)
_THREAD = {"pid": 1, "tid": 1}
_HOST = {"ph": "X", **_THREAD}
_HEAD = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "Synthetic GPU", "computeMajor": 9, "computeMinor": 0}],
    "baseTimeNanoseconds": 0,
}


def write_trace(path: Path, launches: int, seed: int = 0) -> None:
    """Write a trace of at least ``launches`` launches."""
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps(_HEAD)[:-1] + ', "traceEvents": [\n')
        for number, event in enumerate(_events(launches, np.random.default_rng(seed))):
            file.write((",\n" if number else "") + json.dumps(event))
        file.write("\n]}\n")


def _events(launches: int, rng: np.random.Generator) -> Iterator[dict[str, object]]:
    correlation, external, clock, device_clock = 1, 1, 0.0, 0.0
    lengths = np.minimum(32 * rng.geometric(0.08, 1 << 16), 4096).tolist()
    noise = np.exp(rng.normal(0, 0.05, 1 << 16)).tolist()
    step = 0
    while correlation <= launches:
        tokens = lengths[step % len(lengths)]
        step += 1
        for operator, inner, kernels, cost in _OF_LAYER * _LAYERS:
            dims = [[4, tokens, _HIDDEN], [_HIDDEN, _HIDDEN], [_HIDDEN]]
            began, called = clock, external
            external += 1
            if inner:
                external += 1
            for kernel in kernels:
                clock += 5.0
                yield _runtime("cudaStreamIsCapturing", clock - 2, external - 1, launches + correlation)
                yield _runtime("cudaLaunchKernel", clock, external - 1, correlation)
                duration = 2 + tokens * cost * noise[correlation % len(noise)]
                device_clock = max(device_clock, clock) + 1
                ids = (external - 1, correlation)
                yield _kernel(kernel, device_clock, duration, ids, max(tokens // 32, 1))
                yield _flow({"ph": "f", **_THREAD, "bp": "e"}, clock - 2, launches + correlation)
                yield _flow({"ph": "s", **_THREAD}, clock, correlation)
                yield _flow({"ph": "f", "pid": 0, "tid": 7, "bp": "e"}, device_clock, correlation)
                yield _memory(clock, 4096 * tokens)
                device_clock += duration
                correlation += 1
            clock += 6.0
            if inner:
                yield _memory(clock, -4096 * tokens)
                yield _operator(inner, began + 1, clock - began - 2, external - 1, dims)
            yield _operator(operator, began, clock - began, called, dims)
            clock += 2.0


def _operator(name: str, ts: float, dur: float, external: int, dims: object) -> dict[str, object]:
    args = {"External id": external, "Input Dims": dims, "Input type": ["c10::BFloat16"] * 3}
    return {**_HOST, "cat": "cpu_op", "name": name, "ts": ts, "dur": dur, "args": args}


def _runtime(name: str, ts: float, external: int, correlation: int) -> dict[str, object]:
    args = {"External id": external, "cbid": 211, "correlation": correlation}
    return {**_HOST, "cat": "cuda_runtime", "name": name, "ts": ts, "dur": 2.0, "args": args}


def _flow(end: dict[str, object], ts: float, correlation: int) -> dict[str, object]:
    return {**end, "id": correlation, "ts": round(ts, 3), "cat": "ac2g", "name": "ac2g"}


def _memory(ts: float, size: int) -> dict[str, object]:
    event = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", **_THREAD, "ts": ts}
    args = {
        "Ev Idx": 42070, "Device Type": 1, "Device Id": 0, "Addr": 139926520725504, "Bytes": size,
        "Total Allocated": 5435638784, "Total Reserved": 12782141440,
    }  # fmt: skip
    return {**event, "args": args}


def _kernel(name: str, ts: float, dur: float, ids: tuple[int, int], blocks: int) -> dict[str, object]:
    args = {
        "External id": ids[0], "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": ids[1],
        "registers per thread": 64, "shared memory": 0, "blocks per SM": 0.3, "warps per SM": 1.2,
        "grid": [blocks, 4, 1], "block": [256, 1, 1], "est. achieved occupancy %": 2,
    }  # fmt: skip
    times = {"ts": round(ts, 3), "dur": round(dur, 3)}
    functor = f"at::native::{name}_functor<c10::BFloat16, {len(name)}>, at::detail::Array<char*, 3>"
    full = f"void at::native::{name}<4, {functor}>(int, {functor})"
    return {"ph": "X", "cat": "kernel", "name": full, "pid": 0, "tid": 7, **times, "args": args}
