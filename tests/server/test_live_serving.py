"""Live runs over the wire: what an agent is told, what waits and why, and slices without launches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from assay_core.records.machine import InstalledDevice, Inventory, Registration, Slot
from assay_core.records.work import RecordedSource
from assay_server.app import Server
from tests.support.server.made_segments import made_segments
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.server_support import StandInExecutor, eventually

LIVE = """\
campaign: live
synthetic: {synthetic}
gpus: [V100]
detailed: {{first: 300, slice_launches: 100, sets: features}}
conditions: [{{sm_percent: 50}}]
workloads:
  - name: training
    command: [training.toml, --epochs, "1"]
    environment: {{A: b}}
    timeout_s: 60
"""
SLOT = Slot(
    slot_id="GPU-virtual-V100-0",
    device=InstalledDevice(name="virtual V100", uuid="GPU-virtual-V100-0", sm_count=80),
    profilers=("nsight_compute", "nsight_systems"),
    synthetic=True,
)


def register(agent: PlayingAgent, *slots: Slot) -> None:
    agent.registered(Registration(agent.agent_id, agent.session_id, "box", Inventory(), slots))


def test_an_agent_is_told_what_to_execute_and_collect(server: Server) -> None:
    with PlayingAgent(server.addresses[0]) as agent:
        register(agent, SLOT)
        agent.submit(LIVE.format(synthetic="true"), "/data")
        work = agent.lease(SLOT.slot_id).work
        assert (work.key.run_id, work.level, work.profiler) == (
            "live-1.0000", "detailed", "nsight_compute",
        )  # fmt: skip
        assert (work.launch_skip, work.launch_count, work.synthetic) == (0, 100, True)
        command = work.command
        assert list(command.argv) == ["/data/training.toml", "--epochs", "1"]
        assert (dict(command.environment), command.working_directory, command.timeout_s) == (
            {"A": "b"}, "/data", 60.0,
        )  # fmt: skip
        assert {"cycles_gpc_avg", "instructions", "local_load_sectors"} <= set(work.counters)
        assert not work.recorded and not work.under_mps
        agent.fail(work.key, "permission", retryable=False)
        light = agent.lease(SLOT.slot_id).work
        assert (light.level, light.profiler, list(light.counters)) == (
            "light", "nsight_systems", [],
        )  # fmt: skip
        agent.fail(light.key, "permission", retryable=False)
        share = agent.lease(SLOT.slot_id).work
        assert (share.condition.sm_percent, share.under_mps) == (50.0, True)


def test_a_recorded_run_has_no_command(server: Server) -> None:
    with PlayingAgent(server.addresses[0]) as agent:
        agent.register()
        agent.submit("campaign: a\nworkloads: [{name: w, recordings: [{device: V100, light: x}]}]")
        work = agent.lease().work
        assert work.recorded == RecordedSource(Path("/data/x")) and not work.command


def test_status_says_what_no_agent_offers(server: Server) -> None:
    with PlayingAgent(server.addresses[0]) as agent:
        campaign_id = agent.submit(LIVE.format(synthetic="false"), "/data")
        assert {r.waiting_for for r in agent.status(campaign_id).runs} == {"no agent has registered"}
        register(agent, SLOT)
        for run in agent.status(campaign_id).runs:
            assert run.waiting_for == (
                "no agent offers a measured V100 with "
                f"{'nsight_compute' if run.level == 'detailed' else 'nsight_systems'}: "
                "virtual V100 is synthetic and the campaign measured"
            )
        assert agent.lease(SLOT.slot_id).work is None
        assert agent.run(f"{campaign_id}.0000").run.waiting_for.startswith("no agent offers a measured V100")
        synthetic = agent.submit(LIVE.format(synthetic="true"), "/data")
        assert {r.waiting_for for r in agent.status(synthetic).runs} == {""}


@pytest.mark.parametrize(("whole", "flags"), [(100, []), (101, []), (250, ["window_short"])])
def test_a_workload_that_ends_early_leaves_empty_slices_and_one_that_goes_on_is_flagged(
    make_server: Callable[..., Server], analysis: StandInExecutor, whole: int, flags: list[str]
) -> None:
    server = make_server()
    with PlayingAgent(server.addresses[0]) as agent:
        register(agent, SLOT)
        campaign_id = agent.submit(LIVE.format(synthetic="true"), "/data")
        for launches in (100, 0, 0):
            work = agent.lease(SLOT.slot_id).work
            segments = made_segments((launches,), "detailed", synthetic=True) if launches else []
            agent.upload(work.key, segments)
            assert agent.finish(work.key, len(segments), launches).published
        for _ in range(3):
            agent.play(made_segments((whole,), synthetic=True), SLOT.slot_id)
        eventually(lambda: agent.status(campaign_id).state == "done", "the end of the campaign")
        assert [(r.state, r.launches) for r in agent.status(campaign_id).runs] == [
            ("done", n) for n in (100, *[whole] * 3)
        ]
        assert list(agent.run(f"{campaign_id}.0000").files) == [
            f"records/{campaign_id}.0000/slice-00000.parquet"
        ]
    [request] = analysis.requests
    assert [(r.live, r.under_mps, r.launches, r.slice_launches, len(r.files)) for r in request.runs] == [
        (True, False, 100, (100, 0, 0), 1),
        (True, False, whole, (whole,), 1),
        (True, True, whole, (whole,), 1),
        (True, True, whole, (whole,), 1),
    ]
    assert [[name for name, _, invalid in r.flags if invalid] for r in request.runs] == [flags, [], [], []]


def test_a_first_slice_without_launches_is_a_failure(server: Server) -> None:
    with PlayingAgent(server.addresses[0]) as agent:
        register(agent, SLOT)
        campaign_id = agent.submit(LIVE.format(synthetic="true"), "/data")
        work = agent.lease(SLOT.slot_id).work
        assert not agent.finish(work.key, 0, 0).published
        [run, *_] = agent.status(campaign_id).runs
        assert (run.state, run.failure.failure_class) == ("failed", "nothing_profiled")


def test_a_live_campaign_needs_a_folder(server: Server) -> None:
    with (
        PlayingAgent(server.addresses[0]) as agent,
        pytest.raises(grpc.RpcError, match="runs its command in"),
    ):
        agent.submit(LIVE.format(synthetic="true"), "")


def test_measured_launches_never_enter_a_synthetic_campaign(server: Server) -> None:
    with PlayingAgent(server.addresses[0]) as agent:
        register(agent, SLOT)
        agent.submit(LIVE.format(synthetic="true"), "/data")
        work = agent.lease(SLOT.slot_id).work
        [answer] = agent.upload(work.key, made_segments((10,), "detailed", synthetic=False))
        assert "its data is measured and the campaign's is synthetic" in answer.refusal.cause
