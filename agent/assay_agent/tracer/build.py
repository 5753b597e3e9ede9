"""Build the tracer from source: NVIDIA's headers from the package index, and a C compiler.

    python -m assay_agent.tracer.build [--cache DIR] [--cuda 13] [--cuda 12] [--may-lack] [--portable]

The headers are NVIDIA's and are never part of Assay: wheels are downloaded into a cache folder, their headers
and libcupti are unpacked there, and the rest is discarded. Builds are in the same folder, named by a digest
of the sources, so a build of other sources is never mistaken for them. A portable build is for other boxes:
it needs glibc 2.31 at most (Ubuntu 20.04), whatever this box has. Source: docs/tracer.md.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from assay_agent.tracer.glibc import glibc_fault, needed_glibc
from assay_sampling.errors import AssayError

_SOURCES = Path(__file__).parent
_WARNINGS = ("-Wall", "-Wextra", "-Werror")
_FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread")
_DOWNLOAD_SECONDS = 900.0
_COMPILE_SECONDS = 300.0
_UNAVAILABLE = "unavailable.json"
# The oldest glibc that a portable build loads with: that of Ubuntu 20.04.
PORTABLE_GLIBC = (2, 31)
_PORTABLE = "portable-"
_ZIG = "ziglang==0.17.*"
_NO_COMPILER = "install a C compiler (apt-get install gcc libc6-dev), or name one in CC"


class TracerBuildError(AssayError):
    """The tracer cannot be built here: no headers, no compiler, or sources that do not compile."""


class TracerLackingError(TracerBuildError):
    """Headers or a compiler for building the tracer are missing."""


@dataclass(frozen=True)
class Generation:
    """The headers of one major version of CUDA; ``requirements`` are the packages that hold them."""

    name: str
    requirements: tuple[str, ...]


GENERATIONS = {
    "13": Generation(
        "cu13",
        (
            "nvidia-cuda-cupti>=13.5,<13.6",
            "nvidia-cuda-runtime>=13.5,<13.6",
            "nvidia-cuda-crt>=13.5,<13.6",
            "nvidia-nvtx>=13.5,<13.6",
        ),
    ),
    "12": Generation(
        "cu12",
        (
            "nvidia-cuda-cupti-cu12>=12.9,<12.10",
            "nvidia-cuda-runtime-cu12>=12.9,<12.10",
            "nvidia-cuda-nvcc-cu12>=12.9,<12.10",
            "nvidia-nvtx-cu12>=12.9,<12.10",
        ),
    ),
}


# The last release with NVTX version 2, which is a library; version 3 is headers only.
_NVTX2 = Generation("NVTX version 2", ("nvidia-nvtx-cu12==12.1.*",))
_NVTX2_LIBRARY = "libnvToolsExt.so.1"


def default_cache() -> Path:
    """$ASSAY_TRACER_CACHE, else ``assay/tracer`` in the user's cache folder."""
    setting = os.environ.get("ASSAY_TRACER_CACHE")
    if setting:
        return Path(setting)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "assay" / "tracer"


def find_tracer(cache: Path | None = None, cuda: str = "") -> Path | None:
    """The tracer to inject: $ASSAY_TRACER, else the build of these sources; None before it is built, and
    where this box's glibc is too old for it.

    A build with the headers of CUDA 13 also reads the records of CUDA 12, so it comes first.

    Args:
        cache: the folder of builds; None: :func:`default_cache`.
        cuda: the version of the headers it was built with, "13" or "12"; "": the newest.
    """
    tracer = _built(cache, cuda)
    return tracer if tracer is not None and not glibc_fault(tracer) else None


def _built(cache: Path | None, cuda: str = "") -> Path | None:
    setting = os.environ.get("ASSAY_TRACER")
    if setting and not cuda:
        return Path(setting) if Path(setting).is_file() else None
    for major in (cuda,) if cuda else GENERATIONS:
        path = _library(cache or default_cache(), GENERATIONS[major])
        if path.is_file():
            return path
    return None


def why_unavailable(cache: Path | None = None) -> str:
    """Why a tracer that is there does not load, else the message of the last attempt to build; "" if there
    was none."""
    tracer = _built(cache)
    if tracer is not None and (fault := glibc_fault(tracer)):
        return fault
    try:
        reasons = json.loads(((cache or default_cache()) / _UNAVAILABLE).read_text())
        return "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    except (OSError, ValueError, AttributeError):
        return ""


