"""Forms of a kernel's name: demangled (as the workload file has it), function and mangled."""

from __future__ import annotations

import hashlib
import re

_ANONYMOUS = "(anonymous namespace)"


def function_name(demangled: str) -> str:
    """The name without return type, namespaces, template arguments and parameters."""
    text = demangled.replace(_ANONYMOUS, "_anonymous")
    plain, depth = [], 0
    for character in text:
        if character == "(" and depth == 0:
            break
        depth += {"<": 1, ">": -1}.get(character, 0)
        if depth == 0 and character != ">":
            plain.append(character)
    return "".join(plain).split()[-1].rsplit("::", 1)[-1] if "".join(plain).strip() else demangled


def mangled_name(demangled: str) -> str:
    """A mangled name: a C function's own name, else an invented one.

    It looks like a compiler's, is different for different names, and cannot be demangled.
    """
    if re.fullmatch(r"\w+", demangled):
        return demangled
    function = re.sub(r"\W", "_", function_name(demangled))
    digest = hashlib.blake2b(demangled.encode(), digest_size=4).hexdigest()
    return f"_ZN7virtual{len(function)}{function}E{digest}"


def named(demangled: str, base: str) -> str:
    """The name in the form "demangled", "function" or "mangled"."""
    if base == "demangled":
        return demangled
    return function_name(demangled) if base == "function" else mangled_name(demangled)
