"""Which releases of NVIDIA's tools measure which GPU: the table ``pins.toml`` next to this module."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

Tool = Literal["ncu", "nsys", "cupti", "driver"]

TOOLS: tuple[Tool, ...] = ("ncu", "nsys", "cupti", "driver")
NONE = "none"
_NAMES = {"ncu": "Nsight Compute", "nsys": "Nsight Systems", "cupti": "CUPTI", "driver": "NVIDIA driver"}


@dataclass(frozen=True)
class Pin:
    """The releases of one tool that measure an architecture; see the head of the table for the fields."""

    tool: Tool
    first: str = ""
    last: str = ""
    basis: str = ""
    source: str = ""

    @property
    def certain(self) -> bool:
        """Whether NVIDIA documents it for the release itself, or the tool reports it."""
        return self.basis in {"documented", "seen"}

    def too_new(self, version: str) -> bool:
        """Whether this release no longer measures the architecture, or none ever did."""
        return self.last == NONE or (bool(self.last) and _cut(version, self.last) > _numbers(self.last))

    def too_old(self, version: str) -> bool:
        """Whether this release does not yet measure the architecture."""
        return bool(self.first) and _cut(version, self.first) < _numbers(self.first)

    def remedy(self, version: str) -> str:
        """What to install instead of this release, or next to it."""
        name = _NAMES[self.tool]
        if self.last == NONE:
            return f"no release of {name} measures it; light runs need Nsight Systems only"
        if self.too_new(version):
            return f"install {name} {self.last}, the last that measures it ({self.source})"
        if self.too_old(version):
            return f"install {name} {self.first} or newer ({self.source})"
        return f"install another release of {name}"


@dataclass(frozen=True)
class Architecture:
    """The GPUs of one architecture, and the tools that measure them."""

    name: str
    compute_capabilities: tuple[str, ...]
    chips: tuple[str, ...]
    pins: tuple[Pin, ...]

    def pin(self, tool: Tool) -> Pin:
        """The releases of a tool; without limits if none are known."""
        return next((pin for pin in self.pins if pin.tool == tool), Pin(tool))


@cache
def architectures() -> tuple[Architecture, ...]:
    """All architectures of the table, oldest first."""
    text = resources.files("assay_agent.doctor").joinpath("pins.toml").read_text()
    return tuple(_architecture(name, entry) for name, entry in tomllib.loads(text).items())


def architecture_of(compute_capability: str) -> Architecture | None:
    """The architecture of a GPU, None if the table does not have it."""
    return next((a for a in architectures() if compute_capability in a.compute_capabilities), None)


def _architecture(name: str, entry: dict[str, Any]) -> Architecture:
    pins = tuple(Pin(tool=tool, **entry[tool]) for tool in TOOLS if tool in entry)
    return Architecture(name.capitalize(), tuple(entry["compute_capabilities"]), tuple(entry["chips"]), pins)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _cut(version: str, pinned: str) -> tuple[int, ...]:
    """The version cut to as many numbers as the pinned one has: 2025.2.1 is within 2025.2."""
    return _numbers(version)[: len(_numbers(pinned))]
