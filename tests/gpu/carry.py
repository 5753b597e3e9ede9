"""Take along what a borrowed GPU box lacks and cannot fetch, and run the proof there with it.

    python tests/gpu/carry.py pack [--to DIR] [--python 3.12] [--architecture sm_90]     here
    python3 tests/gpu/carry.py run [--carried DIR] [--call A] [arguments of python -m tests.gpu]    there

Packed are this project, the small Python packages that it needs (of wheels for another Python and processor
than ours), the CUPTI tracer, and with --architecture the compiled workloads (V100 and other names of
ARCHITECTURES will do), together 30 MB at most. The copy of this script in that folder runs without a
checkout. The large packages (numpy, pyarrow, scikit-learn, ...) the box must have: every image for PyTorch
work does. Only the standard library is used, so that any Python of the box will do; nothing is installed
there. Exit status 77: something cannot be had.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGE_FOLDERS = ("protos", "sampling", "agent", "server", "client")
CANNOT = 77
# By the names of requirements/constraints.txt. A test says where one is missing.
CARRIED = (
    "adbc-driver-manager", "adbc-driver-sqlite",
    "alembic", "annotated-doc", "annotated-types", "cffi", "click", "cryptography", "grpcio",
    "grpcio-health-checking", "Jinja2", "Mako", "markdown-it-py", "MarkupSafe", "mdurl", "nvidia-ml-py",
    "prometheus_client", "protobuf", "psutil", "pycparser", "pydantic", "pydantic_core", "Pygments", "PyYAML",
    "rich", "shellingham", "SQLAlchemy", "tenacity", "threadpoolctl", "typer", "typing_extensions",
    "typing-inspection",
)  # fmt: skip
# What draws figures and serves the live page: 35 MB that nobody looks at there. Reports say what is missing.
LEFT_BEHIND = frozenset({
    "altair", "anyio", "attrs", "h11", "idna", "jsonschema", "jsonschema-specifications", "packaging",
    "referencing", "rpds-py", "starlette", "uvicorn", "vl-convert-python",
})  # fmt: skip
# Module and distribution of what is too large to carry.
ON_THE_BOX: Mapping[str, str] = {
    "numpy": "numpy", "pyarrow": "pyarrow", "sklearn": "scikit-learn", "scipy": "scipy", "joblib": "joblib",
}  # fmt: skip
# What the workloads are compiled for, by GPU; for those before Turing by CUDA 12, which 13 refuses.
ARCHITECTURES: Mapping[str, str] = {
    "V100": "sm_70", "RTX 2060": "sm_75", "A100": "sm_80", "RTX 3070": "sm_86", "L4": "sm_89", "L40": "sm_89",
    "H100": "sm_90", "H200": "sm_90", "B200": "sm_100",
}  # fmt: skip
# What each call of a loan runs: the module, and its arguments but for those that are given. A looks, B has
# a million launches and CUDA workloads, C PyTorch's by the tracer and by its own profiler, D what failed.
CALLS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "A": ("tests.gpu.first_call", ("--time-limit=360",)),
    "B": ("tests.gpu", (
        "--part=launches,cuda", "--workloads=short_kernels,saxpy,matmul_tiled,chain,graph_loop",
        "--repeats=2", "--slices=1", "--time-limit=560",
    )),
    "C": ("tests.gpu", (
        "--part=torch,kineto", "--workloads=resnet50_64,transformer,lstm", "--repeats=1", "--slices=1",
        "--time-limit=560",
    )),
    "D": ("tests.gpu", ("--repeats=1", "--slices=1", "--time-limit=560")),
}  # fmt: skip
MOST_BYTES = 30_000_000
_FOLDERS = ("--out", "--work", "--cache", "--programs", "--again", "--torch-python")
_RESULTS = "results"
_GLIBC = (17, 24, 26, 27, 28, 31, 34, 35)
_PIP_SECONDS = 900
_MANIFEST = "manifest.json"
_GLIBC_KEY = "workloads_need_glibc"
_TRACER = "libassay-tracer.so"
_PROJECT, _PROGRAMS, _PACKAGES = "project.tar.xz", "programs.tar.xz", "packages.tar.xz"
# What runs the proof, of the project; the last two for its rehearsal.
_TAKEN = (*PACKAGE_FOLDERS, "pyproject.toml", "tests/gpu", "tests/tracer", "tests/support/tracer")
_LEFT = re.compile(r".*/(__pycache__|test_[^/]*\.py|.*\.pyc)$")


class CannotCarryError(Exception):
    """Something cannot be packed or used; the text says what."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Pack, or run; see the module for the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if words[:1] == ["run"]:
            return _run(words[1:])
        return _pack(words)
    except CannotCarryError as problem:
        print(f"carry: {problem}", file=sys.stderr)
        return CANNOT


