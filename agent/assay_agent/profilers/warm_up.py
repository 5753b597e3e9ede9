"""The first run of a command that compiles code: it fills the agent's compile cache, and does not count."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from assay_agent.execution.compile_cache import CacheNotKeptError, CompileCache, cache_key, cache_variables
from assay_agent.execution.environment import MeasuredGPU
from assay_core.processes.tool_run import ToolResult
from assay_core.records.work import CommandSource


class WarmUp:
    """What one attempt knows of the code that its command compiles.

    Args:
        command: of the run.
        gpu: on which it runs.
        state: the agent's folder.
        copy: the attempt's empty folder for compilers.
        give: lets the workload, which may be another user, use a file there.
        note: adds to the log of the attempt.

    Raises OSError if what is kept cannot be copied.
    """

    def __init__(
        self,
        command: CommandSource,
        gpu: MeasuredGPU,
        state: Path,
        copy: Path,
        *,
        give: Callable[[Path], None],
        note: Callable[[str], None],
    ) -> None:
        key = cache_key(command, gpu.device, gpu.driver_version, gpu.path)
        self._cache = CompileCache(state, key, copy, give)
        self._note = note
        self.variables = cache_variables(copy)
        self._cache.begin()
        self.is_needed = self._cache.record is None

    @property
    def cache_hash(self) -> str:
        """Of what the runs begin with; "" where the command compiles nothing, or that is not known."""
        return self._cache.record.hash if self._cache.record is not None else ""

    def keep(self, result: ToolResult) -> bool:
        """Keep what the command's first run compiled; False if it compiled nothing, or was not the first."""
        if not self.is_needed or result.cancelled or result.exit_code != 0:
            return False
        self.is_needed = False
        try:
            filled = self._cache.fill()
        except CacheNotKeptError as error:
            self._note(f"note: {error}, which the agent does not keep: each run compiles anew")
            return False
        if filled:
            self._note(f"note: it compiled code, so that was a warm-up; compile cache {self.cache_hash}")
        return filled

    def note_additions(self) -> None:
        """Note how much a run has compiled besides."""
        added = self._cache.added_files() if self.cache_hash else 0
        if added:
            self._note(f"note: it compiled {added:,} files that are not in the agent's compile cache")
