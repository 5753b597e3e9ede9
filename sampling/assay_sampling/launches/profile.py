"""A profile: the launches of one workload on one kind of GPU, at one level or at both."""

from __future__ import annotations

from dataclasses import dataclass

from assay_sampling.errors import RefusedError
from assay_sampling.launches.in_memory import Launches


@dataclass(frozen=True)
class Profile:
    """Launches by level. ``detailed`` has counters and may be a window, only the first launches, if ``light``
    has the whole workload. Code that joins the two must check that they belong together. ``repeats`` are
    further light runs of the same launches, which only make the light time more certain.

    Raises RefusedError for neither level.
    """

    detailed: Launches | None = None
    light: Launches | None = None
    repeats: tuple[Launches, ...] = ()

    def __post_init__(self) -> None:
        if self.detailed is None and self.light is None:
            raise RefusedError("profile", "it has no recording", "give a detailed or a light recording")

    @property
    def whole(self) -> Launches:
        """All launches of the workload: the light recording if there is one, else the detailed one."""
        if self.light is not None:
            return self.light
        assert self.detailed is not None
        return self.detailed