def header_folders(generation: Generation, cache: Path | None = None) -> list[Path]:
    """The folder of the headers; raises TracerBuildError if they were not fetched."""
    folder = (cache or default_cache()) / "headers" / generation.name
    if not folder.is_dir():
        raise TracerLackingError(
            str(folder), "NVIDIA's headers were not fetched", "run: python -m assay_agent.tracer.build"
        )
    return [folder]


def build(generation: Generation, cache: Path, *, portable: bool = False) -> Path:
    """Build the tracer with one generation of headers, unless it is built; raises TracerBuildError.

    ``portable``: for boxes with an older glibc than this one, from :data:`PORTABLE_GLIBC` on.
    """
    library = _library(cache, generation, _PORTABLE if portable else "")
    if library.is_file():
        return library
    folders = [fetch_headers(generation, cache)]
    sources = sorted(_SOURCES.glob("*.c"))
    with tempfile.TemporaryDirectory(dir=cache) as work:
        made = Path(work) / library.name
        compile_c(sources, made, folders, _FLAGS, compiler=portable_compiler(cache) if portable else ())
        _require_portable(made, portable=portable)
        made.replace(library)
    for old in cache.glob(f"{library.name.rpartition('-')[0]}-*.so"):
        if old != library:
            old.unlink(missing_ok=True)
    return library


def _require_portable(library: Path, *, portable: bool) -> None:
    """Raise TracerBuildError for a portable build that needs a newer glibc than it may."""
    needed = needed_glibc(library)
    if portable and not (0, 0) < needed <= PORTABLE_GLIBC:
        raise TracerBuildError(
            library.name,
            f"it needs glibc {needed[0]}.{needed[1]}, and a portable build at most "
            f"{PORTABLE_GLIBC[0]}.{PORTABLE_GLIBC[1]}",
            "report it to the authors of Assay",
        )


def portable_compiler(cache: Path) -> list[str]:
    """Zig's C compiler for :data:`PORTABLE_GLIBC`, whose symbols it knows; downloaded once (100 MB).

    Raises TracerLackingError.
    """
    folder = cache / "zig"
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(dir=cache, prefix=".partial-") as work:
            wheels, unpacked = Path(work) / "wheels", Path(work) / "zig"
            _download(Generation("zig", (_ZIG,)), wheels)
            for wheel in wheels.glob("*.whl"):
                with zipfile.ZipFile(wheel) as archive:
                    archive.extractall(unpacked)
            (unpacked / "ziglang" / "zig").chmod(0o755)
            unpacked.replace(folder)
    target = f"{platform.machine()}-linux-gnu.{PORTABLE_GLIBC[0]}.{PORTABLE_GLIBC[1]}"
    return [str(folder / "ziglang" / "zig"), "cc", "-target", target]


def compile_c(
    sources: Sequence[Path],
    output: Path,
    folders: Sequence[Path],
    flags: Sequence[str],
    libraries: Sequence[str] = ("-ldl",),
    *,
    compiler: Sequence[str] = (),
) -> None:
    """Compile and link without warnings; raises TracerBuildError with the compiler's first message.

    ``compiler``: the first words of its command; by default those in CC, else cc.
    """
    compiler = compiler or shlex.split(os.environ.get("CC", "")) or ["cc"]
    if shutil.which(compiler[0]) is None:
        raise TracerLackingError(compiler[0], "there is no such C compiler", _NO_COMPILER)
    includes = [word for folder in folders for word in ("-isystem", str(folder))]
    words = [*compiler, *flags, *_WARNINGS, *includes, *map(str, sources), "-o", str(output), *libraries]
    try:
        ended = subprocess.run(
            words,
            env={**os.environ, "LC_ALL": "C"},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_COMPILE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TracerBuildError(compiler[0], f"it cannot be run ({error})", _NO_COMPILER) from error
    if ended.returncode != 0:
        lines = [line for line in ended.stderr.splitlines() if "error: " in line] or ended.stderr.splitlines()
        raise TracerBuildError(
            " ".join(path.name for path in sources),
            f"it does not compile: {lines[0][:400] if lines else 'the compiler says nothing'}",
            "run the compiler by hand to see all of it, and report it to the authors of Assay",
        )


def fetch_headers(generation: Generation, cache: Path) -> Path:
    """The headers of a generation, downloaded once; raises TracerBuildError if that fails."""
    folder = cache / "headers" / generation.name
    if folder.is_dir():
        return folder
    (cache / "headers").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".partial-") as work:
        wheels, unpacked = Path(work) / "wheels", Path(work) / "include"
        _download(generation, wheels)
        unpacked.mkdir()
        for wheel in sorted(wheels.glob("*.whl")):
            _unpack_headers(wheel, unpacked)
        if not (unpacked / "cupti.h").is_file():
            raise TracerLackingError(
                ", ".join(generation.requirements), "there is no cupti.h in the packages", _OFFLINE_REMEDY
            )
        unpacked.replace(folder)
    return folder


