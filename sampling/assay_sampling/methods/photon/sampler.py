"""Photon's matching of kernel launches by their basic-block vectors, as a selection method.

Source: Photon (Liu, Sun, Carlson, MICRO 2023), as the artifact of STEM+ROOT has it: docs/methods/photon.md.
Memory: that of :mod:`assay_sampling.methods.photon.matching`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pydantic import BaseModel, Field

from assay_sampling.errors import ParameterError
from assay_sampling.launches.profile import Profile
from assay_sampling.methods.base import grouped_selection, time_to_draw_by, whole_cost
from assay_sampling.methods.budgets import Budget
from assay_sampling.methods.groups.group_draws import choose_launches
from assay_sampling.methods.needs import Needs
from assay_sampling.methods.photon.matching import DEFAULT_DISTANCE, match_launches
from assay_sampling.notes.registry import make_note
from assay_sampling.parameters import MethodParameters
from assay_sampling.readers.block_files import read_basic_block_vectors
from assay_sampling.scoring.selection import Selection


class PhotonParameters(MethodParameters):
    """Where the basic-block vectors are, and which launches are alike."""

    bbv: str | None = Field(
        default=None,
        description="The file of basic-block vectors ('assay docs bbv-format'); it must name every launch.",
    )
    distance: float = Field(
        default=DEFAULT_DISTANCE,
        gt=0,
        description="Launches nearer than this are alike.",
    )
    cross_kernel: bool = Field(
        default=False,
        description=(
            "Match launches of different kernels too, although their blocks are unrelated: only to compare "
            "with the published artifact."
        ),
    )
    launches_per_group: int = Field(
        default=1,
        ge=1,
        description="From 2 on, that many launches of a kind are drawn at random, which gives an interval.",
    )


class PhotonSampler:
    """Groups launches by their basic-block vectors; weight = launches of the group."""

    name = "photon"
    parameters: type[BaseModel] = PhotonParameters
    budget = Budget("distance", 0.001, 100, "larger", start=0.05, per_group=True)

    def needs(self, parameters: PhotonParameters) -> Needs:
        """Which counters it looks at."""
        return Needs(beside=make_note("basic_blocks_needed", method=self.name))

    def select(self, profile: Profile, parameters: PhotonParameters, *, seed: int) -> Selection:
        """Raises RefusedError for no launches, CounterUnavailableError where one lacks its cost,
        ParameterError without a file, InputError for a file of another format or of other launches."""
        if parameters.bbv is None:
            raise ParameterError(
                self.name,
                "it needs a file of basic-block vectors",
                "give one with --param bbv=FILE ('assay docs bbv-format' has the format)",
            )
        cost = whole_cost(profile)
        launches = profile.whole
        vectors = read_basic_block_vectors(Path(parameters.bbv), launches)
        kernels = launches.column("kernel_id")
        pools = np.zeros(len(launches), np.uint64) if parameters.cross_kernel else kernels
        representative = match_launches(vectors, pools, distance=parameters.distance)
        rows, labels = np.unique(representative, return_inverse=True)
        counts = np.bincount(labels)
        chosen = choose_launches(
            labels,
            counts,
            rows,
            cost,
            per_group=parameters.launches_per_group,
            seed=seed,
            light_time=time_to_draw_by(profile, parameters),
        )
        across = int((kernels[representative] != kernels).sum())
        return grouped_selection(
            profile,
            self.name,
            parameters,
            seed,
            labels=labels,
            rows=chosen.rows,
            weights=chosen.weights,
            cost=cost,
            interval=chosen.interval,
            interval_reason=chosen.interval_reason,
            drawing=chosen.drawing,
            extra={"photon": {"launches_matched_to_other_kernels": across}},
        )
