"""Large submissions that wait for their turn keep nobody else waiting."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

from assay_core.records.campaign import NamedCampaign, Submission, Submitted
from assay_server.limits import DEFAULT_LIMITS
from assay_server.rpc.services import services_of
from assay_server.rpc.threads import Threads


def test_a_person_cancels_while_more_submissions_wait_than_threads_serve() -> None:
    threads, turn = Threads.of(DEFAULT_LIMITS), threading.Event()

    def submit(_asked: Submission) -> Submitted:
        assert turn.wait(60)
        return Submitted("large-1", 1)

    campaigns = Mock(submit=submit, cancel=lambda asked: asked)  # no other call is made
    services = services_of(Mock(campaigns=campaigns), threads, DEFAULT_LIMITS)
    calls_by_name: Any = services["CampaignService"]

    def called(name: str, message: Any) -> Any:
        return calls_by_name[name].unary_unary(message, SimpleNamespace())

    async def calls() -> tuple[Any, list[Any]]:
        message = Submission("campaign: large", "c.yaml", "/data").to_proto()
        waiting = [asyncio.create_task(called("Submit", message)) for _ in range(5)]
        await asyncio.sleep(0)  # each has its thread, or its place in the queue
        try:
            asked = NamedCampaign("made-1").to_proto()
            cancelled = await asyncio.wait_for(called("Cancel", asked), 30)
            assert not any(each.done() for each in waiting)
        finally:
            turn.set()
        return cancelled, await asyncio.gather(*waiting)

    with closing(threads):
        cancelled, submitted = asyncio.run(calls())
    assert cancelled.campaign_id == "made-1"
    assert [each.campaign_id for each in submitted] == ["large-1"] * 5
