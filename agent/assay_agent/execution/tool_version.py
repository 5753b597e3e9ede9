"""The version and the options of a tool on this box, from its own ``--help``.

Between releases of Nsight, options come, go and change their defaults, and an unknown option is fatal, so
commands are built from what the tool itself lists. Source: docs/nvidia-tools.md, "Releases".
"""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path

from assay_agent.execution.classify import refuse_killed
from assay_agent.execution.errors import ProfilerError
from assay_core.processes.tool_run import ToolResult, run_tool
from assay_sampling.nsight.tool import ToolVersion
from assay_sampling.running.failures import FailureClass

__all__ = ["ToolBox", "ToolVersion", "parse_options", "parse_version"]

_VERSION = re.compile(r"\b[Vv]ersion:?\s+(\d{4}\.\d+(?:\.\d+)*)")
_FLAG = re.compile(r"^\s{0,8}(?:-\w(?:,\s*|\s+\[\s*))?(--[a-z][a-z0-9-]*)", re.MULTILINE)
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_QUESTION_SECONDS = 60.0


def parse_version(text: str) -> str:
    """The version in the output of ``--version``, "" if it has none."""
    match = _VERSION.search(text)
    return match[1] if match else ""


def parse_options(help_text: str) -> dict[str, frozenset[str]]:
    """The long options in the output of ``--help``, each with the text next to and below it."""
    flags = list(_FLAG.finditer(help_text))
    ends = [*(match.start() for match in flags[1:]), len(help_text)]
    options: dict[str, frozenset[str]] = {}
    for match, end in zip(flags, ends, strict=True):
        words = frozenset(_WORD.findall(help_text[match.end() : end]))
        options[match[1]] = options.get(match[1], frozenset()) | words
    return options


class ToolBox:
    """Looks tools up and asks each once, until its file changes; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._versions: dict[tuple[object, ...], ToolVersion] = {}

    def tool(
        self,
        program: str,
        help_arguments: tuple[str, ...],
        environment: Mapping[str, str],
        directory: Path,
        answering: Mapping[str, str] | None = None,
    ) -> ToolVersion:
        """The tool ``program`` in the PATH of ``environment``; raises ProfilerError if it is unusable.

        ``answering``: further variables of the environment that change its answers.
        """
        path = shutil.which(program, path=environment.get("PATH", ""))
        if path is None:
            raise ProfilerError(
                FailureClass.TOOL_UNUSABLE,
                program,
                "it is not in the PATH of the agent",
                "install NVIDIA Nsight on the box, or start the agent with a PATH that has it",
            )
        state = Path(path).stat()
        key = (
            path,
            state.st_mtime_ns,
            state.st_size,
            environment.get("PATH"),
            *sorted((answering or {}).items()),
        )
        with self._lock:
            if key not in self._versions:
                self._versions[key] = _ask(path, help_arguments, environment, directory)
            return self._versions[key]


def _ask(
    path: str, help_arguments: tuple[str, ...], environment: Mapping[str, str], directory: Path
) -> ToolVersion:
    def answer(*arguments: str) -> ToolResult:
        result = run_tool(
            [path, *arguments],
            environment=environment,
            directory=directory,
            timeout_seconds=_QUESTION_SECONDS,
        )
        refuse_killed(path, result)
        if result.exit_code != 0:
            raise _useless(path, arguments, result)
        return result

    first = answer("--version")
    version = parse_version(first.stdout + first.stderr)
    if not version:
        raise _useless(path, ("--version",), first)
    second = answer(*help_arguments)
    options = parse_options(second.stdout + second.stderr)
    if not options:
        raise _useless(path, help_arguments, second)
    return ToolVersion(path, version, options)


def _useless(path: str, arguments: tuple[str, ...], result: ToolResult) -> ProfilerError:
    lines = (result.stdout + result.stderr).strip().splitlines() or ["nothing"]
    return ProfilerError(
        FailureClass.TOOL_UNUSABLE,
        f"{path} {' '.join(arguments)}",
        f"it does not answer as NVIDIA's tool does ({result.ending}); it says: {lines[-1][:300]}",
        "run the command by hand as the agent's user, and install the tool again",
    )
