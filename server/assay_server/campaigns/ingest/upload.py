"""A segment on its way into an attempt, and the answer to it."""

from __future__ import annotations

from dataclasses import dataclass

from assay_core.records.attempt import AttemptKey, Claim
from assay_core.records.failure import Failure


@dataclass(frozen=True)
class Upload:
    """A segment as received: the fields of its header and its two compressed parts.

    ``follows``: the segment before it came over the same stream, acknowledged or not.
    """

    claim: Claim
    index: int
    launches: int
    names_hash: bytes
    launches_hash: bytes
    names: bytes
    data: bytes
    follows: bool = False

    @property
    def key(self) -> AttemptKey:
        return self.claim.key

    @property
    def hashes(self) -> tuple[bytes, bytes]:
        return self.names_hash, self.launches_hash

    def __str__(self) -> str:
        return f"{self.key}, segment {self.index}"


@dataclass(frozen=True)
class Answer:
    """The answer to an upload: durable (``duplicate``: it already was), or refused for good."""

    duplicate: bool = False
    refusal: Failure | None = None
