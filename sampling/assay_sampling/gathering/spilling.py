"""Which selections take their launches from disk though they would fit into memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# On disk a launch takes little memory and a selection a tenth to a quarter more CPU time.
SPILL_BEYOND_BYTES = 2 << 30
_SAME_ON_DISK = frozenset({"sieve", "stem"})
_WITH = frozenset({"cost", "epsilon_percent", "stratification", "theta"})


def spill_beyond(method: str | None, parameters: Mapping[str, Any]) -> int | None:
    """Beyond how many bytes the launches of one recording go to disk; None: as many as may be held do not.

    Only methods that select and score the same on disk; other parameters may need all launches in memory.
    """
    same = method in _SAME_ON_DISK and parameters.keys() <= _WITH
    return SPILL_BEYOND_BYTES if same else None