# ---- here ----


def _pack(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="carry.py", description=__doc__.splitlines()[0])
    parser.add_argument("verb", choices=("pack", "run"))
    parser.add_argument("--to", type=Path, default=Path("gpu-carry"), help="the folder to take along")
    parser.add_argument("--python", default="3.12", help="release of the Python there")
    parser.add_argument("--machine", default="x86_64", help="processor there, as uname -m says")
    parser.add_argument("--architecture", default="", help="compile the workloads for it too: sm_90, or V100")
    options = parser.parse_args(words)
    options.architecture = ARCHITECTURES.get(options.architecture, options.architecture)
    if options.to.exists() and not (options.to / _MANIFEST).is_file():
        raise CannotCarryError(f"{options.to} is there, and was not made by carry.py: name another folder")
    shutil.rmtree(options.to, ignore_errors=True)
    options.to.mkdir(parents=True)
    wheels = _packed_wheels(options.to / _PACKAGES, options.python, options.machine)
    tracer = _copied_tracer(options.to / _TRACER)
    programs, glibc = _compiled(options.to, options.architecture) if options.architecture else (0, "")
    _archive(options.to / _PROJECT, ROOT, _TAKEN)
    shutil.copyfile(__file__, options.to / "carry.py")
    manifest = {"python": options.python, "machine": options.machine, "wheels": wheels, _GLIBC_KEY: glibc}
    (options.to / _MANIFEST).write_text(json.dumps(manifest, indent=1))
    total = sum(path.stat().st_size for path in options.to.rglob("*") if path.is_file())
    print(
        f"{options.to}: {len(wheels)} wheels for Python {options.python}, {tracer}, {programs} workloads"
        f"{f' that need glibc {glibc}' if glibc else ''},"
    )
    print(f"{total / 1e6:.1f} MB. There: python3 {options.to.name}/carry.py run --call A --out OUT")
    if total > MOST_BYTES:
        raise CannotCarryError(f"{options.to} has more than {MOST_BYTES / 1e6:.0f} MB")
    return 0


def pinned(names: Sequence[str], constraints: Path = ROOT / "requirements" / "constraints.txt") -> list[str]:
    """The names with the versions that this checkout is tested with; raises CannotCarryError."""
    lines = {line.partition("==")[0]: line.strip() for line in constraints.read_text().splitlines()}
    if unknown := [name for name in names if _key(name) not in lines]:
        raise CannotCarryError(f"{constraints} has no version of {', '.join(unknown)}")
    return [lines[_key(name)] for name in names]


def _key(name: str) -> str:
    return name.lower().replace("_", "-")


def _packed_wheels(target: Path, python: str, machine: str) -> list[str]:
    """Archive the contents of the wheels: a fifth smaller than the wheels. Returns their names."""
    with tempfile.TemporaryDirectory() as temporary:
        wheels, site = Path(temporary, "wheels"), Path(temporary, "site")
        names = _download(wheels, python, machine)
        unpack(wheels, site)
        _archive(target, site, sorted(path.name for path in site.iterdir()))
    return names


def _download(folder: Path, python: str, machine: str) -> list[str]:
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in _GLIBC] + [f"manylinux2014_{machine}"]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
               "--only-binary=:all:", "--implementation", "cp", "--python-version", python,
               *(word for platform in platforms for word in ("--platform", platform)),
               "--dest", str(folder), *pinned(CARRIED)]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PIP_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotCarryError(f"pip cannot be run: {error}") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise CannotCarryError(f"the packages cannot be downloaded: {last}")
    return sorted(path.name for path in folder.glob("*.whl"))


