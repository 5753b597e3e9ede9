"""Reads a workload file: every fault is an InputError that names the TOML key, or the line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay_sampling.errors import InputError
from assay_virtual.architectures import COMPUTE_CAPABILITIES
from assay_virtual.workloads.checked import Fault, Part, read_table
from assay_virtual.workloads.workload import Call, Kernel, Launch, Loop, Workload, variables_of

LARGEST_FILE_BYTES = 1 << 20
MOST_LAUNCHES = 20_000_000
DEEPEST_NESTING = 8
_REMEDY = "'assay docs virtual-gpu' has the keys"


def load_workload(path: str | Path) -> Workload:
    """Read and check a workload file.

    Raises InputError naming the TOML key (``phases[0].steps[1].grid``), or the line if the file is not
    TOML.
    """
    path = Path(path)
    document = _document(path)
    try:
        workload = replace(read_table(Workload, document), path=path)
    except Fault as fault:
        raise _input_error(path, fault) from fault
    except RecursionError as error:
        raise _too_deep(path) from error
    for key, kernel in workload.kernels.items():
        _check_kernel(workload, key, kernel)
    if workload.autotune is not None:
        for name in (workload.autotune.kernel, *workload.autotune.candidates):
            _check_known(workload, "autotune", "kernel", name, workload.kernels)
    for name, operator in workload.operators.items():
        for variant, steps in {"steps": operator.steps, **operator.variants}.items():
            part = variant if variant == "steps" else f"variants.{_quoted(variant)}"
            for index, launch in enumerate(steps):
                at = f"operators.{_quoted(name)}.{part}[{index}].kernel"
                _check_known(workload, at, "kernel", launch.kernel, workload.kernels)
    for index, phase in enumerate(workload.phases):
        _check_loop(workload, phase, f"phases[{index}]", [])
    _check_launches(workload)
    return workload


def _document(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE_BYTES + 1)
        if len(content) > LARGEST_FILE_BYTES:
            raise InputError(path, f"it is longer than {LARGEST_FILE_BYTES:,} bytes", "give a workload file")
        return tomllib.loads(content.decode())
    except OSError as error:
        raise InputError(path, f"it cannot be read ({error.strerror})", "give a workload file") from error
    except UnicodeDecodeError as error:
        raise InputError(path, "it is not UTF-8 text", "give a workload file") from error
    except tomllib.TOMLDecodeError as error:
        match = re.search(r"line (\d+)", str(error))
        line = int(match[1]) if match else None
        raise InputError(path, f"it is not TOML: {error}", "correct the line", line=line) from error
    except RecursionError as error:
        raise _too_deep(path) from error


def _too_deep(path: Path) -> InputError:
    return InputError(path, "its values are nested too deeply", "give a workload file")


def _input_error(path: Path, fault: Fault, *before: Part) -> InputError:
    key = ""
    for part in (*before, *fault.parts):
        key += f"[{part}]" if isinstance(part, int) else f".{_quoted(part)}" if key else _quoted(part)
    return InputError(path, fault.cause, _REMEDY, field=key or "(top level)")


def _quoted(key: str) -> str:
    """A key as TOML writes it: with a dot, in quotes."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else f'"{key}"'


def _check_known(workload: Workload, key: str, kind: str, name: str, names: Iterable[str]) -> None:
    if name not in names:
        listed = ", ".join(names) or "none"
        raise InputError(workload.path, f"there is no {kind} {name!r}", f"there is {listed}", field=key)


def _check_kernel(workload: Workload, key: str, kernel: Kernel) -> None:
    for capability in COMPUTE_CAPABILITIES:
        variant = ("variants", capability) if capability in kernel.variants else ()
        at = ".".join(["kernels", *map(_quoted, (key, *variant))])
        try:
            built = kernel.on(capability)
        except Fault as fault:
            raise _input_error(workload.path, fault, "kernels", key, *variant) from fault
        for part in ("reads", "writes"):
            for buffer in getattr(built, part):
                _check_known(workload, f"{at}.{part}", "buffer", buffer, workload.buffers)


def _check_loop(workload: Workload, loop: Loop, key: str, around: list[Loop]) -> None:
    if len(around) >= DEEPEST_NESTING:
        cause = f"loops are nested more than {DEEPEST_NESTING} deep"
        raise InputError(workload.path, cause, "unroll some of them", field=key)
    in_graph = any(outer.graph for outer in around)
    if in_graph and (loop.graph or loop.host_ns or loop.synchronize or loop.nvtx):
        cause = "graph, host_ns, synchronize and nvtx are not allowed inside a graph"
        raise InputError(workload.path, cause, "move them to a loop around the graph", field=key)
    around = [*around, loop]
    variables = [name for outer in around for name in outer.variables]
    for index, step in enumerate(loop.steps):
        inner = f"{key}.steps[{index}]"
        if isinstance(step, Loop):
            _check_loop(workload, step, inner, around)
        elif isinstance(step, Launch):
            _check_known(workload, f"{inner}.kernel", "kernel", step.kernel, workload.kernels)
            _check_variables(workload, step, inner, variables)
        else:
            if in_graph or loop.graph:
                cause = "an operator cannot be called inside a graph, whose replay calls none"
                raise InputError(workload.path, cause, "list its launches there", field=inner)
            _check_call(workload, step, inner, variables)


def _check_call(workload: Workload, call: Call, key: str, variables: list[str]) -> None:
    """That the operator exists, and its launches and shapes find their variables around this call."""
    _check_known(workload, f"{key}.call", "operator", call.call, workload.operators)
    operator = workload.operators[call.call]
    _check_shapes(workload, operator.input_shapes, key, variables)
    for launch in (launch for steps in (operator.steps, *operator.variants.values()) for launch in steps):
        _check_variables(workload, launch, key, variables)


def _check_variables(workload: Workload, launch: Launch, key: str, variables: list[str]) -> None:
    for part in ("grid_by", "work_by"):
        name = getattr(launch, part)
        if isinstance(name, str):
            _check_known(workload, f"{key}.{part}", "variable of a loop around", name, variables)
    _check_shapes(workload, launch.input_shapes, key, variables)


def _check_shapes(workload: Workload, shapes: str | None, key: str, variables: list[str]) -> None:
    for name in variables_of(shapes):
        _check_known(workload, f"{key}.input_shapes", "variable of a loop around", name, variables)


def _check_launches(workload: Workload) -> None:
    for capability in COMPUTE_CAPABILITIES if workload.operators else COMPUTE_CAPABILITIES[:1]:
        for process in range(workload.processes):
            total = workload.launches(process, capability)
            if not 1 <= total <= MOST_LAUNCHES:
                cause = f"process {process} makes {total:,} launches"
                remedy = f"1 to {MOST_LAUNCHES:,} are possible"
                raise InputError(workload.path, cause, remedy, field="phases")
