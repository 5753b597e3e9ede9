"""A compiler of CUDA 12 for GPUs that CUDA 13 does not know (Volta): NVIDIA's nvcc as Debian packs it.

NVIDIA's packages on the Python index (nvidia-cuda-nvcc-cu12) have no nvcc of CUDA 12, only its assembler and
headers. So nvcc comes from Debian's non-free packages (12.4; 96 MB), headers of that release and the static
runtime from the index. Nothing is installed, root is not needed. Standard library only.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

DEBIAN_RELEASE = "trixie"
DEBIAN_PACKAGES = ("nvidia-cuda-toolkit", "libnvvm4")
# Headers must be of nvcc's own release; a static library of the runtime is only in newer packages.
INDEX_PACKAGES = (
    "nvidia-cuda-runtime-cu12==12.4.*",
    "nvidia-cuda-nvcc-cu12==12.4.*",
    "nvidia-cuda-cccl-cu12==12.4.*",
)
RUNTIME_PACKAGE = "nvidia-cuda-runtime-cu12==12.9.*"
OPTIONS = (
    "-cudadevrt",
    "none",
)  # the device runtime of 12.9 is too new for this nvcc, and no workload needs it
_SECONDS = 1800
_PROFILE = """\
TOP = $(_HERE_)/..
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
CICC_PATH = $(TOP)/nvvm/bin
PATH += $(TOP)/nvvm/bin:$(_HERE_):
INCLUDES += "-I$(TOP)/include" $(_SPACE_)
LIBRARIES =+ $(_SPACE_) "-L$(TOP)/lib"
"""


class ToolkitError(Exception):
    """It cannot be had here; the text says why."""


def fetch(folder: Path) -> Path:
    """The nvcc below a folder, downloaded once; raises ToolkitError."""
    nvcc = folder / "bin" / "nvcc"
    if (folder / "complete").is_file():
        return nvcc
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="assay-toolkit-") as temporary:
        work = Path(temporary)
        try:
            _from_debian(work, folder)
            _headers(work, folder)
        except (OSError, subprocess.SubprocessError, zipfile.BadZipFile) as error:
            raise ToolkitError(f"{type(error).__name__}: {error}") from error
    (folder / "bin" / "nvcc.profile").write_text(_PROFILE)
    (folder / "complete").touch()
    return nvcc


def _from_debian(work: Path, folder: Path) -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from real_tools.apt import Mirror, UnavailableError, own_release  # noqa: PLC0415 - of this folder's sibling

    try:
        mirror = Mirror(work / "apt", DEBIAN_RELEASE, own_release())
        packages = mirror.download(list(DEBIAN_PACKAGES), work / "packages")
    except UnavailableError as error:
        raise ToolkitError(str(error)) from error
    root = work / "root"
    for package in packages.values():
        subprocess.run(["dpkg-deb", "--extract", str(package), str(root)], check=True, timeout=_SECONDS)
    (folder / "bin").mkdir()
    (folder / "nvvm" / "bin").mkdir(parents=True)
    own = root / "usr" / "lib" / "nvidia-cuda-toolkit" / "bin"
    for program in ("cudafe++", "ptxas", "fatbinary", "nvlink"):
        shutil.copy2(root / "usr" / "bin" / program, folder / "bin")
    shutil.copy2(own / "nvcc", folder / "bin")
    shutil.copytree(own / "crt", folder / "bin" / "crt")
    shutil.copy2(own / "cicc", folder / "nvvm" / "bin")


def _headers(work: Path, folder: Path) -> None:
    for wheel in _wheels(work / "headers", INDEX_PACKAGES):
        _unpack(wheel, "include", folder / "include")
        _unpack(wheel, "libdevice", folder / "nvvm" / "libdevice")
    for wheel in _wheels(work / "runtime", [RUNTIME_PACKAGE]):
        _unpack(wheel, "lib", folder / "lib", ("libcudart_static.a", "libculibos.a"))


def _wheels(folder: Path, packages: tuple[str, ...] | list[str]) -> list[Path]:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
               "--only-binary=:all:", "--dest", str(folder), *packages]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
        raise ToolkitError(f"the package index gives no {', '.join(packages)}: {last}")
    return sorted(folder.glob("*.whl"))


def _unpack(wheel: Path, below: str, target: Path, names: tuple[str, ...] = ()) -> None:
    """What lies below a folder of that name in a wheel; of ``names`` alone where there are some."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            parts = Path(member.filename).parts
            if below not in parts or ".." in parts or member.is_dir() or (names and parts[-1] not in names):
                continue
            path = target.joinpath(*parts[parts.index(below) + 1 :])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(member))
