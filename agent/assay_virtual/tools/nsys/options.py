"""The options of Nsight Systems by version.

Source: ``nsys profile --help`` and ``nsys export --help`` of 2022.4.2 and 2023.4.4.
"""

from __future__ import annotations

from assay_virtual.tools.environment import version_key
from assay_virtual.tools.options import CommandLine, Option, UsageError

_2023_4, _2025_1 = (2023, 4), (2025, 1)
_PLAIN = (
    "backtrace:b capture-range:c capture-range-end command-file cpu-core-events "
    "cuda-um-cpu-page-faults cuda-um-gpu-page-faults cudabacktrace delay:y duration:d duration-frames "
    "event-sample export ftrace ftrace-keep-user-config gpu-metrics-device "
    "gpu-metrics-frequency gpu-metrics-set gpuctxsw hotkey-capture inherit-environment:n kill mpi-impl "
    "nic-metrics nvtx-capture:p nvtx-domain-exclude nvtx-domain-include opengl-gpu-workload os-events "
    "osrt-backtrace-stack-size osrt-backtrace-threshold osrt-threshold resolve-symbols run-as "
    "samples-per-backtrace sampling-period session-new show-output:w start-frame-index stats stop-on-exit:x "
    "trace-fork-before-exec vulkan-gpu-workload wait"
)
_NEW_IN_2023_4 = (
    "event-sampling-interval flush-on-cudaprofilerstop gpu-video-device python-backtrace "
    "python-nvtx-annotations python-sampling "
    "python-sampling-frequency start-later:Y"
)
_TRACES = (
    "cuda", "nvtx", "cublas", "cublas-verbose", "cusparse", "cusparse-verbose", "mpi", "oshmem", "ucx",
    "nvvideo", "osrt", "cudnn", "opengl", "opengl-annotations", "openacc", "openmp", "vulkan",
    "vulkan-annotations", "none",
)  # fmt: skip
_ANNOTATIONS = ("autograd-nvtx", "autograd-shapes-nvtx", "functions-trace", "none")
_SAMPLED = ("process-tree", "system-wide", "none")
EXPORT_TYPES = ("sqlite", "hdf", "text", "json", "info", "arrow", "arrowdir", "parquetdir")
EXPORT_TYPES_2021 = ("sqlite", "hdf", "text", "json", "info")


def _texts(names: str, **more: tuple[int, int]) -> list[Option]:
    pairs = (name.partition(":") for name in names.split())
    return [Option(name, "text", short=short, **more) for name, _, short in pairs]  # type: ignore[arg-type]


_PROFILE = (
    *_texts(_PLAIN),
    *_texts(_NEW_IN_2023_4, since=_2023_4),
    Option("event-sampling-frequency", before=_2023_4),
    Option("cpuctxsw", default="process-tree"),
    Option("cuda-flush-interval", "count"),
    Option("cuda-graph-trace", default="graph"),
    Option("cuda-memory-usage", default="false"),
    Option("env-var", short="e", repeated=True),
    Option("force-overwrite", default="false", short="f"),
    Option("help", "flag", short="h"),
    Option("output", default="report#", short="o"),
    Option("pytorch", default="none", since=_2025_1),
    Option("sample", default="process-tree", short="s"),
    Option("trace", default="cuda,opengl,nvtx,osrt", short="t"),
)
_EXPORT = (
    Option("append", "flag", since=_2023_4),
    Option("force-overwrite", "bool", "false", short="f"),
    Option("help", "flag", short="h"),
    Option("lazy", "bool", "true", short="l"),
    Option("output", short="o"),
    Option("quiet", "bool", "false", short="q"),
    Option("separate-strings", "bool", "false"),
    Option("tables", since=_2023_4, repeated=True),
    Option("times", since=_2023_4, repeated=True),
    Option("ts-normalize", "bool", "false", since=_2023_4),
    Option("ts-shift", default="0", since=_2023_4),
    Option("type", short="t"),
)


def profile_options(version: str) -> list[Option]:
    """The options of ``nsys profile`` of a version such as "2023.4.4.54"."""
    return [option for option in _PROFILE if option.exists(version_key(version))]


def export_options(version: str) -> list[Option]:
    """The options of ``nsys export`` of a version."""
    return [option for option in _EXPORT if option.exists(version_key(version))]


def check_profile_values(command: CommandLine, version: str) -> None:
    """Raises UsageError with the tool's message for an invalid value of an option."""
    for trace in command.text("trace").split(","):
        if trace not in _TRACES:
            listed = ", ".join(f"'{name}'" for name in _TRACES[:-1])
            raise UsageError(
                f"Illegal --trace argument '{trace}'\n"
                f"Possible --trace values are one or more of {listed} or 'none'"
            )
    for name in ("sample", "cpuctxsw"):
        value = command.text(name)
        if value not in _SAMPLED:
            raise UsageError(
                f"Illegal --{name} argument: {value}.\n"
                f"Possible --{name} values are 'process-tree', 'system-wide', and 'none'."
            )
    for name in ("force-overwrite", "cuda-memory-usage"):
        value = command.text(name)
        if value not in ("true", "false"):
            raise UsageError(
                f"Illegal --{name} option-argument '{value}'.\n"
                f"Possible --{name} option-arguments are 'true' and 'false'."
            )
    if "pytorch" in {option.name for option in profile_options(version)}:
        _check_pytorch(command.text("pytorch"))
    graph = command.text("cuda-graph-trace")
    if graph.partition(":")[0] not in ("graph", "node"):
        old = version_key(version) < _2023_4
        possible = "\nPossible --cuda-graph-trace option-arguments are 'graph' or 'node'" if old else ""
        raise UsageError(f"Illegal --cuda-graph-trace argument: {graph}{possible}")


def _check_pytorch(annotations: str) -> None:
    for annotation in annotations.split(","):
        if annotation not in _ANNOTATIONS:
            raise UsageError(
                f"Illegal --pytorch argument '{annotation}'\n"
                f"Possible --pytorch values are one or more of {', '.join(_ANNOTATIONS)}"
            )


def options_help(command: str, options: list[Option]) -> str:
    """The output of a command's ``--help``: its options, in the layout of the real one."""
    what = "[application] [<application args>]" if command == "profile" else "[nsys-rep-file]"
    lines = ["", f"usage: nsys {command} [<args>] {what}", ""]
    for option in sorted(options, key=lambda option: option.short or option.name):
        name = f"-{option.short}, --{option.name}" if option.short else f"--{option.name}"
        lines += [f"\t{name}{'' if option.kind == 'flag' else '='}", ""]
    return "\n".join(lines) + "\n"
