"""Pauses DCGM's profiling counters on the box while detailed runs need them, and always resumes them.

DCGM pauses for the whole box, and several GPUs may measure at a time, so the pause is counted: each run that
needs it holds a marker file, locked while its process lives. The first holder pauses, the last one resumes. A
marker that nobody locks is from a killed agent: the next start resumes if no holder is left. Markers are in
the user's folder for temporary files, like the locks of GPUs: a reboot ends the pause, and may empty the
folder.

Source: docs/nvidia-tools.md, "Messages and exit codes" ("driver resource was unavailable": ``dcgmi profile
--pause`` and ``--resume``).
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from assay_agent.guards.dcgm_processes import DcgmProcess, dcgm_processes
from assay_core.files.durable import sync_directory
from assay_core.files.private_folders import make_private_folder

_log = logging.getLogger(__name__)

_PROGRAM = "dcgmi"
_SECONDS = 30.0
_MARKER = ".holder"

FlagSetter = Callable[[str], object]  # takes the detail of dcgm_not_paused


class DcgmPause:
    """DCGM's pause on this box.

    Args:
        folder: private to the user, shared by all agents of theirs on the box.
        path: the PATH in which ``dcgmi`` is looked up.
        running: finds where DCGM collects; only tests replace it.
    """

    def __init__(
        self, folder: Path, path: str, running: Callable[[], Sequence[DcgmProcess]] = dcgm_processes
    ) -> None:
        self._folder, self._path, self._running = folder, path, running

    @contextlib.contextmanager
    def hold(self, holder: str, not_paused: FlagSetter) -> Iterator[None]:
        """Pause DCGM's counters; if that fails, ``not_paused`` is called with the reason. Never raises.

        ``holder`` names the GPU, in letters, digits and dashes.
        """
        try:
            running = self._running()
        except ImportError as error:
            running = ()
            not_paused(f"whether DCGM collects is not known ({error})")
        if not running:
            yield
            return
        marker = self._folder / f"{holder}{_MARKER}"
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(self._marked(marker, running, not_paused))
            except OSError as error:
                not_paused(f"{marker} cannot be written ({error.strerror})")
            yield

    def resume_leftovers(self) -> None:
        """Resume what a killed agent left paused; called at the start of an agent. Never raises."""
        try:
            if not self._folder.is_dir():
                return
            with self._guard():
                dead = self._markers()
                for marker in dead:
                    _log.info("DCGM was left paused by %s", marker.name)
                if dead:
                    self._end(dead)
        except OSError as error:
            _log.warning("DCGM's pause cannot be looked at (%s)", error)

    @contextlib.contextmanager
    def _marked(self, marker: Path, running: Sequence[DcgmProcess], not_paused: FlagSetter) -> Iterator[None]:
        make_private_folder(self._folder)
        with self._guard():
            # Durable before the pause: a marker without a pause only causes a needless resume.
            handle = os.open(marker, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(handle, fcntl.LOCK_EX)
            sync_directory(self._folder)
            # Even if others hold it: DCGM may have been restarted since.
            problem = self._give_order("--pause") or _out_of_reach(running)
            if problem:
                not_paused(f"{', '.join(map(str, running))}: {problem}")
        try:
            yield
        finally:
            try:
                with self._guard():
                    os.close(handle)
                    self._end([marker])
            except OSError as error:
                _log.error("DCGM's profiling may stay paused: %s", error)

    def _end(self, markers: list[Path]) -> None:
        """Resume if these markers are the last, then remove them; under the guard."""
        if self._markers(locked=True):
            _remove(markers)
            return
        problem = self._give_order("--resume")
        if problem:  # the markers stay, so that the next start tries again
            _log.error("DCGM's profiling stays paused: %s", problem)
            return
        _remove(markers)

    def _markers(self, *, locked: bool = False) -> list[Path]:
        """Markers that a living process holds (``locked``) or that nobody holds."""
        return [marker for marker in sorted(self._folder.glob(f"*{_MARKER}")) if _is_locked(marker) == locked]

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        handle = os.open(self._folder / "guard", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _give_order(self, order: str) -> str:
        """Give DCGM an order; "" if it obeys, else why not."""
        program = shutil.which(_PROGRAM, path=self._path)
        if program is None:
            return f"{_PROGRAM} is not in the PATH"
        try:
            ended = subprocess.run(
                [program, "profile", order],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_SECONDS,
                env={"PATH": self._path, "LC_ALL": "C"},
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{_PROGRAM} profile {order}: {error}"
        lines = (ended.stderr or ended.stdout).strip().splitlines() or ["nothing"]
        return "" if ended.returncode == 0 else f"{_PROGRAM} profile {order} says: {lines[-1][:300]}"


def _out_of_reach(running: Sequence[DcgmProcess]) -> str:
    """Why something still collects although ``dcgmi`` has obeyed; "" if nothing does.

    ``dcgmi`` talks to one engine: to the host engine if it runs, and not to those inside other programs.
    """
    embedded = [process for process in running if process.embedded]
    if len(embedded) == len(running) == 1 or not embedded:
        return ""
    return f"dcgmi paused one engine, which is not that inside {', '.join(map(str, embedded))}"


def _remove(markers: list[Path]) -> None:
    for marker in markers:
        marker.unlink(missing_ok=True)


def _is_locked(marker: Path) -> bool:
    try:
        handle = os.open(marker, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False
