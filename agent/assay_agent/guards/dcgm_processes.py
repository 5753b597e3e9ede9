"""Where DCGM collects on this box: its host engine, or an engine inside another program.

``dcgm-exporter`` has an embedded engine unless it is given a remote one, and then no ``nv-hostengine`` runs.
Such a program is recognised by its name and arguments, and any other by DCGM's library in its memory, which
only root can see in other users' programs. A container's process numbers may hide its programs altogether.

Source: NVIDIA's dcgm-exporter (``--remote-hostengine-info``); DCGM's modes "embedded" and "standalone".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_ENGINE = "nv-hostengine"
# They have an embedded engine unless their arguments name one elsewhere.
_EMBEDDING = ("dcgm-exporter", "dcgmproftester")
_CLIENT = "dcgmi"
_REMOTE = ("-r", "--remote-hostengine-info")
_LIBRARY, _ENGINE_MODULE = "/libdcgm", "/libdcgmmodule"


@dataclass(frozen=True)
class DcgmProcess:
    """A program that collects, or has an engine collect.

    ``embedded``: the engine is inside it, where ``dcgmi`` need not reach it.
    """

    process_id: int
    name: str
    embedded: bool

    def __str__(self) -> str:
        return f"{self.name} (process {self.process_id})"


@dataclass(frozen=True)
class _Candidate:
    process_id: int
    program: str
    arguments: Sequence[str]
    libraries: frozenset[str]

    @property
    def is_engine(self) -> bool:
        return self.program == _ENGINE

    @property
    def is_remote(self) -> bool:
        return any(word.split("=")[0] in _REMOTE for word in self.arguments)

    def embeds(self, engine_lives: bool) -> bool:
        """Whether an engine is inside: its modules are loaded, or the arguments name none elsewhere."""
        if self.is_engine:
            return False
        if any(_ENGINE_MODULE in library for library in self.libraries):
            return True
        return not self.is_remote if self.program.startswith(_EMBEDDING) else not engine_lives


def dcgm_processes() -> list[DcgmProcess]:
    """All visible engines, and programs that use an invisible one, by process number.

    Raises ImportError without psutil (extra ``agent``).
    """
    candidates = list(_candidates())
    engine_lives = any(each.is_engine for each in candidates)
    judged = [(each, each.embeds(engine_lives)) for each in candidates]
    return [
        DcgmProcess(each.process_id, each.program, embedded)
        for each, embedded in judged
        if embedded or each.is_engine or not engine_lives
    ]


def _candidates() -> Iterator[_Candidate]:
    """All processes that use DCGM, except ``dcgmi``, which ends at once."""
    import psutil  # noqa: PLC0415 - the doctor must run without it, to name it

    for process in psutil.process_iter(["name", "cmdline"]):
        name, command = process.info["name"] or "", process.info["cmdline"] or []
        names = (name, Path(command[0]).name if command else "")
        program = next((word for word in names if word == _ENGINE or word.startswith(_EMBEDDING)), "")
        libraries = _libraries(Path(psutil.PROCFS_PATH) / str(process.pid) / "maps")
        if (program or libraries) and _CLIENT not in names:
            yield _Candidate(process.pid, program or name, command[1:], libraries)


def _libraries(maps: Path) -> frozenset[str]:
    """DCGM's libraries in the memory of a process; empty if they cannot be seen.

    psutil's memory_maps() reads smaps instead, which takes the kernel long for a program with much memory.
    """
    try:
        with maps.open(errors="replace") as file:
            return frozenset(line.split(maxsplit=5)[-1].strip() for line in file if _LIBRARY in line)
    except OSError:
        return frozenset()
