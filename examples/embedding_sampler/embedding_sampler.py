"""A selection method of another package: groups of launches whose vectors lie near one another.

In the manner of GCL-Sampler, which learns a vector of each launch from its trace: here the vectors come from
a file, whatever made them. K-means groups them, the launch nearest to its group's centre stands for the
group, and its weight is the number of launches in the group.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pydantic import BaseModel, Field

from assay_sampling.clustering.kmeans import cluster
from assay_sampling.errors import InputError, ParameterError
from assay_sampling.launches.profile import Profile
from assay_sampling.methods.base import grouped_selection
from assay_sampling.methods.needs import NO_COUNTERS, Needs
from assay_sampling.scoring.selection import Selection


class EmbeddingParameters(BaseModel):
    """Every field has a default and a description, which `assay select embedding --help` shows."""

    vectors: str | None = Field(
        default=None,
        description="The file of vectors: .npy, or CSV of numbers without header; a row a launch, in order.",
    )
    groups: int = Field(default=8, ge=1, description="Groups that k-means makes of them.")


class EmbeddingSampler:
    """Groups launches by vectors from a file.

    Launches whose vectors lie near one another are taken to behave alike. Give a vector for every launch of
    the workload with `--param vectors=FILE`, made from traces, source code or anything else but the cost.
    """

    name = "embedding"
    parameters: type[BaseModel] = EmbeddingParameters

    def needs(self, parameters: EmbeddingParameters) -> Needs:
        """No counters: a light recording is enough, and campaigns with `detailed: none` may use it."""
        return NO_COUNTERS

    def select(self, profile: Profile, parameters: EmbeddingParameters, *, seed: int) -> Selection:
        """Raises ParameterError without a file, InputError for a file that does not fit the launches."""
        if parameters.vectors is None:
            raise ParameterError(
                self.name, "it needs a file of vectors", "give one with --param vectors=FILE"
            )
        vectors = _read(Path(parameters.vectors), len(profile.whole))
        found = cluster(vectors, parameters.groups, seed=seed)
        labels = found.labels.astype(np.int64)
        distance = np.square(vectors - found.centres[labels]).sum(axis=1)
        # The nearest launch of each group; of equally near ones the first.
        order = np.lexsort((np.arange(len(labels)), distance, labels))
        rows = order[np.unique(labels[order], return_index=True)[1]]
        return grouped_selection(
            profile, self.name, parameters, seed,
            labels=labels, rows=rows, weights=np.bincount(labels).astype(float),
        )  # fmt: skip


def _read(path: Path, launches: int) -> np.ndarray:
    """Vectors, shape (launches, d)."""
    try:
        vectors = np.load(path) if path.suffix == ".npy" else np.loadtxt(path, delimiter=",", ndmin=2)
    except (OSError, ValueError) as error:
        raise InputError(path, f"it cannot be read ({error})", "give .npy, or CSV of numbers") from error
    if vectors.ndim != 2 or len(vectors) != launches or not np.isfinite(vectors).all():
        cause = f"it holds an array of shape {vectors.shape}, and there are {launches:,} launches"
        raise InputError(path, cause, "give a row of finite numbers for every launch")
    return vectors.astype(np.float64)
