"""The options of Nsight Compute by version, and its help in the layout of the real one.

Source: ``ncu --help`` of 2022.3.0 and 2024.1.1; for 2026 docs/nvidia-tools.md, "Releases".
"""

from __future__ import annotations

from collections.abc import Iterator

from assay_virtual.tools.environment import version_key
from assay_virtual.tools.options import Option

_2023, _2024, _2026 = (2023, 1), (2024, 1), (2026, 1)


def _flag(name: str, help_: str, **more: object) -> Option:
    return Option(name, "flag", help=help_, **more)  # type: ignore[arg-type]


def _bool(name: str, default: str, help_: str, **more: object) -> Option:
    return Option(name, "bool", default, help=help_, **more)  # type: ignore[arg-type]


def _text(name: str, help_: str, default: str | None = None, **more: object) -> Option:
    return Option(name, "text", default, help=help_, **more)  # type: ignore[arg-type]


def _count(name: str, help_: str, default: str | None = None, **more: object) -> Option:
    return Option(name, "count", default, help=help_, **more)  # type: ignore[arg-type]


def _choice(name: str, default: str | None, choices: str, help_: str, **more: object) -> Option:
    return Option(name, "choice", default, choices=tuple(choices.split()), help=help_, **more)  # type: ignore[arg-type]


_GENERAL = (
    _flag("help", "Show this text.", short="h"),
    _flag("version", "Show the version.", short="v"),
    _choice("mode", "launch-and-attach", "launch-and-attach launch attach", "How to reach the program."),
    _count("port", "First port to connect through.", "49152", short="p"),
    _count("max-connections", "Number of ports.", "64"),
    _bool("config-file", "1", "Read options from config.ncu-cfg.", since=_2023),
    _text("config-file-path", "Where config.ncu-cfg is.", since=_2023),
)
_LAUNCH = (
    _bool("check-exit-code", "1", "Complain where the program does not end with 0."),
    _text("injection-path-32", "Folder of the 32-bit injection.", "../linux-desktop-glibc_2_11_3-x86"),
    _text("injection-path-64", "Folder of the injection."),
    _text("preload-library", "Library to load first.", since=_2023, repeated=True),
    _flag("call-stack", "Collect call stacks of the CPU."),
    _flag("nvtx", "Collect NVTX ranges."),
    _flag("support-32bit", "Follow 32-bit programs."),
    _choice("target-processes", "application-only", "application-only all", "Which processes.", before=_2023),
    _choice("target-processes", "all", "application-only all", "Which processes.", since=_2023),
    _text("target-processes-filter", "Processes by name."),
    _flag("null-stdin", "Give the program /dev/null as its input."),
)
_ATTACH = (_text("hostname", "Host to attach to."),)
_PROFILE = (
    _bool("kill", "0", "End the program after the last launch that was asked for."),
    _choice("replay-mode", "kernel", "kernel application range app-range", "What is replayed."),
    _choice("app-replay-buffer", "file", "file memory", "Where passes are kept."),
    _choice("app-replay-match", "grid", "name grid all", "How launches of passes are matched."),
    _choice("app-replay-mode", "strict", "strict relaxed", "Whether all must match.", before=_2026),
    _choice("app-replay-mode", "balanced", "strict balanced relaxed", "Who must match.", since=_2026),
    _choice("graph-profiling", "node", "node graph", "What of a graph is profiled.", since=_2023),
    _text("range-replay-options", "Options of range replay."),
    _flag("list-sets", "List the sets of sections."),
    _text("set", "Set of sections to collect.", repeated=True),
    _flag("list-sections", "List the sections."),
    _text("section-folder", "Folder of sections.", repeated=True),
    _text("section-folder-recursive", "Folder of sections and those below.", repeated=True),
    _flag("section-folder-restore", "Put the stock sections back."),
    _flag("list-rules", "List the rules."),
    _bool("apply-rules", "1", "Apply the rules of the sections."),
    _text("rule", "Rule to apply.", repeated=True),
    _bool("import-source", "0", "Put source files into the report."),
    _text("source-folders", "Folders of source files.", since=_2023),
    _flag("list-metrics", "List the metrics that would be collected."),
    _flag("query-metrics", "List the metrics of chips."),
    _choice("query-metrics-mode", "base", "base suffix all", "Form of their names."),
    _choice("query-metrics-collection", "profiling", "profiling pmsampling", "Collected how.", since=_2023),
    _flag("list-chips", "List the chips."),
    _text("chips", "Chips to list metrics of."),
    _bool("profile-from-start", "1", "Profile before cudaProfilerStart."),
    _flag("disable-profiler-start-stop", "Ignore cudaProfilerStart and cudaProfilerStop."),
    _flag("quiet", "Say nothing."),
    _flag("verbose", "Say more.", since=_2023),
    _choice("cache-control", "all", "all none", "Flush the caches before each pass, or not."),
    _choice("clock-control", "base", "base none reset", "Lock the clocks.", before=_2026),
    _choice("clock-control", "boost", "base boost force-boost none reset", "Lock clocks.", since=_2026),
    _choice("pipeline-boost-state", "stable", "stable dynamic", "Tensor core clocks.", since=_2026),
    _bool("forward-signals", "0", "Give signals on to the program.", since=_2026),
    _bool("import-sass", "1", "Put machine code into the report.", since=_2026),
    _bool("rename-kernels", "1", "Simplify the names of kernels.", since=_2026),
)
_FILTER = (
    _text("devices", "Devices to profile on."),
    _choice("filter-mode", "global", "global per-gpu per-launch-config", "What filters count."),
    _text("kernel-id", "context:stream:name:invocation of launches.", repeated=True),
    _text("kernel-name", "Name of kernels, or regex:...", short="k", repeated=True),
    _choice("kernel-name-base", "function", "function demangled mangled", "Which form of the name."),
    _count("launch-count", "Profile at most so many launches.", short="c"),
    _count("launch-skip", "Skip so many launches that match.", "0", short="s"),
    _count("launch-skip-before-match", "Skip so many launches.", "0"),
    _text("section", "Section to collect.", repeated=True),
    _text("metrics", "Metrics to collect, separated by comma.", repeated=True),
    _flag("disable-extra-suffixes", "Collect what is named and nothing more.", since=_2023),
    _text("nvtx-include", "Only inside these ranges.", repeated=True),
    _text("nvtx-exclude", "Not inside these ranges.", repeated=True),
    _text("range-filter", "Which instances of a range.", since=_2023),
)
_SAMPLING = (
    _text("pm-sampling-interval", "Interval.", "0", since=_2023),
    _text("pm-sampling-buffer-size", "Bytes.", "0", since=_2023),
    _text("pm-sampling-max-passes", "Passes.", "0", since=_2023),
    _text("sampling-interval", "Interval.", "auto", before=_2023),
    _text("sampling-max-passes", "Passes.", "5", before=_2023),
    _text("sampling-buffer-size", "Bytes.", "33554432", before=_2023),
    _text("warp-sampling-interval", "Interval.", "auto", since=_2023),
    _text("warp-sampling-max-passes", "Passes.", "5", since=_2023),
    _text("warp-sampling-buffer-size", "Bytes.", "33554432", since=_2023),
)
_FILE = (
    _text("log-file", "Where all that the tool says goes."),
    _text("export", "The report to write.", short="o"),
    _flag("force-overwrite", "Overwrite the report.", short="f"),
    _text("import", "The report to read.", short="i"),
    _flag("open-in-ui", "Open the report in the user interface."),
)
_CONSOLE = (
    _flag("csv", "Print values separated by comma."),
    _choice("page", None, "details raw source session", "Page to print.", before=_2023),
    _choice("page", "details", "details raw source session", "Page to print.", since=_2023),
    _text("print-source", "Source view."),
    _text("resolve-source-file", "Source files."),
    _flag("details-all", "All metrics of sections.", before=_2023),
    _choice("print-details", "header", "header body all", "Which metrics of sections.", since=_2023),
    _choice("print-metric-name", "label", "label name label-name", "How metrics are named.", since=_2023),
    _choice("print-units", "auto", "auto base", "Scale values, or print base units."),
    _flag("print-fp", "Print all numbers as floating point."),
    _choice("print-kernel-base", "demangled", "function demangled mangled", "Which form of names."),
    _choice("print-metric-instances", "none", "none values details", "Print instances."),
    _choice("print-nvtx-rename", "none", "none kernel", "Rename kernels by range."),
    _flag("print-rule-details", "Details of rules."),
    _choice("print-summary", "none", "none per-gpu per-kernel per-nvtx", "Summary."),
)
_GROUPS = {
    "General Options": _GENERAL,
    "Launch Options": _LAUNCH,
    "Attach Options": _ATTACH,
    "Common Profile Options": _PROFILE,
    "Filter Profile Options": _FILTER,
    "Sampling Options": _SAMPLING,
    "File Options": _FILE,
    "Console Output Options": _CONSOLE,
}


