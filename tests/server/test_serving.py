"""The server over real gRPC, in this process, with a client that plays the agent."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from assay_protos import agent_pb2, campaign_pb2, common_pb2, ingest_pb2
from assay_sampling.errors import AssayError, CampaignError, ParameterError, StorageError
from assay_sampling.readers import open_recording
from assay_server.app import Server, ServerConfig
from made_segments import made_segments
from playing_agent import PlayingAgent, upload_messages
from server_support import CAMPAIGN, PAGE, REPORT, StandInExecutor, eventually


def play_campaign(agent: PlayingAgent) -> str:
    campaign_id = agent.submit(CAMPAIGN)
    agent.play(made_segments((30,), "detailed", counters=2))
    agent.play(made_segments((100, 50)))
    agent.play(made_segments((70,)))
    eventually(lambda: agent.status(campaign_id).state == "done", "the end of the campaign")
    return campaign_id


@pytest.mark.parametrize("listen", ["unix", "tcp"])
def test_a_campaign_goes_the_whole_way(
    listen: str, make_server: Callable[..., Server], analysis: StandInExecutor
) -> None:
    server = make_server(**({"listen": ("127.0.0.1:0",)} if listen == "tcp" else {}))
    with PlayingAgent(server.addresses[0]) as agent:
        registered = agent.register()
        assert (registered.lease_ms, registered.heartbeat_ms) == (60_000, 5_000)
        campaign_id = play_campaign(agent)
        assert campaign_id == "made-1"
        status = agent.status(campaign_id)
        assert [(r.run_id, r.workload, r.device_kind, r.level, r.state, r.launches) for r in status.runs] == [
            ("made-1.0000", "training", "V100", "detailed", "done", 30),
            ("made-1.0001", "training", "V100", "light", "done", 150),
            ("made-1.0002", "training", "A100", "light", "done", 70),
        ]
        assert (status.runs_total, status.runs_done, status.runs_failed) == (3, 3, 0)
        for form, expected in (("json", REPORT), ("html", PAGE)):
            request = campaign_pb2.GetReportRequest(campaign_id=campaign_id, format=form)
            assert b"".join(c.data for c in agent.campaigns.GetReport(request, timeout=20)) == expected
        files = agent.run("made-1.0001").files
        assert list(files) == ["records/made-1.0001/slice-00000.parquet"]
    with open_recording(server.config.state_dir / files[0]) as recording:
        launches = [v for batch in recording.batches() for v in batch.records["launch"].to_pylist()]
    assert launches == list(range(150))
    [request] = analysis.requests
    assert [(r.run_id, r.level, r.device_kind, r.launches) for r in request.runs] == [
        ("made-1.0000", "detailed", "V100", 30),
        ("made-1.0001", "light", "V100", 150),
        ("made-1.0002", "light", "A100", 70),
    ]
    assert request.failed_runs == ()
    assert not list((server.config.state_dir / "staging").iterdir())
