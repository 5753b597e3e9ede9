"""An installed Accel-Sim: its program, its library, and the configurations that come with it.

Source: accel-sim-framework, ``gpu-simulator/setup_environment.sh``; docs/how-to/simulate.md.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from assay_sampling.errors import ParameterError
from assay_sampling.files.reading import reading

_CONFIGURATIONS = Path("gpgpu-sim/configs/tested-cfgs")
_OF_TRACES = Path("configs/tested-cfgs")
_BUILD = "name the folder of the framework or its gpu-simulator, where 'make' has built Accel-Sim"


@dataclass(frozen=True)
class Simulator:
    """A built Accel-Sim; ``library`` is GPGPU-Sim's libcudart.so, None where it is linked in."""

    root: Path
    program: Path
    library: Path | None

    def digest(self) -> str:
        """A hash of everything that is executed; raises InputError where a file cannot be read."""
        return digest_of(self.executed)

    @property
    def executed(self) -> list[Path]:
        """The files that are executed."""
        return [self.program, *([] if self.library is None else [self.library])]

    def environment(self) -> dict[str, str]:
        """The environment of its processes."""
        variables = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C"}
        if self.library is not None:
            variables["LD_LIBRARY_PATH"] = str(self.library.parent)
        return variables

    def configuration(self, name: str) -> tuple[Path, Path] | None:
        """``gpgpusim.config`` and ``trace.config`` of a configuration that comes with it, if it has it."""
        files = (
            self.root / _CONFIGURATIONS / name / "gpgpusim.config",
            self.root / _OF_TRACES / name / "trace.config",
        )
        return files if all(path.is_file() for path in files) else None

    def configurations(self) -> list[str]:
        """The names of the configurations that come with it."""
        there = sorted((self.root / _CONFIGURATIONS).glob("*/gpgpusim.config"))
        return [path.parent.name for path in there if self.configuration(path.parent.name) is not None]


def open_simulator(root: Path) -> Simulator:
    """Find Accel-Sim in a folder; raises ParameterError if none was built there."""
    for folder in (root, root / "gpu-simulator"):
        for build in ("release", "debug"):
            program = folder / "bin" / build / "accel-sim.out"
            if program.is_file():
                return Simulator(folder.resolve(), program.resolve(), _library(folder.resolve(), build))
    why = "it is not there" if not root.exists() else "it has no bin/release/accel-sim.out"
    raise ParameterError("--accel-sim", f"{root}: {why}", _BUILD)


def _library(folder: Path, build: str) -> Path | None:
    """The library that belongs to a build; the newest where compilers left several."""
    there = (folder / "gpgpu-sim" / "lib").rglob("libcudart.so")
    of_build = [path for path in there if build in path.parts]
    return max(of_build, key=lambda path: path.stat().st_mtime, default=None)


def digest_of(paths: list[Path]) -> str:
    """One hash of the contents of files, in their order; raises InputError where one cannot be read."""
    digest = hashlib.sha256()
    for path in paths:
        with reading(path), path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
