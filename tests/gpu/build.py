"""Compile the CUDA workloads: with the box's nvcc, else with NVIDIA's from package indices. Needs no GPU.

    python tests/gpu/build.py [--cache DIR] [--architecture native|sm_80|...] [--from-index]

CUDA 13 compiles for Turing (sm_75) and newer GPUs; for Volta (sm_70) an nvcc of CUDA 12 is taken: of the
box, else the one that Debian packs (toolkit12.py). Only the standard library is used, so that any Python of
the box will do. Programs lie in the cache folder under a digest of sources, compiler and architecture, so
nothing stale is run. Exit status 77: no compiler can be had.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).resolve().parent / "workloads"
CANNOT = 77
# CUDA 13.0: a compiler that older drivers of R580 run with. 105 MB to download, 300 MB unpacked.
INDEX_PACKAGES = tuple(
    f"nvidia-{name}>=13.0,<13.1" for name in ("cuda-nvcc", "cuda-crt", "cuda-runtime", "nvvm", "cuda-cccl")
)
OLDEST_OF_CUDA_13 = 75  # Turing
_FLAGS = ("-std=c++17", "-O2")
# Ours to heed where they are mended, no reason to give a borrowed GPU back unused.
_STRICT = ("-Xcompiler", "-Wall,-Wextra,-Werror", "-Werror", "all-warnings")
_COMPILE_SECONDS = 600
_DOWNLOAD_SECONDS = 1800
_ASK_SECONDS = 60


class CannotBuildError(Exception):
    """There is no compiler, or it does not compile; the text says what was tried."""


@dataclass(frozen=True)
class Compiler:
    """An nvcc with what it must be told to find its parts."""

    path: Path
    options: tuple[str, ...] = ()

    @property
    def library_folders(self) -> list[str]:
        """Where it looks for CUDA's libraries, as options; raises CannotBuildError where it does not say."""
        words = [self.path, *self.options, "--dryrun", "-c", "-x", "cu", "/dev/null", "-o", "/dev/null"]
        said = subprocess.run(words, capture_output=True, text=True, check=False).stderr
        found = re.search(r"^#\$ LIBRARIES=(.*)$", said, re.MULTILINE)
        if found is None:
            raise CannotBuildError(f"{self.path} does not say where its libraries are")
        return [*shlex.split(found[1]), *(word for word in self.options if word.startswith("-L"))]

    @property
    def release(self) -> str:
        """Its release, such as ``13.0``; raises CannotBuildError where it does not say."""
        said = subprocess.run([self.path, "--version"], capture_output=True, text=True, check=False).stdout
        found = re.search(r"release (\d+\.\d+)", said)
        if found is None:
            raise CannotBuildError(f"{self.path} does not say its release")
        return found[1]


