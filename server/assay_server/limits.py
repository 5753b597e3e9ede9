"""Every bound that keeps one client from stopping the others: its number, and what it is called in the docs.

A field's name is its name in ``docs/limits.md``; a test holds the two equal. They are values and no constants
of the modules that keep them, so that each identity can be given its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

_KIB, _MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class CampaignFileLimits:
    """What may stand in one campaign file (:mod:`assay_server.campaigns.yaml_source`).

    ``campaign_number_characters``: of a number as it is written; turning more into a number takes long.
    """

    campaign_file_bytes: int = 1 * _MIB
    campaign_file_depth: int = 16
    campaign_file_values: int = 50_000
    campaign_scalar_characters: int = 64 * _KIB
    campaign_number_characters: int = 64


@dataclass(frozen=True)
class Limits:
    """All bounds of a server."""

    campaign_file: CampaignFileLimits = field(default_factory=CampaignFileLimits)


DEFAULT_LIMITS = Limits()
