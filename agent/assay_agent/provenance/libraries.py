"""Which libraries of CUDA the processes of a run have loaded, from /proc.

The thread that guards the run looks, first after a tenth of a second, then less and less often, up to every
ten seconds, so that the last look is in the last third of a run's time. A process that ends meanwhile, or
that this user may not inspect, is skipped. Source: proc(5), ``/proc/PID/maps``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from assay_agent.guards.run_guards import run_processes
from assay_agent.provenance.file_identity import file_identity
from assay_agent.provenance.forked import ForkedProcess, forked_process
from assay_agent.provenance.python_package import python_package
from assay_sampling.running.attempt_facts import LibraryFact, LibraryFacts, LibraryStatus

_log = logging.getLogger(__name__)

_FIRST_LOOK_SECONDS = 0.1
_GROWTH = 1.25
_LONGEST_WAIT_SECONDS = 10.0
_MOST_LIBRARIES = 64
_MOST_BYTES = 16 << 20  # of one process's maps
# Prefixes: libcublasLt, libcudnn_ops, libnvinfer_plugin, libtorch_cuda match too.
_FAMILIES = (
    "cuda", "cudart", "cublas", "cudnn", "cufft", "curand", "cusolver", "cusparse", "cutensor", "nccl",
    "cupti", "nvrtc", "nvJitLink", "nvToolsExt", "nvinfer", "nvonnxparser", "torch", "c10", "onnxruntime",
    "tensorflow", "xla", "nvshmem", "nvidia-ptxjitcompiler",
)  # fmt: skip
# Address, rights, offset, device and inode, then the path of the real file.
_LINE = re.compile(
    rb"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ (\S+) (\d+) +(/.*/lib(?:%s)[^/\n]*\.so[^/\n]*)$"
    % b"|".join(family.encode() for family in _FAMILIES),
    re.MULTILINE,
)
_DELETED = b" (deleted)"
_DRIVER = b"libcuda.so"
# Libraries that profilers bring into a process, and only they use.
_NSIGHT = re.compile(r"/nsight[-_](compute|systems)[^/]*/", re.IGNORECASE)
_OF_TOOLS = ("libcupti", "libcuda-injection", "libcudadebugger")


class LoadedLibraries:
    """Collects the libraries of the run whose processes have ``temporary`` as their TMPDIR.

    :meth:`tick` may be called at any rate, from one thread at a time; it looks when it is time, and
    never raises. Only tests give ``proc`` and ``processes``.
    """

    def __init__(
        self,
        temporary: Path,
        *,
        proc: Path = Path("/proc"),
        processes: Callable[[Path], Sequence[int]] = run_processes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._temporary, self._proc, self._processes, self._clock = temporary, proc, processes, clock
        self._wait = _FIRST_LOOK_SECONDS
        self._due: float | None = None
        self._libraries: dict[tuple[bytes, bytes, bytes], LibraryFact] = {}
        self._left_out: set[tuple[bytes, bytes, bytes]] = set()
        self._looks = 0
        self._refused = False
        self._forked: dict[int, ForkedProcess] = {}

    @property
    def forked(self) -> tuple[ForkedProcess, ...]:
        """The processes seen so far that have loaded libcuda and were forked without exec."""
        return tuple(self._forked.values())

    def begin(self) -> None:
        """Call when a command of the run starts."""
        self._forked.clear()
        self._wait = _FIRST_LOOK_SECONDS
        self._due = self._clock() + self._wait

    def tick(self) -> None:
        """Look, if it is time."""
        now = self._clock()
        if self._due is None or now < self._due:
            return
        try:
            self._look()
        except Exception:  # noqa: BLE001 - nothing that is only told may end a measurement
            _log.exception("looking at the libraries of a run failed unexpectedly")
        self._wait = min(self._wait * _GROWTH, _LONGEST_WAIT_SECONDS)
        self._due = self._clock() + self._wait

    def _look(self) -> None:
        self._looks += 1
        for process in self._processes(self._temporary):
            for device, inode, name in self._mapped(process):
                if name.rpartition(b"/")[2].startswith(_DRIVER):
                    self._note_forked(process)
                key = (device, inode, name)
                if key in self._libraries or key in self._left_out:
                    continue
                if len(self._libraries) >= _MOST_LIBRARIES:
                    self._left_out.add(key)
                    continue
                self._libraries[key] = described(Path(os.fsdecode(name)), self._proc / str(process) / "root")

    def _note_forked(self, process: int) -> None:
        forked = None if process in self._forked else forked_process(self._proc, process)
        if forked is not None:
            self._forked[process] = forked

    def _mapped(self, process: int) -> Iterator[tuple[bytes, bytes, bytes]]:
        try:
            with (self._proc / str(process) / "maps").open("rb") as file:
                text = file.read(_MOST_BYTES)
        except PermissionError:
            self._refused = True
            return
        except OSError:  # it has ended
            return
        for device, inode, name in dict.fromkeys(_LINE.findall(text)):
            yield device, inode, name.removesuffix(_DELETED)

    def facts(self) -> LibraryFacts:
        """The libraries found so far, by name."""
        libraries = tuple(sorted(self._libraries.values(), key=lambda library: (library.name, library.path)))
        status: LibraryStatus = "found" if libraries else "none found"
        return LibraryFacts(status, libraries, len(self._left_out), self._note(libraries))

    def _note(self, libraries: Sequence[LibraryFact]) -> str:
        names = {library.name for library in libraries}
        sentences = []
        if not libraries:
            sentences.append(
                f"no library of CUDA was seen in {self._looks:,} looks: linked statically, loaded for a "
                "moment only, or not used"
            )
        elif "libcuda" in names and "libcudart" not in names:
            sentences.append("libcuda without libcudart: the CUDA runtime is linked statically, or not used")
        if self._refused:
            sentences.append("the agent's user may not inspect some processes")
        return "; ".join(sentences)


def _without_waiting(path: str, flags: int) -> int:
    """Like os.open, without blocking: a pipe without a writer may have replaced the library."""
    return os.open(path, flags | os.O_NONBLOCK)


def described(path: Path, root: Path) -> LibraryFact:
    """The library at ``path`` for a process whose root folder is ``root``; unknown fields are ""."""
    name, _, version = path.name.partition(".so")
    size_bytes, identity = 0, ""
    # Through the root folder of the process: a container has its own paths.
    inside = root / str(path).lstrip("/")
    with contextlib.suppress(OSError, ValueError), open(inside, "rb", opener=_without_waiting) as file:
        size_bytes = os.fstat(file.fileno()).st_size
        identity = file_identity(file, size_bytes)
    of_tool = name.startswith(_OF_TOOLS) or _NSIGHT.search(str(path)) is not None
    package = python_package(path, root)
    return LibraryFact(name, version.lstrip("."), package, str(path), size_bytes, identity, of_tool)
