"""What is missing on this machine for a client, an agent or a server, each with its remedy. Only reads.

Source: notes on Nsight Compute, Nsight Systems, MPS and NVML, sections 1.3, 1.4, 1.5 and 5.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from assay_agent.config import DEFAULT_SERVER, AgentConfig
from assay_agent.inventory import Inventory, read_inventory
from assay_agent.profilers.tool_version import parse_version
from assay_sampling.errors import NotReadyError, ParameterError

NEEDS = ("client", "agent", "server")
EVERYTHING = "all"

State = Literal["ok", "missing", "note"]

DRIVER_PARAMETERS = Path("/proc/driver/nvidia/params")
_OLDEST_PYTHON = (3, 11)
_TOOL_SECONDS = 30.0
_CONNECT_SECONDS = 2.0
_CAP_SYS_ADMIN = 1 << 21
_LOCK_FILE = "nsight-compute-lock"
_TEMPORARY = ("TMPDIR", "TMP", "TEMP", "TEMPDIR")
_LEAST_FREE_BYTES = AgentConfig.minimum_free_bytes
_EXTRAS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "analysis": (("sklearn", "threadpoolctl"), ("client", "server")),
    "agent": (("pynvml", "psutil"), ("agent",)),
    "server": (("sqlalchemy", "alembic", "yaml", "jinja2"), ("server",)),
    "ncu-report": (("ncu_report",), ()),
}
_TOOLS = {
    "ncu": ("Nsight Compute", "counters (the detailed level)"),
    "nsys": ("Nsight Systems", "all launches with their times (the light level)"),
}


@dataclass(frozen=True)
class Check:
    """One thing looked at.

    Args:
        name: what it is.
        state: "ok"; "missing" where something needed is not there; "note" where nothing needed fails, but
            a person should know.
        found: what was found.
        remedy: what to do about it, "" where it is ok.
    """

    name: str
    state: State
    found: str
    remedy: str = ""

    def to_dict(self) -> dict[str, str]:
        return {key: str(value) for key, value in dataclasses.asdict(self).items()}


def examine(need: str = EVERYTHING, state: Path | None = None, server: str | None = None) -> list[Check]:
    """Look at this machine for what ``need`` ("client", "agent", "server" or "all") needs.

    Args:
        need: whose needs count as missing; what others need is a note.
        state: the folder that will hold the state; None: the working folder.
        server: the server's address; None: $ASSAY_SERVER, else 127.0.0.1:7170.

    Raises ParameterError for another ``need``. What cannot be looked at is a finding, never an error.
    """
    if need not in (*NEEDS, EVERYTHING):
        raise ParameterError("--for", f"there is no {need!r}", f"use {', '.join((*NEEDS, EVERYTHING))}")
    needs = frozenset(NEEDS if need == EVERYTHING else (need,))
    return list(_checks(needs, state or Path(), server or os.environ.get("ASSAY_SERVER") or DEFAULT_SERVER))


def require_nothing_missing(checks: list[Check], need: str) -> None:
    """Raises NotReadyError naming what is missing."""
    missing = [check.name for check in checks if check.state == "missing"]
    if missing:
        whom = "what was asked for" if need == EVERYTHING else f"the {need}"
        raise NotReadyError(
            "this machine",
            f"{len(missing)} of {len(checks)} checks found something missing that {whom} needs: "
            f"{', '.join(missing)}",
            "each check above says what to do; --for client, agent or server asks for less",
        )


def _checks(needs: frozenset[str], state: Path, server: str) -> Iterator[Check]:
    yield _python()
    for extra, (modules, users) in _EXTRAS.items():
        yield _extra(extra, modules, bool(needs & set(users)))
    inventory = read_inventory()
    agent = "agent" in needs
    yield from _devices(inventory, agent)
    versions = {}
    for program in _TOOLS:
        check, versions[program] = _tool(program, agent)
        yield check
    yield from _unsupported(inventory, versions["ncu"])
    yield _permission(inventory, agent)
    yield _lock_file()
    yield _mps()
    yield _disk(state)
    yield _writable(state)
    yield _server(server, agent)


def _finding(name: str, needed: bool, found: str, remedy: str) -> Check:
    return Check(name, "missing" if needed else "note", found, remedy)


def _python() -> Check:
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] >= _OLDEST_PYTHON:
        return Check("Python", "ok", found)
    return Check("Python", "missing", found, "install Python 3.11 or newer")


def _extra(extra: str, modules: tuple[str, ...], needed: bool) -> Check:
    lacking = [module for module in modules if importlib.util.find_spec(module) is None]
    name = f"extra {extra}"
    if not lacking:
        return Check(name, "ok", ", ".join(modules))
    what = f"no Python module {', '.join(lacking)}"
    return _finding(name, needed, what, f"pip install 'assay-gpu[{extra}]'")


def _devices(inventory: Inventory, needed: bool) -> Iterator[Check]:
    virtual = "; without a GPU: assay-agent run --virtual V100"
    if inventory.driver_version:
        yield Check(
            "NVIDIA driver", "ok", f"{inventory.driver_version} (CUDA {inventory.cuda_driver_version or '?'})"
        )
    else:
        remedy = f"install NVIDIA's driver, and load it{virtual}"
        yield _finding("NVIDIA driver", needed, inventory.no_device_reason or "no version", remedy)
    if not inventory.devices:
        yield _finding("GPUs", needed, "none", f"run this on a machine with an NVIDIA GPU{virtual}")
    for device in inventory.devices:
        name = f"GPU {device.index}"
        if device.problem:
            remedy = "reset the GPU or reboot the box; nvidia-smi and the kernel's log say more"
            yield _finding(name, needed, device.problem, remedy)
        else:
            yield Check(
                name, "ok", f"{device.name}, compute capability {device.compute_capability}, {device.uuid}"
            )


def _tool(program: str, needed: bool) -> tuple[Check, str]:
    product, measures = _TOOLS[program]
    path = shutil.which(program)
    if path is None:
        remedy = f"install NVIDIA {product} and put its folder into the PATH; it measures {measures}"
        return _finding(program, needed, "not in the PATH", remedy), ""
    try:
        ended = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TOOL_SECONDS,
            check=False,
        )
        version = parse_version(ended.stdout)
    except (OSError, subprocess.TimeoutExpired) as error:
        what = f"{path} does not say its version ({type(error).__name__})"
        return _finding(program, needed, what, f"install NVIDIA {product} again"), ""
    if not version:
        what = f"{path} does not say its version (exit code {ended.returncode})"
        return _finding(program, needed, what, f"install NVIDIA {product} again"), ""
    return Check(program, "ok", f"{version} ({path})"), version


def _unsupported(inventory: Inventory, version: str) -> Iterator[Check]:
    """Releases of 2026 no longer profile Volta."""
    volta = [d.name for d in inventory.devices if d.compute_capability in ("7.0", "7.2")]
    if volta and version and int(version.split(".", maxsplit=1)[0]) >= 2026:
        yield Check(
            "ncu for Volta",
            "missing",
            f"{version} may not profile {', '.join(volta)}",
            "install Nsight Compute 2024.1 beside it, and put that into the PATH of this box's agent",
        )


def _permission(inventory: Inventory, needed: bool) -> Check:
    name = "performance counters"
    try:
        text = DRIVER_PARAMETERS.read_text(errors="replace")
    except OSError as error:
        what = f"{DRIVER_PARAMETERS} cannot be read ({error.strerror})"
        if inventory.devices:
            return Check(name, "note", what, "profile one launch to see: ncu -c 1 PROGRAM")
        return _finding(name, needed, what, "install NVIDIA's driver, and load it")
    restricted = re.search(r"^RmProfilingAdminOnly:\s*(\d+)", text, re.MULTILINE)
    if restricted is None:
        what = f"{DRIVER_PARAMETERS} has no RmProfilingAdminOnly"
        return Check(name, "note", what, "profile one launch to see: ncu -c 1 PROGRAM")
    if restricted[1] == "0":
        return Check(name, "ok", "open to every user")
    if _is_administrator():
        return Check(name, "ok", "for administrators only, and this user is one")
    remedy = (
        "put 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' into /etc/modprobe.d/ and load the "
        "driver again, or run the agent as root"
    )
    return _finding(name, needed, "for administrators only, and this user is none", remedy)


def _is_administrator() -> bool:
    if os.geteuid() == 0:
        return True
    try:
        effective = re.search(r"^CapEff:\s*([0-9a-f]+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    except OSError:
        return False
    return effective is not None and bool(int(effective[1], 16) & _CAP_SYS_ADMIN)


def _lock_file() -> Check:
    """Tools that people start by hand share one; each GPU of an agent has a private folder for its own."""
    folder = next((os.environ[name] for name in _TEMPORARY if os.environ.get(name)), "/tmp")
    path = Path(folder) / _LOCK_FILE
    try:
        owner = path.stat().st_uid
    except FileNotFoundError:
        return Check("lock file", "ok", f"no {path}")
    except OSError as error:
        return Check("lock file", "note", f"{path} cannot be seen ({error.strerror})", "name another TMPDIR")
    if os.access(path, os.R_OK | os.W_OK):
        return Check("lock file", "ok", f"{path} is open to this user")
    remedy = "an agent's runs do not use it; for tools started by hand set TMPDIR to a private folder"
    return Check("lock file", "note", f"{path} belongs to user {owner}", remedy)


def _mps() -> Check:
    path = shutil.which("nvidia-cuda-mps-control")
    if path is not None:
        return Check("MPS", "ok", path)
    remedy = "only conditions with sm_percent on real GPUs need it; it comes with NVIDIA's driver"
    return Check("MPS", "note", "nvidia-cuda-mps-control is not in the PATH", remedy)


def _existing(folder: Path) -> Path:
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if os.access(path, os.F_OK))


def _disk(state: Path) -> Check:
    existing = _existing(state)
    try:
        free = shutil.disk_usage(existing).free
    except OSError as error:
        return Check("disk", "missing", f"{existing}: {error.strerror}", "name another folder with --state")
    found = f"{free / 1e9:,.1f} GB free at {existing}"
    if free >= _LEAST_FREE_BYTES:
        return Check("disk", "ok", found)
    return Check(
        "disk",
        "missing",
        found,
        f"free disk space ({_LEAST_FREE_BYTES:,} bytes are left free), or name another folder with --state",
    )


def _writable(state: Path) -> Check:
    existing = _existing(state)
    if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
        return Check("state folder", "ok", f"{state.absolute()} can be written to")
    what = f"{existing} is not a folder that this user can write to"
    return Check("state folder", "missing", what, "mend its permissions, or name another folder with --state")


def _server(address: str, needed: bool) -> Check:
    remedy = "start one with: assay-server --listen 127.0.0.1:7170 --state DIR; or name another with --server"
    try:
        _connect(address)
    except (OSError, ValueError, OverflowError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "not an address"
        return _finding("server", needed, f"nothing answers at {address} ({reason})", remedy)
    return Check("server", "ok", f"something answers at {address}")


def _connect(address: str) -> None:
    if address.startswith("unix:"):
        with socket.socket(socket.AF_UNIX) as channel:
            channel.settimeout(_CONNECT_SECONDS)
            channel.connect(address.removeprefix("unix:").removeprefix("//"))
        return
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