def default_cache() -> Path:
    """$ASSAY_GPU_CACHE, else ``assay/gpu-workloads`` in the user's cache folder."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("ASSAY_GPU_CACHE") or base / "assay" / "gpu-workloads")


def names() -> list[str]:
    """Every CUDA workload."""
    return sorted(source.stem for source in SOURCES.glob("*.cu"))


def release_limit(architecture: str) -> int:
    """The first major release of CUDA that does not compile for it any more; 0: none is known."""
    number = re.fullmatch(r"sm_(\d+)[af]?", architecture)
    return 13 if number and int(number[1]) < OLDEST_OF_CUDA_13 else 0


def find_compiler(cache: Path, *, architecture: str = "", from_index: bool = False) -> Compiler:
    """An nvcc of the box that compiles for the architecture, else a fetched one; raises CannotBuildError."""
    limit = release_limit(architecture)
    for candidate in _compilers_of_box():
        if from_index or not Path(candidate).exists():
            continue
        compiler = Compiler(Path(candidate))
        if not limit or int(compiler.release.partition(".")[0]) < limit:
            return compiler
    if limit:
        return _compiler_of_cuda_12(cache, architecture)
    return _compiler_of_index(cache)


def _compilers_of_box() -> list[str]:
    installed = sorted(Path("/usr/local").glob("cuda*/bin/nvcc"), reverse=True)
    return [*filter(None, [shutil.which("nvcc")]), *map(str, installed)]


def _compiler_of_cuda_12(cache: Path, architecture: str) -> Compiler:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from tests.gpu import toolkit12  # noqa: PLC0415 - seldom needed

    try:
        return Compiler(toolkit12.fetch(cache / "toolkit12"), toolkit12.OPTIONS)
    except toolkit12.ToolkitError as error:
        raise CannotBuildError(
            f"{architecture} needs an nvcc of CUDA 12.9 or older (CUDA 13 refuses it); none is on this box, "
            f"and none can be fetched: {error}"
        ) from error


def _compiler_of_index(cache: Path) -> Compiler:
    folder = cache / "toolkit"
    if not (folder / "complete").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        quiet = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
        target = ["--target", str(folder), *INDEX_PACKAGES]
        command = [sys.executable, "-m", "pip", "install", *quiet, *target]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_DOWNLOAD_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CannotBuildError(
                f"no nvcc on this box, and none from the package index: {error}"
            ) from error
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
            raise CannotBuildError(f"no nvcc on this box, and none from the package index: {last}")
        (folder / "complete").touch()
    toolkit = next(folder.glob("nvidia/cu*/bin/nvcc"), None)
    if toolkit is None:
        raise CannotBuildError(f"the packages {', '.join(INDEX_PACKAGES)} brought no nvcc")
    root = toolkit.parents[1]
    return Compiler(toolkit, (f"-I{root / 'include'}", f"-L{root / 'lib'}"))


def architecture_of_box() -> str:
    """``native`` where there is a GPU to ask, else a portable one whose PTX newer GPUs compile."""
    return "native" if shutil.which("nvidia-smi") and _gpu_answers() else "sm_80"


def _gpu_answers() -> bool:
    return "GPU" in _gpus_listed()


def _gpus_listed() -> str:
    """What nvidia-smi lists; "" where it fails or hangs, as it does where a driver is ill."""
    try:
        asked = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=_ASK_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return asked.stdout if asked.returncode == 0 else ""


def architecture_of(compute_capability: str) -> str:
    """``sm_90`` for "9.0"; "" where the capability is not known."""
    return f"sm_{compute_capability.replace('.', '')}" if compute_capability else ""


def compiled_elsewhere(folder: Path) -> dict[str, Path]:
    """The programs in a folder, by name; raises CannotBuildError where one is missing or cannot be run."""
    programs = {name: folder.absolute() / name for name in names()}
    if missing := sorted(name for name, program in programs.items() if not os.access(program, os.X_OK)):
        raise CannotBuildError(f"{folder} has no program {', '.join(missing)}")
    return programs


def build(
    compiler: Compiler, cache: Path, architecture: str, *, strict: bool = True, linker: Sequence[str] = ()
) -> dict[str, Path]:
    """Compile every workload that is not compiled yet, side by side; the programs by name.

    ``strict``: a warning is an error. ``linker``: the C compiler that links, for boxes with an older glibc
    than this one; by default nvcc's own. Raises CannotBuildError.
    """
    flags = [*_FLAGS, *(_STRICT if strict else ()), *_code(architecture), *compiler.options]
    libraries = _libraries(compiler) if linker else []
    words = [compiler.release, *flags, architecture, _gpu_names(architecture), *linker, *libraries]
    folder = cache / _digest(words)
    folder.mkdir(parents=True, exist_ok=True)
    programs = {name: folder / name for name in names()}
    missing = [
        (SOURCES / f"{name}.cu", program) for name, program in programs.items() if not program.is_file()
    ]
    nvcc = [str(compiler.path), *flags]

    def make(source: Path, program: Path) -> None:
        with tempfile.TemporaryDirectory(dir=program.parent) as temporary:
            made, compiled = Path(temporary, program.name), Path(temporary, f"{program.name}.o")
            if linker:
                _run(source, [*nvcc, "-c", "-o", str(compiled), str(source)])
                _run(source, [*linker, "-o", str(made), str(compiled), *libraries])
            else:
                _run(source, [*nvcc, "-o", str(made), str(source)])
            made.replace(program)

    with ThreadPoolExecutor(os.cpu_count()) as executor:
        for compiled in [executor.submit(make, *each) for each in missing]:
            compiled.result()
    return programs


def _libraries(compiler: Compiler) -> list[str]:
    """What nvcc links with, for another linker. Of the C++ library only old symbols are used."""
    shared = [_of_host_compiler(name) for name in ("libstdc++.so", "libgcc_s.so.1")]
    own = [*compiler.library_folders, "-lcudart_static", "-lrt", "-lpthread", "-ldl", "-lm"]
    # These two need this box's glibc, the program does not.
    return ["-Wl,--allow-shlib-undefined", *shared, *own]


def _of_host_compiler(library: str) -> str:
    try:
        asked = subprocess.run(
            ["g++", f"-print-file-name={library}"], capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise CannotBuildError(f"g++, which nvcc needs, cannot be run: {error}") from error
    return asked.stdout.strip()


def _gpu_names(architecture: str) -> str:
    """What "native" means here, so that a cache that moves to another box is not taken for it."""
    if architecture != "native":
        return ""
    return _gpus_listed()


def _code(architecture: str) -> list[str]:
    if architecture == "native":
        return ["-arch=native"]
    virtual = architecture.replace("sm_", "compute_")
    return ["-gencode", f"arch={virtual},code=[{architecture},{virtual}]"]


def _digest(words: Sequence[str]) -> str:
    digest = hashlib.blake2b("\0".join(words).encode(), digest_size=8)
    for source in sorted(SOURCES.glob("*.cu*")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()


def _run(source: Path, command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_SECONDS, check=False)
    if done.returncode:
        said = (done.stdout + done.stderr).strip()
        raise CannotBuildError(f"{source.name} does not compile with {command[0]}: {said[-2000:]}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile and say where the programs are."""
    parser = argparse.ArgumentParser(description="Compile the CUDA workloads; no GPU is needed.")
    parser.add_argument("--cache", type=Path, default=default_cache())
    parser.add_argument(
        "--architecture", default="", help="native, sm_75, sm_80, ...; default: what the box has"
    )
    parser.add_argument("--from-index", action="store_true", help="NVIDIA's nvcc from the package index")
    options = parser.parse_args(arguments)
    try:
        options.cache.mkdir(parents=True, exist_ok=True)
        architecture = options.architecture or architecture_of_box()
        compiler = find_compiler(options.cache, architecture=architecture, from_index=options.from_index)
        programs = build(compiler, options.cache, architecture)
    except CannotBuildError as error:
        print(f"the CUDA workloads cannot be compiled here: {error}", file=sys.stderr)
        return CANNOT
    folder = next(iter(programs.values())).parent
    print(
        f"{len(programs)} workloads for {architecture}, nvcc {compiler.release} ({compiler.path}): {folder}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
