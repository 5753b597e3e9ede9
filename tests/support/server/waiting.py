"""Why runs wait, in words."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from assay_server.campaigns.scheduling.resting import Rest, SlotKey
from assay_server.campaigns.scheduling.waiting import Lab, wait_reasons
from assay_server.store.model import Agent, Run


def waiting_for(
    runs: Collection[Run], agents: Sequence[Agent], now_ms: int, resting: Mapping[SlotKey, Rest] | None = None
) -> dict[str, str]:
    """By run: what a waiting run needs that it does not get from any present agent."""
    return {key: why.text for key, why in wait_reasons(runs, Lab(agents, now_ms, resting or {})).items()}