def ncu_options(version: str) -> list[Option]:
    """The options of a version such as "2024.1.1.0"."""
    key = version_key(version)
    return [option for group in _GROUPS.values() for option in group if option.exists(key)]


def ncu_help(version: str) -> str:
    """The output of ``--help``: every option of the version in the real layout, explained in our words."""
    return "\n".join(_help_lines(version_key(version))) + "\n"


def _help_lines(key: tuple[int, int]) -> Iterator[str]:
    yield "usage: ncu [options] [program] [program-arguments]"
    for title, group in _GROUPS.items():
        yield ""
        yield f"{title}:"
        for option in group:
            if option.exists(key):
                yield from _option_lines(option)
    yield ""
    yield "This is the stand-in of assay virtual: it profiles workload files on a virtual GPU."


def _option_lines(option: Option) -> Iterator[str]:
    name = f"-{option.short} [ --{option.name} ]" if option.short else f"--{option.name}"
    if option.kind != "flag":
        name += " arg" if option.default is None else f" arg (={option.default})"
    yield f"  {name:<37} {option.help}" if len(name) < 37 else f"  {name}\n{'':40}{option.help}"
    for choice in option.choices:
        yield f"{'':42}{choice}"


def refusal_status(version: str) -> int:
    """Exit status if the tool does not even start: 255 until 2022, 1 later."""
    return 1 if version_key(version) >= _2023 else 255
