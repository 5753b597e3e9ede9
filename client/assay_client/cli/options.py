"""Options that several verbs share, said once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

import typer

from assay_sampling.errors import ParameterError

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print exactly one JSON document to standard output.")
]
ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="ADDRESS",
        help="unix:PATH or HOST:PORT of the server; default $ASSAY_SERVER, else this user's own socket.",
        show_default=False,
    ),
]
CampaignArgument = Annotated[str, typer.Argument(metavar="ID", help="A campaign's id, such as demo-1.")]
SeedOption = Annotated[
    int, typer.Option("--seed", metavar="NUMBER", min=0, help="Seed of every random choice.")
]
SyntheticOption = Annotated[
    bool,
    typer.Option("--synthetic", help="Mark the files as data that no silicon produced."),
]
MemoryLimitOption = Annotated[
    str,
    typer.Option(
        "--memory-limit",
        metavar="BYTES",
        help="Refuse before holding more launches than this; K, M, G, Ki, Mi, Gi may follow the number.",
    ),
]
LaunchOffsetOption = Annotated[
    list[int] | None,
    typer.Option(
        "--launch-offset",
        metavar="NUMBER",
        min=0,
        help="Number launches from here in file order, instead of by the ids that the file gives: how many "
        "launches the profiler skipped. Once for all FILEs, or once for each.",
    ),
]
RanksOption = Annotated[
    bool,
    typer.Option(
        "--ranks",
        help="Each FILE of a level is a rank of one job, on one kind of GPU; the order of the files numbers "
        "their processes. Without it files must be windows of one run.",
    ),
]

_BYTES = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY_BYTES = {"KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


def parse_bytes(text: str, option: str = "--memory-limit") -> int:
    """``8589934592``, ``500M`` or ``8GiB`` as bytes; raises ParameterError for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]I?)?B?", text.strip().upper())
    amount = 0
    if match:
        amount = int(float(match[1]) * {**_BYTES, **_BINARY_BYTES}[match[2] or ""])
    if amount <= 0:
        raise ParameterError(option, f"{text!r} is not a number of bytes", "write 8GiB or 8589934592")
    return amount


def parse_parameters(
    given: Sequence[str], option: str = "--param", example: str = "k_max=20"
) -> dict[str, str]:
    """``k=v`` texts as a dictionary; raises ParameterError where ``=`` is missing or a key is given twice."""
    found: dict[str, str] = {}
    for text in given:
        key, separator, value = text.partition("=")
        key = key.strip()
        if not separator or not key:
            raise ParameterError(
                option, f"{text!r} is not of the form NAME=VALUE", f"write {option} {example}"
            )
        if key in found:
            raise ParameterError(option, f"{key!r} is given twice", "give it once")
        found[key] = value.strip()
    return found


def one_or_each(offsets: Sequence[int] | None) -> int | Sequence[int] | None:
    """What ``--launch-offset`` says: nothing, one number for all files, or one for each."""
    return offsets[0] if offsets and len(offsets) == 1 else offsets or None