def _copied_tracer(target: Path) -> str:
    """The portable build: the box may have an older system than this one."""
    sys.path[:0] = [str(ROOT / name) for name in PACKAGE_FOLDERS]
    from assay_agent.tracer import build  # noqa: PLC0415 - there, nobody needs it

    cache = build.default_cache()
    cache.mkdir(parents=True, exist_ok=True)
    try:
        tracer = build.build(build.GENERATIONS["13"], cache, portable=True)
    except build.TracerBuildError as problem:
        return f"no tracer ({problem})"
    shutil.copyfile(tracer, target)
    return tracer.name


def _compiled(folder: Path, architecture: str) -> tuple[int, str]:
    """How many workloads, and the glibc that they need: an old one where Zig can link them."""
    sys.path[:0] = [str(ROOT), *(str(ROOT / name) for name in PACKAGE_FOLDERS)]
    from assay_agent.tracer import build as tracer  # noqa: PLC0415 - there, nobody needs it
    from assay_agent.tracer.glibc import needed_glibc  # noqa: PLC0415
    from tests.gpu import build  # noqa: PLC0415 - there, a compiler may be missing

    linker: Sequence[str] = ()
    try:
        linker = tracer.portable_compiler(tracer.default_cache())
    except tracer.TracerBuildError as problem:
        print(f"carry: the workloads are linked for the glibc of this box: {problem}", file=sys.stderr)
    cache = build.default_cache()
    cache.mkdir(parents=True, exist_ok=True)
    try:
        compiler = build.find_compiler(cache, architecture=architecture)
        programs = build.build(compiler, cache, architecture, linker=linker)
    except build.CannotBuildError as problem:
        raise CannotCarryError(f"the workloads cannot be compiled: {problem}") from problem
    needed = max(needed_glibc(program) for program in programs.values())
    if linker and needed > tracer.PORTABLE_GLIBC:
        raise CannotCarryError(
            f"the workloads need glibc {_dotted(needed)}: report it to the authors of Assay"
        )
    with tempfile.TemporaryDirectory() as gathered:
        for program in programs.values():
            shutil.copy2(program, gathered)
        _archive(folder / _PROGRAMS, Path(gathered), [program.name for program in programs.values()])
    return len(programs), _dotted(needed)


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))


def _archive(target: Path, root: Path, names: Sequence[str]) -> None:
    """Files and folders of a folder, as small as they get."""
    with tarfile.open(target, "w:xz", preset=9) as archive:
        for name in names:
            archive.add(root / name, name, filter=lambda member: None if _LEFT.match(member.name) else member)


# ---- there ----


def _run(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="carry.py run", add_help=False)
    beside = Path(__file__).parent
    found = beside if (beside / _MANIFEST).is_file() else Path("gpu-carry")
    parser.add_argument("--carried", type=Path, default=found)
    parser.add_argument("--call", choices=tuple(CALLS), default="")
    options, rest = parser.parse_known_args(words)
    carried = options.carried.absolute()
    if why := _workloads_fault(_require(carried)):
        print(f"carry: the carried workloads are left out: {why}", file=sys.stderr)
    module, preset = CALLS.get(options.call, ("tests.gpu", ()))
    if options.call == "D":
        preset = (*preset, f"--again={carried / _RESULTS}")
    rest = [*_without_given(preset, rest), *rest]
    with tempfile.TemporaryDirectory(prefix="assay-carried-") as temporary:
        site = Path(temporary) / "site"
        if _unpacked(carried / _PACKAGES, site) is None:
            raise CannotCarryError(f"{carried} has no {_PACKAGES}: pack it again, or copy all of it")
        root = _unpacked(carried / _PROJECT, Path(temporary) / "project") or ROOT
        name_ourselves(site, root)
        added = _added(rest, carried, Path(temporary), with_programs=not why)
        command = [sys.executable, "-m", module, *_absolute(rest), *added]
        process = subprocess.Popen(command, cwd=root, env=environment(os.environ, carried, site, root))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda received, _: process.send_signal(received))
        return process.wait()


