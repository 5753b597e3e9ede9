"""One finding about this machine."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "missing", "note"]


@dataclass(frozen=True)
class Check:
    """One check and its result.

    Args:
        name: what it is.
        state: "ok"; "missing" if something needed is absent; "note" if nothing needed fails, but a person
            should know.
        found: what was found.
        remedy: what to do about it, "" if it is ok.
    """

    name: str
    state: State
    found: str
    remedy: str = ""

    def to_dict(self) -> dict[str, str]:
        return {key: str(value) for key, value in dataclasses.asdict(self).items()}


def finding(name: str, needed: bool, detail: str, remedy: str) -> Check:
    """A problem: "missing" if it is needed, else a note."""
    return Check(name, "missing" if needed else "note", detail, remedy)
