"""Fencing tokens: an epoch, then a count. Every metadata store issues them by these rules."""

from __future__ import annotations

import secrets

# A token is an epoch, then a count of this many bits: milliseconds fit until the year 2109.
EPOCH_SHIFT = 21
# A clock that shows a later time (2107) is wrong: its value would leave no room for later starts.
_LATEST_EPOCH = (1 << 42) - (1 << 36)


def first_of_epoch(last_token: int, now_ms: int) -> tuple[int, int]:
    """The epoch after ``last_token``, and its first token.

    The epoch is at least ``now_ms`` (Unix time by the wall clock) if that clock can be right. The count
    begins at random, so that tokens of a state that a backup replaced never come again.
    """
    epoch = (last_token >> EPOCH_SHIFT) + 1
    if now_ms <= _LATEST_EPOCH:
        epoch = max(epoch, now_ms)
    # The upper half is left for counting; a start that issues more leases moves on to the next epoch.
    return epoch, (epoch << EPOCH_SHIFT) + secrets.randbelow(1 << (EPOCH_SHIFT - 1))