def _without_given(preset: Sequence[str], rest: Sequence[str]) -> list[str]:
    """The arguments of a call whose options were not given."""
    given = {word.partition("=")[0] for word in rest}
    return [word for word in preset if word.partition("=")[0] not in given]


def _require(carried: Path) -> Mapping[str, Any]:
    """The manifest of the folder.

    Raises CannotCarryError where this Python is not what was packed for, or lacks what was not packed.
    """
    try:
        manifest: Mapping[str, Any] = json.loads((carried / _MANIFEST).read_text())
    except (OSError, ValueError) as error:
        raise CannotCarryError(f"{carried} is not what 'carry.py pack' makes: {error}") from error
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if manifest["python"] != here:
        raise CannotCarryError(
            f"it was packed for Python {manifest['python']}, and {sys.executable} is {here}"
        )
    if missing := [name for module, name in ON_THE_BOX.items() if importlib.util.find_spec(module) is None]:
        raise CannotCarryError(f"{sys.executable} lacks {', '.join(missing)}, and these are not carried")
    return manifest


def _workloads_fault(manifest: Mapping[str, Any]) -> str:
    """Why the carried workloads do not start on this box; "" where they do, or there are none."""
    needed, (library, here) = manifest.get(_GLIBC_KEY) or "0", platform.libc_ver()
    if library != "glibc" or _numbers(needed) <= _numbers(here):
        return ""
    return f"they need glibc {needed}, and this box has {here}; pack them where Zig can be downloaded"


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")[:2]]


def unpack(wheels: Path, site: Path) -> None:
    """Unpack wheels so that their packages can be imported from ``site``. Scripts are of no use here."""
    site.mkdir(parents=True, exist_ok=True)
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    for data in site.glob("*.data"):
        for library in data.glob("*lib"):  # purelib and platlib
            shutil.copytree(library, site, dirs_exist_ok=True)
        shutil.rmtree(data)


def _unpacked(archive: Path, folder: Path) -> Path | None:
    """The folder with what an archive of ours holds; None without one."""
    if not archive.is_file():
        return None
    safely: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(archive) as packed:
        packed.extractall(folder, **safely)
    return folder


def _absolute(rest: Sequence[str]) -> list[str]:
    """The arguments with folders as they are meant here: the proof runs in another folder."""
    made, before = [], ""
    for word in rest:
        name, equals, value = word.partition("=")
        if before in _FOLDERS:
            made.append(str(Path(word).absolute()))
        elif equals and name in _FOLDERS:
            made.append(f"{name}={Path(value).absolute()}")
        else:
            made.append(word)
        before = word
    return made


def name_ourselves(site: Path, root: Path = ROOT) -> None:
    """Let this checkout count as installed: reports name its release, as that of every program."""
    found = re.search(r'^version = "(.+)"$', (root / "pyproject.toml").read_text(), re.MULTILINE)
    version = found[1] if found else "0"
    folder = site / f"assay_gpu-{version}.dist-info"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: assay-gpu\nVersion: {version}\n")


def environment(given: Mapping[str, str], carried: Path, site: Path, root: Path = ROOT) -> dict[str, str]:
    """The environment of the proof: what was carried, before what the box has."""
    path = [str(site), str(root), *(str(root / name) for name in PACKAGE_FOLDERS)]
    made = {**given, "PYTHONPATH": os.pathsep.join([*path, *filter(None, [given.get("PYTHONPATH")])])}
    tracer = carried / _TRACER
    return {**made, "ASSAY_TRACER": str(tracer)} if tracer.is_file() else made


def _added(rest: Sequence[str], carried: Path, temporary: Path, *, with_programs: bool = True) -> list[str]:
    """Arguments of the proof that were not given: states go where nobody fetches them."""
    given = {word.partition("=")[0] for word in rest}
    added = [] if "--work" in given else ["--work", str(temporary / "work")]
    programs = _unpacked(carried / _PROGRAMS, temporary / "programs") if with_programs else None
    if programs is not None and "--programs" not in given:
        for program in programs.iterdir():
            program.chmod(0o755)
        added += ["--programs", str(programs)]
    return added


if __name__ == "__main__":
    sys.exit(main())
