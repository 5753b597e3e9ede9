"""Finds what is missing on this machine for a client, an agent or a server, with remedies. Only reads.

Source: docs/doctor.md.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from assay_agent.doctor.box import box_checks
from assay_agent.doctor.bundles import bundles_check
from assay_agent.doctor.check import Check, finding
from assay_agent.doctor.gangs import gang_checks
from assay_agent.doctor.reaching import server_check
from assay_agent.doctor.tools import tool_checks
from assay_agent.doctor.tracer import tracer_check
from assay_agent.gpus.inventory import read_inventory
from assay_agent.health.quarantine import Quarantine
from assay_core.identity.credentials import Credentials
from assay_core.records.machine import Inventory
from assay_core.server_address import SERVER_VARIABLE, default_address
from assay_sampling.errors import NotReadyError, ParameterError
from assay_sampling.installation import install_command

NEEDS = ("client", "agent", "server")
EVERYTHING = "all"

_OLDEST_PYTHON = (3, 11)
_EXTRAS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "analysis": (("sklearn", "scipy", "threadpoolctl"), ("client", "server")),
    "agent": (("pynvml", "psutil"), ("agent",)),
    "server": (("sqlalchemy", "alembic", "yaml", "jinja2"), ("server",)),
    "ncu-report": (("ncu_report",), ()),
}


def examine(
    need: str = EVERYTHING,
    state: Path | None = None,
    server: str | None = None,
    credentials: Credentials | None = None,
    socket_owner: str = "",
) -> list[Check]:
    """Look at this machine for what ``need`` ("client", "agent", "server" or "all") needs.

    Args:
        need: whose needs count as missing; what others need is a note.
        state: the folder that will hold the state; None: the working folder.
        server: the server's address; None: $ASSAY_SERVER, else this user's own socket.
        socket_owner: the user whose shared socket is trusted; "": only this user's own.
        credentials: those with which this box or person connects over TCP; None without a login.

    Raises ParameterError for another ``need``. What cannot be looked at is a finding, never an error.
    """
    if need not in (*NEEDS, EVERYTHING):
        raise ParameterError("--for", f"there is no {need!r}", f"use {', '.join((*NEEDS, EVERYTHING))}")
    needs = frozenset(NEEDS if need == EVERYTHING else (need,))
    address = server or os.environ.get(SERVER_VARIABLE) or default_address()
    return [
        *_checks(needs, state or Path()),
        server_check(address, "agent" in needs, credentials, socket_owner),
    ]


def require_nothing_missing(checks: list[Check], need: str) -> None:
    """Raises NotReadyError if something needed is missing."""
    missing = [check.name for check in checks if check.state == "missing"]
    if missing:
        whom = "what was asked for" if need == EVERYTHING else f"the {need}"
        raise NotReadyError(
            "this machine",
            f"{len(missing)} of {len(checks)} checks found something missing that {whom} needs: "
            f"{', '.join(missing)}",
            "each check above says what to do; --for client, agent or server asks for less",
        )


def _checks(needs: frozenset[str], state: Path) -> Iterator[Check]:
    yield _python()
    for extra, (modules, users) in _EXTRAS.items():
        yield _extra(extra, modules, bool(needs & set(users)))
    inventory = read_inventory()
    agent = "agent" in needs
    yield from _devices(inventory, agent)
    yield from _quarantined(state)
    yield from tool_checks(inventory, agent)
    yield tracer_check()
    yield from gang_checks(inventory)
    yield bundles_check()
    yield from box_checks(inventory, state, agent)


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] >= _OLDEST_PYTHON:
        return Check("Python", "ok", version)
    return Check("Python", "missing", version, "install Python 3.11 or newer")


def _extra(extra: str, modules: tuple[str, ...], needed: bool) -> Check:
    lacking = [module for module in modules if importlib.util.find_spec(module) is None]
    name = f"extra {extra}"
    if not lacking:
        return Check(name, "ok", ", ".join(modules))
    what = f"no Python module {', '.join(lacking)}"
    return finding(name, needed, what, install_command(extra))


def _devices(inventory: Inventory, needed: bool) -> Iterator[Check]:
    virtual = "; without a GPU: assay-agent run --virtual V100"
    if inventory.driver_version:
        yield Check(
            "NVIDIA driver", "ok", f"{inventory.driver_version} (CUDA {inventory.cuda_driver_version or '?'})"
        )
    else:
        remedy = f"install NVIDIA's driver, and load it{virtual}"
        yield finding("NVIDIA driver", needed, inventory.no_device_reason or "no version", remedy)
    if not inventory.devices:
        yield finding("GPUs", needed, "none", f"run this on a machine with an NVIDIA GPU{virtual}")
    for device in inventory.devices:
        name = f"GPU {device.index}"
        if device.problem:
            remedy = "reset the GPU or reboot the box; nvidia-smi and the kernel's log say more"
            yield finding(name, needed, device.problem, remedy)
        elif device.left_out:
            reason, _, remedy = device.left_out.partition("; ")
            yield Check(name, "note", f"takes no runs: {reason}", remedy)
        else:
            yield Check(
                name, "ok", f"{device.name}, compute capability {device.compute_capability}, {device.uuid}"
            )


def _quarantined(state: Path) -> Iterator[Check]:
    """The GPUs that the agent with this state folder took out of service."""
    for entry in Quarantine(state).entries():
        yield Check(
            f"quarantine {entry.gpu}",
            "note",
            f"{entry.name} takes no runs since it was lost in {entry.run}: {entry.reason}",
            f"reset or replace it, then: assay-agent quarantine clear {entry.gpu}",
        )
