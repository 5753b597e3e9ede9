"""Photon's matching of kernel launches by their basic-block vectors, as a selection method.

Source: spec ``sieve_stem_photon.md`` 3.2 (Photon as the STEM artifact has it); Photon (Liu, Sun, Carlson,
MICRO 2023). Memory: that of :mod:`assay_sampling.bbv_matching`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pydantic import BaseModel, Field

from assay_sampling.bbv import read_basic_block_vectors
from assay_sampling.bbv_matching import DEFAULT_DISTANCE, match_launches
from assay_sampling.errors import ParameterError
from assay_sampling.group_draws import choose_launches
from assay_sampling.profile import Profile
from assay_sampling.samplers.base import Parameters, grouped_selection, whole_cost
from assay_sampling.samplers.needs import Needs
from assay_sampling.selection import Selection


class PhotonParameters(Parameters):
    """``bbv``: the file of basic-block vectors (``docs/bbv-format.md``); it must name every launch.
    ``distance``: launches nearer than this are alike. ``cross_kernel`` matches launches of different kernels
    too, whose blocks have nothing to do with each other: only to compare with the published artifact.
    ``launches_per_group`` from 2 on draws so many launches of each kind at random, which gives an interval.
    """

    bbv: str | None = None
    distance: float = Field(default=DEFAULT_DISTANCE, gt=0)
    cross_kernel: bool = False
    launches_per_group: int = Field(default=1, ge=1)


class PhotonSampler:
    """Groups launches by their basic-block vectors; weight = launches of the group."""

    name = "photon"
    parameters: type[BaseModel] = PhotonParameters

    def needs(self, parameters: PhotonParameters) -> Needs:
        """Which counters it looks at."""
        return Needs(
            beside="photon needs basic-block vectors, which binary instrumentation gives: --param bbv=FILE "
            "('assay docs bbv-format' has the format)"
        )

    def select(self, profile: Profile, parameters: PhotonParameters, *, seed: int) -> Selection:
        """Raises RefusedError for no launches, CounterUnavailableError where one lacks its cost,
        ParameterError without a file, InputError for one that is not as documented or of other launches."""
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
            labels, counts, rows, cost, per_group=parameters.launches_per_group, seed=seed
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
            extra={"photon": {"launches_matched_to_other_kernels": across}},
        )
