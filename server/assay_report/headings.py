"""What every form says above its first table."""

from __future__ import annotations

from assay_report.model.report import Report

SYNTHETIC = "SYNTHETIC data: no silicon produced these numbers."


def mark(report: Report) -> str:
    """The mark behind titles where no silicon produced the data."""
    return " (synthetic)" if report.campaign.synthetic else ""


def origin(report: Report) -> str:
    """The campaign, its owner, its seed, and the versions that computed the numbers."""
    campaign = report.campaign
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    data = "synthetic" if campaign.synthetic else "measured"
    return f"Campaign {campaign.id}{campaign.belongs}, {data} data, seed {campaign.seed}; {versions}."
