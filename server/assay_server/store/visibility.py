"""Whose a campaign is, and which campaigns somebody may know of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Belonging:
    """Whose a campaign is: the identity that submitted it, and its project, "" for none."""

    owner: str
    project: str


@dataclass(frozen=True)
class Sight:
    """The campaigns that somebody may know of: all of them, or their own and those of their project."""

    everything: bool = True
    identity_id: str = ""
    project: str = ""

    def sees(self, whose: Belonging) -> bool:
        return self.everything or whose.owner == self.identity_id or whose.project == self.project


EVERYTHING = Sight()
