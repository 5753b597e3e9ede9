"""Whether two names mean one kernel, where a trace has it mangled and a profiler demangled.

A mangled name of the Itanium ABI tells its namespaces and functions by their lengths (``_ZN2at4gemmEv``), so
these can be compared without a demangler. Template arguments and parameters are not compared.

Source: Itanium C++ ABI, 5.1 "External Names (a.k.a. Mangling)".
"""

from __future__ import annotations

import re

_ANONYMOUS = "(anonymous namespace)"
_LENGTH = re.compile(r"(\d{1,6})(?=[A-Za-z_])")
_IN_ANGLES = re.compile(r"<[^<>]*>")
_MOST_NESTED = 64


def is_mangled(name: str) -> bool:
    """Whether a name is mangled as C++ compilers do it."""
    return name.startswith("_Z")


def same_kernel(one: str, other: str) -> bool:
    """Whether two names may mean one kernel: they are equal, or one is the other's mangled form as far as
    namespaces and functions tell. A profiler may leave the namespaces out."""
    if one == other:
        return True
    if is_mangled(one) == is_mangled(other):
        return False
    mangled, plain = (one, other) if is_mangled(one) else (other, one)
    mangled_parts, whole = _mangled_parts(mangled)
    parts = _plain_parts(plain)
    if not mangled_parts or not parts:
        return False
    if len(parts) == 1:
        return mangled_parts[-1] == parts[0]
    # A mangled name with template arguments within may go on after them.
    return mangled_parts == (parts if whole else parts[: len(mangled_parts)])


def _mangled_parts(name: str) -> tuple[list[str], bool]:
    """Namespaces and function of a mangled name; and whether they are all of them."""
    at = 2
    nested = name.startswith("N", at)
    if nested:
        at += 1
        at += len(name[at:]) - len(name[at:].lstrip("rVK"))
    parts = ["std"] if name.startswith("St", at) else []
    at += 2 * len(parts)
    if name.startswith("L", at):  # of internal linkage
        at += 1
    while length := _LENGTH.match(name, at):
        begin = length.end()
        at = begin + int(length[1])
        part = name[begin:at]
        parts.append(_ANONYMOUS if part.startswith("_GLOBAL__N_") else part)
        if not nested:
            return parts, True
    if not nested or name.startswith("E", at):
        return parts, True
    return parts, _ends_after_arguments(name, at)


def _ends_after_arguments(name: str, at: int) -> bool:
    """Whether nothing but template arguments is left of a nested name; False where that is not clear."""
    # `IfE` ... `EE`: arguments of the last part are followed by the end of the nested name.
    return re.match(r"I[a-z]+EE", name[at:]) is not None


def _plain_parts(name: str) -> list[str]:
    """Namespaces and function of a demangled name, without return type, template arguments and parameters."""
    text = name.replace("<unnamed>", _ANONYMOUS).replace(_ANONYMOUS, "\0")
    text = text.replace("operator()", "operator").replace("->", "")
    for _ in range(_MOST_NESTED):
        shorter = _IN_ANGLES.sub("", text)
        if shorter == text:
            break
        text = shorter
    words = text.partition("(")[0].split()
    parts = words[-1].split("::") if words else []
    return [part.replace("\0", _ANONYMOUS) for part in parts if part]
