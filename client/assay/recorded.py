"""Something with launches that a selection can be scored on: a profile in memory, or files to be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from assay_client.files import AnyPath
from assay_client.recordings.analyses import read_profile
from assay_sampling.launches.profile import Profile as Levels


@runtime_checkable
class Recorded(Protocol):
    """Something that holds the levels of a workload, as :class:`assay.Profile` does."""

    @property
    def levels(self) -> Levels:
        """The launches by level, in the library's form."""
        ...


Recording = Recorded | AnyPath | Sequence[AnyPath]


def levels_of(recording: Recording) -> Levels:
    """The launches of a profile, or of the files that it is read from."""
    return recording.levels if isinstance(recording, Recorded) else read_profile(recording)
