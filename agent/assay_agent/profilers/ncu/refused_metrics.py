"""Metrics that Nsight Compute lists for a chip but refuses when it profiles: recognised, and remembered.

A refusal ends the whole profile before it names the metric. So each is kept on the agent's disk for this
tool, kind of GPU and driver, and no later slice asks for it again. Source: docs/nvidia-tools.md, "Metric
names".
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay_agent.execution.environment import MeasuredGPU
from assay_agent.execution.errors import ProfilerError
from assay_agent.execution.tool_version import ToolVersion
from assay_core.files import durable
from assay_core.files.private_folders import make_private_folder

# The most profiles of one attempt when metrics are refused.
MOST_ROUNDS = 5
_REFUSAL = re.compile(r"^==ERROR== Failed to find metrics?\b:?(.*)", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z]\w*(?:\.\w+)*")
_FOLDER = "ncu-metrics"
_MOST_KEPT = 1000
# Two GPUs of one agent may add metrics at the same time.
_WRITING = threading.Lock()


class MetricsRefusedError(ProfilerError):
    """The tool refused some of the metrics that it was asked for: ``metrics``."""

    def __init__(self, error: ProfilerError, metrics: tuple[str, ...]) -> None:
        super().__init__(error.failure_class, error.subject, error.cause, error.remedy)
        self.metrics = metrics


def refused_in(lines: Iterable[str], metrics: Sequence[str]) -> tuple[str, ...]:
    """Those of the ``metrics`` that the lines of a tool say it cannot find, with or without suffix."""
    texts = [match[1] for match in map(_REFUSAL.match, lines) if match]
    words = {word for text in texts for word in _WORD.findall(text)}
    return tuple(metric for metric in metrics if metric in words or metric.partition(".")[0] in words)


@dataclass(frozen=True)
class RefusalMemory:
    """The metrics that a tool refused on a kind of GPU, in one small file."""

    path: Path

    def read(self) -> frozenset[str]:
        """The metrics; empty if none are known or the file cannot be read."""
        try:
            return frozenset(map(str, json.loads(self.path.read_bytes())["refused"]))
        except (OSError, ValueError, KeyError, TypeError):
            return frozenset()

    def add(self, metrics: Collection[str]) -> None:
        """Remember more; on a full disk they are merely asked for again."""
        with _WRITING, contextlib.suppress(OSError):
            names = sorted(self.read() | set(metrics))[:_MOST_KEPT]
            make_private_folder(self.path.parent)
            durable.write_atomically(self.path, json.dumps({"refused": names}).encode())


def refusal_memory(
    tool: ToolVersion, gpu: MeasuredGPU, refusing: Mapping[str, str], state: Path
) -> RefusalMemory:
    """The memory for this file of the tool, this kind of GPU and driver, under the agent's ``state``.

    ``refusing``: variables that change what the tool refuses.
    """
    file = Path(tool.program).stat()
    device = gpu.device
    of_tool = [tool.program, file.st_mtime_ns, file.st_size, tool.version, sorted(refusing.items())]
    text = json.dumps([of_tool, device.name, device.compute_capability, gpu.driver_version])
    digest = hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
    return RefusalMemory(state / _FOLDER / f"{digest}.refused.json")
