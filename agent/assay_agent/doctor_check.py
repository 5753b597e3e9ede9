"""What a look at this machine finds, one thing at a time."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "missing", "note"]


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


def finding(name: str, needed: bool, found: str, remedy: str) -> Check:
    """What is not as it should be: missing where it is needed, else a note."""
    return Check(name, "missing" if needed else "note", found, remedy)