_OFFLINE_REMEDY = (
    "let this machine reach a Python package index, or copy the cache folder from a machine that does"
)


def _download(generation: Generation, wheels: Path) -> None:
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
             "--only-binary=:all:", "--dest", str(wheels), *generation.requirements]  # fmt: skip
    try:
        ended = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_DOWNLOAD_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TracerLackingError("pip", f"it cannot be run ({error})", "install pip") from error
    if ended.returncode != 0:
        lines = [line for line in ended.stderr.splitlines() if line.startswith("ERROR")]
        raise TracerLackingError(
            f"the headers of {generation.name}",
            f"pip cannot download them ({lines[-1][:300] if lines else f'exit status {ended.returncode}'})",
            _OFFLINE_REMEDY,
        )


def nvtx2_library(cache: Path | None = None) -> Path:
    """NVTX version 2, as in older PyTorch; only tests use it, and it may be missing."""
    return (cache or default_cache()) / "headers" / _NVTX2_LIBRARY


def fetch_nvtx2(cache: Path) -> Path:
    """Download NVTX version 2 once; raises TracerLackingError if that fails."""
    library = nvtx2_library(cache)
    if not library.is_file():
        library.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".partial-") as work:
            _download(_NVTX2, Path(work))
            for wheel in Path(work).glob("*.whl"):
                with zipfile.ZipFile(wheel) as archive:
                    member = next(name for name in archive.namelist() if name.endswith(f"/{_NVTX2_LIBRARY}"))
                    (Path(work) / _NVTX2_LIBRARY).write_bytes(archive.read(member))
            (Path(work) / _NVTX2_LIBRARY).replace(library)
    return library


def _unpack_headers(wheel: Path, folder: Path) -> None:
    """Everything below any ``include/`` in a wheel, and libcupti, which tests use."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            parts = PurePosixPath(member.filename).parts
            if parts[-1].startswith("libcupti.so"):
                target = folder / parts[-1]
            elif "include" in parts and not {"nvvm", ".."} & set(parts) and not member.is_dir():
                target = folder.joinpath(*parts[parts.index("include") + 1 :])
            else:
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(member))


def _library(cache: Path, generation: Generation, kind: str = "") -> Path:
    digest = hashlib.blake2b(digest_size=6)
    for path in sorted([*_SOURCES.glob("*.c"), *_SOURCES.glob("*.h")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return cache / f"libassay-tracer-{kind}{generation.name}-{digest.hexdigest()}.so"


@contextmanager
def _lock(cache: Path) -> Iterator[None]:
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main(arguments: Sequence[str] | None = None) -> int:
    """Build what was asked for; 0, or 1 if something cannot be built.

    With ``--may-lack`` only sources that do not compile count.
    """
    parser = argparse.ArgumentParser(description="Build Assay's CUPTI tracer.")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="folder of headers and builds")
    parser.add_argument("--cuda", action="append", choices=list(GENERATIONS), help="default: 13 and 12")
    parser.add_argument(
        "--may-lack", action="store_true", help="exit status 0 even without headers or compiler"
    )
    parser.add_argument(
        "--portable", action="store_true", help="for other boxes, with glibc 2.31 or newer (downloads Zig)"
    )
    options = parser.parse_args(arguments)
    say = sys.stdout.write
    reasons: dict[str, str] = {}
    failed = False
    with _lock(options.cache):
        for major in options.cuda or GENERATIONS:
            generation = GENERATIONS[major]
            try:
                say(f"tracer: {build(generation, options.cache, portable=options.portable)}\n")
            except TracerBuildError as error:
                reasons[generation.name] = str(error)
                failed |= not (options.may_lack and isinstance(error, TracerLackingError))
        try:
            fetch_nvtx2(options.cache)
        except (TracerLackingError, OSError) as error:
            say(f"tracer: NVTX version 2 is not tested: {error}\n")
        path = options.cache / _UNAVAILABLE
        if reasons:
            path.write_text(json.dumps(reasons, indent=2) + "\n")
        else:
            path.unlink(missing_ok=True)
    for name, reason in reasons.items():
        say(f"tracer: no {name}: {reason}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
