"""One GPU through NVML, and NVML's errors as one exception.

Setters need root; devices are keyed by UUID. Source: docs/nvidia-tools.md, "NVML".
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

NOT_PERMITTED = 4
# "Not supported", "function not found" and "deprecated": this GPU or driver does not have it.
ABSENT = frozenset({3, 13, 26})


class NvmlError(Exception):
    """NVML refused; ``code`` is NVML's, -1 if the box has no NVML."""

    def __init__(self, code: int, reason: str) -> None:
        self.code = code
        super().__init__(reason)


@contextlib.contextmanager
def nvml_device(uuid: str) -> Iterator[tuple[Any, Any]]:
    """The bindings of NVML and the handle of a GPU; NVML's errors in the block become NvmlError."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError as error:
        raise NvmlError(-1, "the Python module 'pynvml' is not installed") from error
    try:
        nvml.nvmlInit()
        try:
            yield nvml, nvml.nvmlDeviceGetHandleByUUID(uuid)
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError as error:
        raise NvmlError(error.value, f"NVML error {error.value}: {error}") from error
