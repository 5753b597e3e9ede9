"""Names of one traced process: demangled kernels, paths of NVTX ranges, and PyTorch's operators in them."""

from __future__ import annotations

import ctypes
import ctypes.util
import re
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from assay_agent.tracer import demangle
from assay_agent.tracer.protocol import Frame

_RANGE = 1
# The format of PyTorch's emit_nvtx ranges, without the numbers that the tracer removes.
_OPERATOR = re.compile(r"(?P<operator>[^,]+?)(?:, sizes = (?P<shapes>\[.*\]))?")
_OPERATOR_NAME = re.compile(r"\w+::\w[\w.]*|\w+Backward\d*")


class ProcessNames:
    """The names of a process by the id that the tracer gave them."""

    def __init__(self) -> None:
        self._kernels: dict[int, str] = {}
        self._ranges: dict[int, tuple[int, str]] = {}
        self._paths: dict[int, str] = {}

    def add(self, frame: Frame) -> None:
        """A name as it was sent."""
        fields = frame.fields
        if fields["kind"] == _RANGE:
            self._ranges[fields["id"]] = (fields["parent"], frame.text)
        else:
            self._kernels[fields["id"]] = demangled(frame.text)

    def kernels(self, identifiers: np.ndarray) -> tuple[list[str], np.ndarray]:
        """Texts, and the index of each of the ids into them, shape (n,)."""
        distinct, index = np.unique(identifiers, return_inverse=True)
        return [self._kernels.get(i) or "(unnamed)" for i in distinct.tolist()], index

    def ranges(self, identifiers: np.ndarray) -> tuple[list[tuple[str, str, str]], np.ndarray]:
        """(path, operator, input shapes) of distinct ranges, "" for missing ones, and the index of each
        id into them, shape (n,)."""
        distinct, index = np.unique(identifiers, return_inverse=True)
        return [(self._path(i), *self._operator(i)) for i in distinct.tolist()], index

    def _path(self, identifier: int) -> str:
        """Names of the range and those around it, outermost first, joined by "/"."""
        if identifier not in self._ranges:
            return ""
        if identifier not in self._paths:
            parent, text = self._ranges[identifier]
            above = self._path(parent)
            self._paths[identifier] = f"{above}/{text}" if above else text
        return self._paths[identifier]

    def _operator(self, identifier: int) -> tuple[str, str]:
        """The innermost operator around a launch, and its input shapes."""
        while identifier in self._ranges:
            identifier, text = self._ranges[identifier]
            match = _OPERATOR.fullmatch(text)
            if match and (match["shapes"] or _OPERATOR_NAME.fullmatch(match["operator"])):
                return match["operator"], match["shapes"] or ""
        return "", ""


@lru_cache(maxsize=65536)
def demangled(symbol: str) -> str:
    """The C++ name of a symbol as NVIDIA's tools write it; if we cannot read it, as libstdc++ does."""
    ours = demangle.demangled(symbol)
    if ours is not None:
        return ours
    function = _demangler()
    if function is None or not symbol.startswith("_Z"):
        return symbol
    status = ctypes.c_int()
    pointer = function(symbol.encode(), None, None, ctypes.byref(status))
    if not pointer:
        return symbol
    try:
        return ctypes.string_at(pointer).decode(errors="replace")
    finally:
        _free()(pointer)


@lru_cache(maxsize=1)
def _demangler() -> Callable[..., int | None] | None:
    try:
        function = ctypes.CDLL("libstdc++.so.6")["__cxa_demangle"]
    except (OSError, AttributeError):
        return None
    function.restype = ctypes.c_void_p
    function.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p]
    return function


@lru_cache(maxsize=1)
def _free() -> Callable[..., None]:
    function = ctypes.CDLL(None)["free"]
    function.restype, function.argtypes = None, [ctypes.c_void_p]
    return function
