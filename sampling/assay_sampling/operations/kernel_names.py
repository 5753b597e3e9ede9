"""Kernel names without what differs between GPUs and compilations: template arguments and parameters."""

from __future__ import annotations

_MOST_CHARACTERS = 200


def base_name(kernel: str) -> str:
    """The function of a demangled kernel name: without return type, namespaces, template arguments and
    parameters. A name that has no such form stays whole, cut at 200 characters.

    ``void at::native::vectorized_elementwise_kernel<4, F>(int, F)`` gives ``vectorized_elementwise_kernel``.
    """
    text = kernel.replace("(anonymous namespace)", "")
    depth = 0
    letters: list[str] = []
    for letter in text:
        if letter in "<({[":
            # Parameters begin at the first parenthesis outside of template arguments.
            if letter == "(" and depth == 0 and "".join(letters).strip():
                break
            depth += 1
        elif letter in ">)}]":
            depth = max(depth - 1, 0)
        elif depth == 0:
            letters.append(letter)
    words = "".join(letters).split()
    name = words[-1].rpartition("::")[2] if words else ""
    return (name or kernel)[:_MOST_CHARACTERS]
