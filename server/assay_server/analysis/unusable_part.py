"""The error of a finished workload that cannot be read."""

from __future__ import annotations

from assay_sampling.errors import AssayError


class UnusablePartError(AssayError):
    """The bytes of a finished workload are not what this release packs."""

    code = "unusable_part"

    def __init__(self, cause: str) -> None:
        super().__init__(
            "a finished workload of the analysis",
            f"it cannot be read ({cause})",
            "try again, which computes the campaign's workloads anew: assay retry",
        )
