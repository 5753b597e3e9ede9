"""A profile: the launches of one workload on one kind of GPU, at one level or at both."""

from __future__ import annotations

from dataclasses import dataclass

from assay_sampling.errors import RefusedError
from assay_sampling.launches import Launches


@dataclass(frozen=True)
class Profile:
    """Launches by level. ``detailed`` has counters and may be a window, the first launches only, where
    ``light`` has the whole workload. Whoever joins the two checks that they belong together.

    Raises RefusedError for neither level.
    """

    detailed: Launches | None = None
    light: Launches | None = None

    def __post_init__(self) -> None:
        if self.detailed is None and self.light is None:
            raise RefusedError("profile", "it has no recording", "give a detailed or a light recording")

    @property
    def whole(self) -> Launches:
        """All launches of the workload: the light recording where there is one, else the detailed."""
        if self.light is not None:
            return self.light
        assert self.detailed is not None
        return self.detailed
