"""Pausing DCGM's profiling counters on the box while detailed runs need them; undone whatever happens.

DCGM pauses for the whole box, and several GPUs may measure at a time, so the pause is counted: each run that
needs it holds a marker file of its own, locked while its process lives. The first holder pauses, the last
one resumes. A marker that nobody locks is that of a killed agent: the next start resumes where no other
holder is left. Markers lie in the user's folder for temporary files, as the locks of GPUs do: DCGM forgets
the pause when the box starts anew, and so may the folder.

Source: notes on Nsight Compute, Nsight Systems, MPS and NVML, section 1.5 ("driver resource was
unavailable": ``dcgmi profile --pause`` and ``--resume``).
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

from assay_agent.telemetry.dcgm_processes import DcgmProcess, dcgm_processes
from assay_sampling.private_folders import make_private_folder

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
        running: tells where DCGM collects; only tests give another way.
    """

    def __init__(
        self, folder: Path, path: str, running: Callable[[], Sequence[DcgmProcess]] = dcgm_processes
    ) -> None:
        self._folder, self._path, self._running = folder, path, running

    @contextlib.contextmanager
    def held(self, holder: str, not_paused: FlagSetter) -> Iterator[None]:
        """DCGM's counters are paused; ``not_paused`` hears why where they are not. Never raises itself.

        ``holder`` is a word of letters, digits and dashes that names the GPU.
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
            # Durable before the pause: a marker without a pause only resumes what is not paused.
            handle = os.open(marker, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(handle, fcntl.LOCK_EX)
            os.fsync(handle)
            # Also where others hold it: DCGM may have been started anew since.
            problem = self._told("--pause") or _out_of_reach(running)
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
        """Resume where these markers are the last, then remove them; under the guard."""
        if self._markers(locked=True):
            _remove(markers)
            return
        problem = self._told("--resume")
        if problem:  # the markers stay, so that the next start tries again
            _log.error("DCGM's profiling stays paused: %s", problem)
            return
        _remove(markers)

    def _markers(self, *, locked: bool = False) -> list[Path]:
        """Markers that a living process holds (``locked``) or that nobody does."""
        return [marker for marker in sorted(self._folder.glob(f"*{_MARKER}")) if _is_locked(marker) == locked]

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        handle = os.open(self._folder / "guard", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _told(self, order: str) -> str:
        """Give DCGM an order; "" where it obeys, else why not."""
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
        said = (ended.stderr or ended.stdout).strip().splitlines() or ["nothing"]
        return "" if ended.returncode == 0 else f"{_PROGRAM} profile {order} says: {said[-1][:300]}"


def _out_of_reach(running: Sequence[DcgmProcess]) -> str:
    """Why something collects on although ``dcgmi`` has obeyed; "" where nothing does.

    It speaks to one engine: where the host engine lives to that, and not to those inside other programs.
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
