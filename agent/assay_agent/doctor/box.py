"""The doctor's look at the box around the GPUs: permissions, locks, daemons, disks and the clock. Only reads.

Source: docs/doctor.md.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from assay_agent.conditions.mps_daemons import mps_daemons
from assay_agent.doctor.check import Check, finding
from assay_agent.guards.dcgm_processes import DcgmProcess, dcgm_processes
from assay_core.files.free_space import DEFAULT_FLOOR_BYTES, existing_place, free_space
from assay_core.records.machine import Inventory
from assay_sampling.installation import install_command

PROC = Path("/proc")
PCI_DEVICES = Path("/sys/bus/pci/devices")
_CAP_SYS_ADMIN = 1 << 21
CONTAINER_MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))
LIGHT_ONLY = (
    "or measure without counters: 'detailed: none' in the campaign file ('assay docs light-only' says what "
    "can be had)"
)
_LOCK_FILE = "nsight-compute-lock"
_TRY = (
    "profile one launch to see: ncu -c 1 PROGRAM; if it ends with ERR_NVGPUCTRPERM, have an administrator "
    f"allow it, {LIGHT_ONLY}"
)
_TEMPORARY = ("TMPDIR", "TMP", "TEMP", "TEMPDIR")
_NVIDIA, _DISPLAY = "0x10de", ("0x0300", "0x0302")
_EARLIEST = datetime(2025, 1, 1, tzinfo=UTC).timestamp()
_TIME_ERROR = 5


def box_checks(inventory: Inventory, state: Path, needed: bool) -> Iterator[Check]:
    """What an agent would find on this box; ``needed``: whether one is wanted here."""
    yield from _not_driven(inventory, needed)
    yield _permission(inventory, needed)
    yield _lock_file()
    yield _mps()
    yield _dcgm()
    yield from _disks(state, needed)
    yield _writable(state)
    yield _clock()


def _not_driven(inventory: Inventory, needed: bool) -> Iterator[Check]:
    """GPUs on the PCI bus that the driver does not show: a new driver silently ignores an old GPU."""
    try:
        there = sorted(path for path in PCI_DEVICES.iterdir() if _is_nvidia_gpu(path))
    except OSError:
        return
    if len(there) <= len(inventory.devices):
        return
    names = ", ".join(f"{path.name} ({_read(path / 'device') or '?'})" for path in there)
    driver = inventory.driver_version or "no driver"
    yield finding(
        "GPUs on the PCI bus",
        needed,
        f"{len(there)} of NVIDIA: {names}; {driver} drives {len(inventory.devices)} of them",
        "load NVIDIA's driver (R580 is the last for Maxwell, Pascal and Volta); a container must be given "
        "its GPUs, and a GPU bound to vfio-pci belongs to a virtual machine",
    )


def _is_nvidia_gpu(device: Path) -> bool:
    return _read(device / "vendor") == _NVIDIA and _read(device / "class").startswith(_DISPLAY)


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _permission(inventory: Inventory, needed: bool) -> Check:
    name, path = "performance counters", PROC / "driver/nvidia/params"
    try:
        text = path.read_text(errors="replace")
    except OSError as error:
        what = f"{path} cannot be read ({error.strerror})"
        if inventory.devices:
            return Check(name, "note", what, _TRY)
        return finding(name, needed, what, "install NVIDIA's driver, and load it")
    restricted = re.search(r"^RmProfilingAdminOnly:\s*(\d+)", text, re.MULTILINE)
    if restricted is None:
        what = f"{path} has no RmProfilingAdminOnly"
        return Check(name, "note", what, _TRY)
    if restricted[1] == "0":
        return Check(name, "ok", "open to every user")
    if _is_administrator():
        return Check(name, "ok", "for administrators only, and this user is one")
    what = "for administrators only, and this user is not one: ncu would fail with ERR_NVGPUCTRPERM"
    option = "put 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' into /etc/modprobe.d/"
    if _in_container():
        what += "; this is a container, and its root is not one either"
        remedy = f"{option} of its host and load the driver again, give it CAP_SYS_ADMIN, {LIGHT_ONLY}"
    else:
        remedy = f"{option} and load the driver again, run the agent as root, {LIGHT_ONLY}"
    return finding(name, needed, what, remedy)


def _in_container() -> bool:
    """Whether Docker, Podman, Kubernetes, LXC or systemd-nspawn left their marks."""
    if any(path.exists() for path in CONTAINER_MARKS):
        return True
    started = _read(PROC / "1/environ").split("\0")
    return any(each.startswith("container=") for each in started) or "KUBERNETES_SERVICE_HOST" in os.environ


def _is_administrator() -> bool:
    """Whether the driver treats this user as one; root of a container mostly lacks the capability."""
    effective = re.search(r"^CapEff:\s*([0-9a-f]+)", _read(PROC / "self/status"), re.MULTILINE)
    if effective is None:
        return os.geteuid() == 0
    return bool(int(effective[1], 16) & _CAP_SYS_ADMIN)


def _temporary() -> Path:
    return Path(next((os.environ[name] for name in _TEMPORARY if os.environ.get(name)), "/tmp"))


def _lock_file() -> Check:
    """Tools started by hand share one; runs of agents take turns among themselves."""
    path = _temporary() / _LOCK_FILE
    remedy = (
        "runs of agents do not wait for it, nor it for them: profile by hand while no agent takes runs, "
        "and as one user"
    )
    try:
        status = path.stat()
    except FileNotFoundError:
        return Check("lock file", "ok", f"no {path}")
    except OSError as error:
        return Check("lock file", "note", f"{path} cannot be seen ({error.strerror})", remedy)
    holder = _lock_holder(status)
    if holder:
        what = f"process {holder} holds {path}: it profiles, and a second ncu started by hand waits for it"
        return Check("lock file", "note", what, remedy)
    if os.access(path, os.R_OK | os.W_OK):
        return Check("lock file", "ok", f"{path} is open to this user")
    return Check("lock file", "note", f"{path} belongs to user {status.st_uid}", remedy)


def _lock_holder(status: os.stat_result) -> str:
    """The process that holds the lock of the file, "" if none does."""
    inode = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for line in _read(PROC / "locks").splitlines():
        words = line.split()
        if len(words) > 5 and words[1] != "->" and words[5] == inode:
            return words[4]
    return ""


def _mps() -> Check:
    path = shutil.which("nvidia-cuda-mps-control")
    daemons = mps_daemons()
    if daemons:
        return Check(
            "MPS",
            "note",
            f"a daemon lives at {', '.join(map(str, daemons))}; CUDA programs go through one at "
            "/tmp/nvidia-mps unasked, and counters taken under MPS mean little",
            "if it is yours and not in use: echo quit | nvidia-cuda-mps-control, with its "
            "CUDA_MPS_PIPE_DIRECTORY",
        )
    if path is not None:
        return Check("MPS", "ok", f"{path}, and no daemon runs")
    remedy = "only conditions with sm_percent on real GPUs need it; it comes with NVIDIA's driver"
    return Check("MPS", "note", "nvidia-cuda-mps-control is not in the PATH", remedy)


def _dcgm() -> Check:
    try:
        running = dcgm_processes()
    except ImportError as error:
        return Check("DCGM", "note", f"cannot look for it ({error})", install_command("agent"))
    if not running:
        return Check("DCGM", "ok", "does not run")
    return Check(
        "DCGM",
        "note",
        f"{', '.join(map(str, running))} runs: while it takes profiling metrics, ncu finds the counters busy",
        _stop_embedded(running) or "before detailed runs: dcgmi profile --pause, and afterwards --resume",
    )


def _stop_embedded(running: Sequence[DcgmProcess]) -> str:
    names = [each.name for each in running if each.embedded]
    if not names:
        return ""
    return (
        f"DCGM is inside {', '.join(dict.fromkeys(names))}, where dcgmi profile --pause may not reach it: "
        "stop it for detailed runs, or give it no profiling fields (DCGM_FI_PROF_...)"
    )


def _disks(state: Path, needed: bool) -> Iterator[Check]:
    yield _disk("disk", state, True, "name another folder with --state")
    yield _disk("disk of temporary files", _temporary(), needed, "set TMPDIR to another folder")


def _disk(name: str, folder: Path, needed: bool, otherwise: str) -> Check:
    try:
        space = free_space(folder)
    except OSError as error:
        return finding(name, needed, f"{existing_place(folder)}: {error.strerror}", otherwise)
    detail = f"{space.free_bytes / 1e9:,.1f} GB free at {space.place}"
    if space.free_bytes >= DEFAULT_FLOOR_BYTES:
        return Check(name, "ok", detail)
    remedy = f"free disk space ({DEFAULT_FLOOR_BYTES:,} bytes are left free), or {otherwise}"
    return finding(name, needed, detail, remedy)


def _writable(state: Path) -> Check:
    existing = existing_place(state)
    if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
        return Check("state folder", "ok", f"{state.absolute()} can be written to")
    what = f"{existing} is not a folder that this user can write to"
    return Check("state folder", "missing", what, "fix its permissions, or name another folder with --state")


def _clock() -> Check:
    """The clock only matters for times that people read: leases count elapsed time."""
    now = time.time()
    reading = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    remedy = "start chrony or systemd-timesyncd on the box (the host, for a container)"
    if now < _EARLIEST:
        return Check("clock", "note", f"it says {reading}, which is impossible", remedy)
    synchronised = clock_synchronised()
    if synchronised is False:
        what = (
            f"{reading}, but the kernel does not know it to be synchronised: times of boxes may not compare"
        )
        return Check("clock", "note", what, remedy)
    return Check(
        "clock", "ok", f"{reading}, {'synchronised' if synchronised else 'synchronised or not: no answer'}"
    )


def clock_synchronised() -> bool | None:
    """What the kernel knows of it (adjtimex, which only reads here); None if it does not answer."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "adjtimex"):
        return None
    answer: int = library.adjtimex(ctypes.create_string_buffer(512))
    return None if answer < 0 else answer != _TIME_ERROR
