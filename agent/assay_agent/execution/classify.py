"""Classifies the messages of tools: errors by failure class, and warnings that become validity flags.

Exit statuses say little (the workload's and the tool's are both small numbers, and some failures end in 0),
so failures are recognised by what the tools print. Tables are tried in order, the most certain and specific
rules first. Source: docs/nvidia-tools.md, "Messages and exit codes".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay_agent.execution.errors import ProfilerError
from assay_agent.execution.sick_disk import said_of_disk
from assay_core.processes.tool_run import ToolResult
from assay_core.records.validity_flag import ValidityFlag
from assay_sampling.running.failures import FailureClass

_LONGEST_QUOTE = 400
_APPLICATION_ENDED = "The application returned an error code"


@dataclass(frozen=True)
class Rule:
    """Lines that match ``pattern`` mean ``failure_class``; ``remedy`` replaces that of the class."""

    pattern: str
    failure_class: FailureClass
    remedy: str = ""

    def search(self, line: str) -> bool:
        return re.search(self.pattern, line, re.IGNORECASE) is not None


# What a workload says of them counts before its exit status.
_OF_GPU = (
    FailureClass.GPU_UNHEALTHY,
    FailureClass.DRIVER_UNUSABLE,
    FailureClass.GPU_BUSY,
    FailureClass.GPU_MEMORY,
)
_RULES: tuple[Rule, ...] = (
    Rule(
        r"driver is not compatible with Nsight Compute",
        FailureClass.TOOL_UNUSABLE,
        "Nsight Compute is newer than the driver: install the release of it that came with the driver's "
        "release of CUDA (nvidia-smi names that), or a newer driver",
    ),
    Rule(r"ERR_NVGPUCTRPERM", FailureClass.PERMISSION),
    Rule(r"insufficient privilege|permission to access NVIDIA GPU Performance", FailureClass.PERMISSION),
    Rule(
        r"Failed to initialize the profiler|LibraryNotLoaded",
        FailureClass.PERMISSION,
        "use Nsight Compute of the driver's release of CUDA, on a box that lets containers read counters: a "
        "sandbox such as gVisor does not",
    ),
    Rule(r"driver resource was unavailable", FailureClass.COUNTER_BUSY),
    Rule(r"Failed to open/create lock file|interprocess lock", FailureClass.LOCK_FILE),
    Rule(r"Failed to find metric|Failed to access the following metrics", FailureClass.METRIC_UNKNOWN),
    Rule(
        r"Unsupported GPU|GPU is not supported",
        FailureClass.METRIC_UNKNOWN,
        "install the last release of the tool that knows this GPU (CUDA 13 dropped Volta)",
    ),
    Rule(
        r"No space left on device|Insufficient memory and disk space|Unable to write to file|"
        r"Failed to create temporary file|disk is full|Input/output error|Read-only file system|"
        r"Disk quota exceeded",
        FailureClass.DISK_FULL,
    ),
    Rule(
        r"GPU (is|has been) lost|fallen off the bus|\bXid\b|uncorrectable ECC|LaunchFailed|"
        r"unspecified launch failure|CUDA error (214|719|79)\b",
        FailureClass.GPU_UNHEALTHY,
    ),
    Rule(
        r"failed to connect to the CUDA driver|no CUDA-capable device|CUDA error 100\b|"
        r"CUDA driver version is insufficient",
        FailureClass.DRIVER_UNUSABLE,
    ),
    Rule(
        r"CUDA-capable devices? ?(\(s\) )?(is/are|are|is) busy or unavailable|CUDA error (46|80[5-9])\b|"
        r"cudaErrorDevicesUnavailable|CUDA_ERROR_DEVICE_UNAVAILABLE|"
        r"MPS client failed to connect|cudaErrorMps|CUDA_ERROR_MPS_",
        FailureClass.GPU_BUSY,
    ),
    Rule(
        r"CUDA error 2\b|cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY|(?<!runtime: )\bout of memory\b",
        FailureClass.GPU_MEMORY,
    ),
    Rule(
        r"Importer error|importation of the QDSTRM|Wrong event order has been detected",
        FailureClass.IMPORTER_FAILED,
    ),
    Rule(r"Failed to load report file|Could not open report file", FailureClass.REPORT_SHORT),
    Rule(
        r"already exists\. Use '-f'|Failed to create '.*': File exists",
        FailureClass.LOCK_FILE,
        "remove the file, or give the agent another state directory",
    ),
    Rule(
        r"does not exist or is not an executable|No such file or directory|Executable not found|"
        r"cannot be run",
        FailureClass.APPLICATION_FAILED,
        "correct the command in the campaign file: it is run in the folder of that file",
    ),
    Rule(
        r"unrecognised option|did not match any section|is ambiguous and matches|argument .*is invalid",
        FailureClass.INTERNAL,
        "report it to the authors of Assay: they do not know this release of the tool yet",
    ),
    # Last, for what no rule above explains. The tool then ends the workload, so its status says nothing.
    Rule(
        r"Failed to prepare kernel for profiling|Failed to profile \"|error occurred while trying to profile",
        FailureClass.INTERNAL,
        "use Nsight Compute of the release of CUDA that driver and workload have; run its command from the "
        "attempt's log by hand on the box",
    ),
    Rule(_APPLICATION_ENDED, FailureClass.APPLICATION_FAILED),
)
# What a workload itself says before it ends with an error, where its words tell more than "fix it" can.
_OF_WORKLOAD: tuple[Rule, ...] = (
    Rule(
        r"EOF when reading a line|Inappropriate ioctl for device|(not|isn't) a (tty|terminal|TTY)|"
        r"/dev/tty\b|Error opening terminal|TERM environment variable not set",
        FailureClass.APPLICATION_FAILED,
        "it asks for a terminal or for input, and a run has neither: give it its answers as arguments or in "
        "a file, and switch its progress display off",
    ),
    Rule(
        r"invalid device ordinal|CUDA error 101\b|cudaErrorInvalidDevice|CUDA_ERROR_INVALID_DEVICE",
        FailureClass.APPLICATION_FAILED,
        "it asks for a GPU that the run does not have: let it use GPU 0 alone, or give the workload so many "
        "GPUs with 'gang' in a campaign file",
    ),
)
_OWN_LINE = re.compile(r"^(==(ERROR|WARNING|PROF)==|ERROR:|Importer|Exportation error|.*Failed to create)")
_ENDED_WITH = re.compile(r"The application returned an error code \((\d+)\)")

_FLAGS: tuple[tuple[str, str], ...] = (
    (r"Profiling without locked clocks|(Failed to|Cannot) lock GPU clock", "clock_unlocked"),
)


def classify(lines: Sequence[str]) -> tuple[Rule, str] | None:
    """The first rule of the table that a line matches, with that line; None if no line matches.

    Progress lines are skipped: they quote the names of kernels, which can hold any text.
    """
    telling = [line for line in lines if not line.startswith("==PROF==")]
    for rule in _RULES:
        for line in telling:
            if rule.search(line):
                return rule, line
    return None


def ended_with_error(line: str) -> bool:
    """Whether a line of Nsight Compute says that the workload ended with an error."""
    return _ENDED_WITH.search(line) is not None


def failure_in(subject: str, lines: Sequence[str], *, ignoring: Sequence[FailureClass] = ()) -> None:
    """Raise the ProfilerError that the lines of a tool mean; return if they mean no failure."""
    match = classify(lines)
    if match is None or match[0].failure_class in ignoring:
        return
    rule, line = match
    raise ProfilerError(
        rule.failure_class, subject, f"the tool says: {quoted(line)}", rule.remedy, tool_said=line
    )


def application_failure(subject: str, lines: Sequence[str], output: str) -> None:
    """Raise if the tool says that the workload ended with an error; ``output`` is the workload's.

    What the workload says about GPU and disk counts before its exit status, and its last line is quoted.
    """
    line = next((text for text in lines if _ENDED_WITH.search(text)), None)
    if line is not None:
        raise workload_failed(subject, f"the tool says: {quoted(line)}", output)


def workload_failed(subject: str, cause: str, output: str) -> ProfilerError:
    """The failure of a workload that ended with an error, from its own output."""
    gpu_rules = [rule for rule in _RULES if rule.failure_class in _OF_GPU]
    for rule in gpu_rules:
        line = next((text for text in output.splitlines() if rule.search(text)), None)
        if line is not None:
            words = f"{cause}; the workload says: {quoted(line)}"
            return ProfilerError(rule.failure_class, subject, words, rule.remedy, tool_said=line)
    disk = said_of_disk(output)
    if disk is not None:
        words = f"{cause}; the workload says: {quoted(disk)}"
        return ProfilerError(FailureClass.DISK_FULL, subject, words, tool_said=disk)
    for rule in _OF_WORKLOAD:
        line = next((text for text in output.splitlines() if rule.search(text)), None)
        if line is not None:
            words = f"{cause}; the workload says: {quoted(line)}"
            return ProfilerError(rule.failure_class, subject, words, rule.remedy, tool_said=line)
    words = f"{cause}; the last words of its output: {last_words(output)}"
    return ProfilerError(FailureClass.APPLICATION_FAILED, subject, words)


def refuse_killed(subject: str, result: ToolResult) -> None:
    """Raise if the tool itself was killed, which says nothing about the workload: a retry can help."""
    killed = result.exit_code is None and not result.problem
    if killed and not (result.cancelled or result.timed_out):
        raise ProfilerError(
            FailureClass.REPORT_SHORT,
            subject,
            f"{Path(result.argv[0]).name} was killed ({result.ending}), by a person or for lack of memory",
        )


def flags_in(lines: Sequence[str]) -> Iterator[ValidityFlag]:
    """Validity flags from warnings, each once, with the first line that causes it."""
    for pattern, name in _FLAGS:
        line = next((text for text in lines if re.search(pattern, text)), None)
        if line is not None:
            yield ValidityFlag.of_kind(name, quoted(line))


def quoted(line: str) -> str:
    """A line of a tool, as messages quote it."""
    line = line.strip()
    return line if len(line) <= _LONGEST_QUOTE else line[: _LONGEST_QUOTE - 3] + "..."


def own_lines(text: str) -> list[str]:
    """The lines that the tool itself wrote to a channel that it shares with the workload."""
    return [line for line in text.splitlines() if _OWN_LINE.match(line)]


def last_words(text: str) -> str:
    """The last line that is not blank."""
    return next((quoted(line) for line in reversed(text.splitlines()) if line.strip()), "nothing")
