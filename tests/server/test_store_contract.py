"""One contract for every metadata store, and one for every record store."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay_core.identity.roles import IdentityKind, Role
from assay_core.records.attempt import AttemptKey, AttemptLog
from assay_core.records.campaign import AttemptState, CampaignState, RunState
from assay_core.records.failure import Failure
from assay_core.records.machine import InstalledDevice, Inventory, Slot
from assay_core.records.runs import RunsAction, RunsRequest
from assay_core.records.upload import Bundle
from assay_core.records.validity_flag import ValidityFlag
from assay_core.records.work import CommandSource
from assay_sampling.errors import AssayError, StorageError
from assay_sampling.launches.table import Condition
from assay_sampling.readers.opening import open_recording
from assay_server.campaign_file.compiled import Slicing
from assay_server.store.model import (
    Agent,
    AnalysisTry,
    Attempt,
    Belonging,
    Hold,
    KeptBundle,
    PendingRequest,
    Segment,
    SegmentParts,
    Sight,
    Slice,
    SliceState,
)
from assay_server.store.parts import attempts
from assay_server.store.parts.overviews import RunFilter, WorkloadCost
from assay_server.store.parts.runs import NotedRuns
from assay_server.store.people import Identity
from assay_server.store.record_store import KnownFiles, RecordStore
from assay_server.store.records import DamagedSegmentError, LocalRecordStore
from assay_server.store.sql import MetadataStore, SqlTransaction
from tests.support.server.made_segments import MadeSegment, made_segments, publish_in
from tests.support.server.metadata_stores import METADATA_STORES
from tests.support.server.queued import waiting_slice
from tests.support.server.record_stores import RECORD_STORES, RecordBench
from tests.support.server.stored_values import FLAGS, attempt, campaign, run

FAILURE = Failure("hang", "the workload", "no progress", "raise the limit", True)


def fill(store: SqlTransaction, runs: int = 2) -> None:
    planned = [run(i) for i in range(runs)]
    store.add_campaign(campaign(), planned, [Slice(r.run_id, 0) for r in planned])


@pytest.fixture(params=METADATA_STORES)
def metadata(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MetadataStore]:
    store = METADATA_STORES[request.param](tmp_path)
    yield store
    store.close()


class TestMetadataStore:
    def test_bundles_come_back_as_they_were_put_and_are_counted(self, metadata: MetadataStore) -> None:
        one = KeptBundle(Bundle("a" * 64, 2048, 1), "a-1.tar.z", 100, {"ann": 5, "bob": 7})
        two = KeptBundle(Bundle("b" * 64, 1 << 40, 2), "b-1.tar.z", 1 << 34, {"ann": 6})
        bare = KeptBundle(Bundle("c" * 64, 2048, 1), "c-1.tar.z", 7, {})
        with metadata.transaction() as write:
            for kept in (two, bare, one):
                write.put_bundle(kept)
            assert write.bundle_bytes("ann") == (100 + (1 << 34), 107 + (1 << 34))
        with metadata.snapshot() as read:
            assert read.bundles() == [one, two, bare]
            assert read.bundle("c" * 64) == bare and read.bundle("d" * 64) is None
            assert read.bundle_bytes("bob") == (100, 107 + (1 << 34)) and read.bundle_bytes("eve")[0] == 0
        changed = replace(one, file="a-2.tar.z", holders={"bob": 9})
        with metadata.transaction() as write:
            write.put_bundle(changed)
            for _ in range(2):
                write.delete_bundle(two.bundle.sha256)
        with metadata.snapshot() as read:
            assert read.bundles() == [changed, bare]
            assert read.bundle_bytes("ann") == (0, 107)

    def test_of_each_analysis_the_newest_try_is_kept(self, metadata: MetadataStore) -> None:
        first = AnalysisTry("made-1", token=1, attempts=1)
        newer = AnalysisTry("made-1", token=2, attempts=2, retried=3)
        with metadata.transaction() as store:
            fill(store)
            assert store.analysis_try("made-1") is None
            store.save_analysis_try(first)
            assert store.analysis_try("made-1") == first
            store.save_analysis_try(newer)
        with metadata.snapshot() as read:
            assert (read.analysis_try("made-1"), read.analysis_try("made-2")) == (newer, None)
        with metadata.transaction() as store:
            store.delete_runs([run(i).run_id for i in range(2)])
            store.delete_campaign(campaign())
            assert store.analysis_try("made-1") is None
        with pytest.raises(StorageError), metadata.transaction() as store:
            store.save_analysis_try(first)

    def test_campaigns_are_to_be_analysed_in_the_order_in_which_they_came(
        self, metadata: MetadataStore
    ) -> None:
        with metadata.transaction() as store:
            fill(store)
            for number in (2, 3):
                store.add_campaign(campaign(f"made-{number}", number), [], [])
            assert store.campaigns_to_analyse() == []
            for number in (3, 1):
                store.save_campaign(campaign(f"made-{number}", number, state=CampaignState.ANALYSING))
            assert store.campaigns_to_analyse() == ["made-1", "made-3"]

    def test_runs_are_found_by_what_a_request_names(self, metadata: MetadataStore) -> None:
        runs = [run(i, workload="w" if i % 2 else "v") for i in range(6)]
        runs[4] = replace(runs[4], state=RunState.DONE)
        with metadata.transaction() as store:
            store.add_campaign(campaign(), runs, [Slice(r.run_id, 0) for r in runs])
            store.pause_runs(["made-1.0003"], True)
            store.add_attempt(attempt(1, ordinal=1))
            store.add_attempt(attempt(2, ordinal=2, slot_id="other", state=AttemptState.EXPIRED))
        every = [(each.ordinal, each.run_id) for each in runs]
        waiting, whole, odd = [RunState.WAITING], RunsRequest("made-1"), RunsRequest("made-1", workload="w")
        leased = (AttemptState.LEASED, AttemptState.EXPIRED)
        with metadata.snapshot() as read:
            assert read.requested_runs(whole, waiting, most=9) == [every[i] for i in (0, 1, 2, 3, 5)]
            assert read.requested_runs(whole, waiting, first=2, most=2) == [every[2], every[3]]
            assert read.requested_runs(odd, waiting, paused=False, most=9) == [every[1], every[5]]
            assert read.requested_runs(whole, waiting, paused=True, most=9) == [every[3]]
            assert read.requested_runs(RunsRequest("made-1", run_id="made-1.0004"), waiting) == []
            assert read.requested_counts(whole) == {RunState.WAITING: 5, RunState.DONE: 1}
            assert read.requested_counts(RunsRequest("made-1", workload="x")) == {}
            assert [a.key.token for a in read.requested_attempts(whole, leased)] == [1, 2]
            assert [a.key.token for a in read.requested_attempts(odd, leased)] == [1]
            assert [a.key.token for a in read.attempts_in(leased, run_ids=["made-1.0002"])] == [2]
            assert read.attempts_in(leased[:1], run_ids=["made-1.0002"]) == []
            assert read.paused_runs(["made-1", "made-2"]) == {"made-1": 1}

    def test_many_runs_are_paused_cancelled_and_tried_again(self, metadata: MetadataStore) -> None:
        with metadata.transaction() as store:
            fill(store, 3)
            store.replace_slices("made-1.0000", 0, [Slice("made-1.0000", i) for i in range(3)])
            store.save_slice(Slice("made-1.0000", 0, state=SliceState.DONE, file="f"))
            store.add_attempt(attempt(1, state=AttemptState.FAILED))
            store.add_attempt(attempt(2, number=2, state=AttemptState.FAILED))
            store.save_slice(Slice("made-1.0001", 0, state=SliceState.FAILED, not_before_ms=99))
            store.add_attempt(attempt(3, ordinal=1, state=AttemptState.FAILED))
            store.save_run(run(1, state=RunState.FAILED, failure=FAILURE))
            ids = ["made-1.0000", "made-1.0001"]
            store.set_holds(ids[:1], [Hold.AFTER])
            store.pause_runs(ids, True)
            assert store.runs("made-1")[0].holds == (Hold.AFTER, Hold.PAUSED)
            assert [each.paused for each in store.runs("made-1")] == [True, True, False]
            store.pause_runs(ids, False)
            store.pause_runs(ids[:1], True)
            store.cancel_runs(ids[:1])
            assert store.runs("made-1")[0].holds == (Hold.AFTER,)
            store.set_holds(ids, [])
        with metadata.snapshot() as read:
            assert read.run("made-1.0000") == run(0, state=RunState.CANCELLED)
            states = [piece.state for piece in read.slices("made-1.0000")]
            assert states == [SliceState.DONE, SliceState.CANCELLED, SliceState.CANCELLED]
        with metadata.transaction() as store:
            store.retry_runs(ids)
        with metadata.snapshot() as read:
            assert read.runs("made-1") == [run(0, state=RunState.RUNNING), run(1), run(2)]
            assert read.slices("made-1.0000") == [
                Slice("made-1.0000", 0, state=SliceState.DONE, file="f"),
                Slice("made-1.0000", 1, tries_from=1),
                Slice("made-1.0000", 2, tries_from=1),
            ]
            assert read.slices("made-1.0001") == [Slice("made-1.0001", 0, tries_from=2)]
            assert read.slices("made-1.0002") == [Slice("made-1.0002", 0)]

    def test_the_cost_of_a_campaign_by_workload_gpu_and_level(self, metadata: MetadataStore) -> None:
        log = AttemptLog(wall_seconds=2.5)
        with metadata.transaction() as store:
            runs = [run(0, device_key="v100"), run(1, device_key="v100"), run(2, level="detailed")]
            store.add_campaign(campaign(), runs, [Slice(r.run_id, i) for r in runs for i in range(2)])
            store.save_slice(Slice("made-1.0000", 0, state=SliceState.DONE))
            store.save_slice(Slice("made-1.0000", 1, state=SliceState.LEASED))
            store.add_attempt(attempt(1, state=AttemptState.FAILED, ended_at_ms=1_010))
            store.add_attempt(
                attempt(2, 2, state=AttemptState.PUBLISHED, ended_at_ms=3_010, log=log, launches=70)
            )
            store.add_attempt(attempt(3, ordinal=1, leased_at_ms=5_000))
            store.save_slice(Slice("made-1.0002", 1, launch_count=400))
        with metadata.snapshot() as read:
            assert read.measured("made-1") == (3_010, 70)
            assert read.measured("made-2") == (0, 0)
            assert read.workload_costs("made-1", 6_000) == [
                WorkloadCost("training", "", "detailed", 2, launches=200.0),
                WorkloadCost("training", "v100", "light", 3, 1, 2.5, 5.0),
            ]
            assert read.workload_costs("made-2", 6_000) == []
        with metadata.transaction() as store:
            store.save_attempt(attempt(3, ordinal=1, leased_at_ms=5_000, gang=("gpu-x", "gpu-y")))
        with metadata.snapshot() as read:
            assert read.workload_costs("made-1", 6_000)[1] == (
                WorkloadCost("training", "v100", "light", 3, 1, 2.5, 7.0, 3)  # 1 s of three GPUs
            )

    def test_runs_without_slices_are_told_apart_where_light_runs_decide(
        self, metadata: MetadataStore
    ) -> None:
        by_light = replace(campaign().compiled, slicing=Slicing(0, unseen_percent=1.0))
        runs = [run(i, level="detailed") for i in range(3)]
        with metadata.transaction() as store:
            store.add_campaign(campaign(compiled=by_light), runs, [Slice(runs[1].run_id, 0)])
        with metadata.snapshot() as read:
            progress = read.progress("made-1")
        assert [(each.run_id, count) for each, count in progress.needs] == [
            ("made-1.0000", 2), ("made-1.0001", 1),
        ]  # fmt: skip
        assert progress.awaiting_light == {"made-1.0000"}

    def test_requests_are_kept_until_they_are_carried_out(self, metadata: MetadataStore) -> None:
        asked = RunsRequest("made-1", "w", "", at_once=True)
        with metadata.transaction() as store:
            fill(store)
            first = store.add_request(PendingRequest(0, RunsAction.PAUSE, asked, 5))
            second = store.add_request(PendingRequest(0, RunsAction.CANCEL, RunsRequest("made-1"), 6))
            assert (first.request_id, second.request_id) == (1, 2)
            changed = replace(second, next_ordinal=7, runs_changed=3, attempts_ended=1)
            store.save_request(changed)
        with metadata.snapshot() as read:
            assert read.pending_requests() == read.pending_requests("made-1") == [first, changed]
            assert read.pending_requests("made-2") == []
        with metadata.transaction() as store:
            store.end_request(first.request_id)
            assert store.pending_requests() == [changed]

    def test_paused_runs_and_campaigns_are_not_given_out(self, metadata: MetadataStore) -> None:
        slot = Slot("recorded-0", ("recorded",))
        with metadata.transaction() as store:
            fill(store)
            store.pause_runs(["made-1.0000"], True)
            found = waiting_slice(store, slot, 0)
            assert found is not None and found[0].run_id == "made-1.0001"
            store.save_campaign(campaign(paused=True))
            assert waiting_slice(store, slot, 0) is None
            assert store.entrants() == [] and not store.is_running("made-1")
            assert store.campaigns()[0].paused
            store.save_campaign(campaign(retried=2))
            assert store.campaign("made-1") == campaign(retried=2)

    def test_everything_comes_back_as_it_was_put(self, metadata: MetadataStore) -> None:
        ended = attempt(
            state=AttemptState.FAILED,
            ended_at_ms=30,
            segments=2,
            launches=100,
            launches_spooled=120,
            failure=FAILURE,
            flags=FLAGS,
            log=AttemptLog(("ncu", "--x"), {"PATH": "/bin"}, "said\n", '{"a": 1}', 2.5, '{"version": 1}'),
        )
        segment = Segment(ended.key.run_id, 0, 1, 0, 0, 100, 5, 6, b"\0" * 32, b"\xff" * 32)
        slots = (
            Slot("recorded-0", ("recorded",), True, InstalledDevice(name="V100")),
            Slot("gpu", ("ncu", "nsys")),
        )
        agent = Agent("agent-1", "session-1", "box", Inventory(host="h"), slots, 7)
        live = run(
            1,
            recorded=None,
            device_key="v100",
            command=CommandSource(("./train", "--epochs", "1"), {"A": "b"}, "/base", 60.0),
            counters=("instructions", "cycles_gpc_avg"),
            under_mps=True,
        )
        with metadata.transaction() as store:
            store.add_campaign(campaign(), [run(0), live], [Slice(r.run_id, 0) for r in (run(0), live)])
            store.add_attempt(ended)
            store.add_segments([segment])
            store.put_agent(agent)
        with metadata.snapshot() as read:
            assert read.campaign("made-1") == campaign()
            assert read.runs("made-1") == [run(0), live]
            assert read.run("made-1.0001") == live
            assert read.slices("made-1.0000") == [Slice("made-1.0000", 0)]
            assert read.attempts("made-1.0000") == [ended]
            assert read.attempt("made-1.0000", 0, 1) == ended
            assert read.segments(ended.key) == [segment]
            assert read.segment(ended.key, 0) == segment
            assert read.agent("agent-1") == agent

    def test_what_is_deleted_is_gone_with_all_its_rows_and_its_number_is_kept(
        self, metadata: MetadataStore
    ) -> None:
        ended = attempt(state=AttemptState.FAILED, ended_at_ms=30)
        with metadata.transaction() as store:
            fill(store)
            store.add_attempt(ended)
            store.add_segments([Segment(ended.key.run_id, 0, 1, 0, 0, 1, 0, 6, b"", b"\xff" * 32)])
            store.save_slice(Slice("made-1.0001", 0, file="made-1.0001/x", file_bytes=70))
            assert store.published_bytes() == 70
            store.delete_runs(["made-1.0000"])
            assert (store.attempts("made-1.0000"), store.segments(ended.key)) == ([], [])
            assert [each.run_id for each in store.runs("made-1")] == ["made-1.0001"]
        with metadata.transaction() as store:
            store.delete_runs(["made-1.0001"])
            store.delete_campaign(campaign())
            assert (store.campaigns(), store.published_bytes()) == ([], 0)
            assert store.campaign_numbers("made") == [1]
            assert store.campaign_numbers("other") == []

    def test_only_logs_without_a_result_of_campaigns_that_ended_long_ago_are_forgotten(
        self, metadata: MetadataStore
    ) -> None:
        log = AttemptLog(text="a log", telemetry_json='{"a": 1}')
        failed = attempt(state=AttemptState.FAILED, ended_at_ms=30, log=log)
        with metadata.transaction() as store:
            fill(store)
            store.add_attempt(failed)
            assert store.forget_logs(1 << 60, 10, "(gone)") == 0, "the campaign runs"
            store.save_campaign(replace(campaign(), state=CampaignState.FAILED, ended_at_ms=100))
            assert store.forget_logs(100, 10, "(gone)") == 0, "it ended later"
            assert store.forget_logs(101, 10, "(gone)") == 1
            assert store.attempts("made-1.0000") == [replace(failed, log=AttemptLog(text="(gone)"))]
            assert store.forget_logs(101, 10, "(gone)") == 0
            store.save_attempt(replace(failed, state=AttemptState.PUBLISHED))
            assert store.forget_logs(101, 10, "(gone)") == 0, "it has a result"

    def test_identities_come_back_as_they_were_put(self, metadata: MetadataStore) -> None:
        box = Identity("b", IdentityKind.AGENT, "box", Role.AGENT, "vision", ("rack=3", "fast"), 5)
        vera = Identity("a", IdentityKind.PERSON, "vera", Role.VIEWER)
        with metadata.transaction() as store:
            store.put_identity(box)
            store.put_identity(vera)
            store.put_identity(replace(vera, role=Role.ADMIN, revoked_at_ms=9))
        with metadata.snapshot() as read:
            assert read.identities() == [replace(vera, role=Role.ADMIN, revoked_at_ms=9), box]
            assert read.identity("b") == box
            assert read.identity("c") is None

    def test_failures_are_those_of_one_workload_in_one_campaign(self, metadata: MetadataStore) -> None:
        runs = [run(0), run(1), run(2, workload="other"), run(0, "made-2")]
        failed = {"state": AttemptState.FAILED, "failure": FAILURE, "ended_at_ms": 30}
        elsewhere = AttemptKey("made-2.0000", 0, 1, 4)
        with metadata.transaction() as store:
            store.add_campaign(campaign(), runs[:3], [Slice(r.run_id, 0) for r in runs[:3]])
            store.add_campaign(campaign("made-2", 2), runs[3:], [Slice(r.run_id, 0) for r in runs[3:]])
            store.add_attempt(attempt(2, 1, 1, slot_id="gpu-b", gang=("gpu-x",), **failed))
            store.add_attempt(attempt(1, 1, 0, slot_id="gpu-a", **failed))
            store.add_attempt(attempt(3, 1, 2, slot_id="gpu-c", **failed))
            store.add_attempt(replace(attempt(slot_id="gpu-d", **failed), key=elsewhere))
            store.add_attempt(attempt(5, 2, 0, slot_id="gpu-e"))
        with metadata.snapshot() as read:
            failures = [(("gpu-a",), FAILURE), (("gpu-b", "gpu-x"), FAILURE)]
            assert read.workload_failures("made-1", "training") == failures
            assert read.workload_failures("made-1", "none") == []

    def test_what_is_not_there_is_none(self, metadata: MetadataStore) -> None:
        with metadata.snapshot() as store:
            assert store.campaign("x") is None and store.run("x") is None and store.agent("x") is None
            assert store.slice("x", 0) is None and store.attempt("x", 0, 1) is None
            assert store.segment(AttemptKey("x", 0, 1, 1), 0) is None
            assert store.campaigns() == [] and store.attempts("x") == [] and store.runs("x") == []
            assert store.campaign_numbers("made") == [] and store.published_slices() == []

    def test_saving_replaces_the_whole_record(self, metadata: MetadataStore) -> None:
        done = replace(
            Slice("made-1.0000", 0),
            state=SliceState.DONE,
            file="f",
            file_bytes=9,
            content_hash="ab",
            launches=3,
        )
        failed = run(0, state=RunState.FAILED, failure=FAILURE, flags=())
        ended = campaign(state=CampaignState.FAILED, failure=FAILURE, ended_at_ms=9, has_report=True)
        with metadata.transaction() as store:
            fill(store)
            store.add_attempt(attempt())
            store.save_slice(done)
            store.save_run(failed)
            store.save_campaign(ended)
            store.save_attempt(attempt(state=AttemptState.PUBLISHED, launches=3))
        with metadata.snapshot() as read:
            assert read.slice("made-1.0000", 0) == done
            assert read.published_slices() == [done]
            assert read.run("made-1.0000") == failed
            assert read.campaign("made-1") == ended
            assert read.attempts("made-1.0000", 0) == [attempt(state=AttemptState.PUBLISHED, launches=3)]

    def test_a_record_that_does_not_exist_cannot_be_saved(self, metadata: MetadataStore) -> None:
        with (
            pytest.raises(StorageError, match="no record run_id=made-1"),
            metadata.transaction() as store,
        ):
            store.save_run(run())

    def test_a_transaction_that_raises_leaves_nothing(self, metadata: MetadataStore) -> None:
        class Stop(Exception):
            pass

        with pytest.raises(Stop), metadata.transaction() as store:
            fill(store)
            store.next_token()
            raise Stop
        with metadata.snapshot() as read:
            assert read.campaigns() == []
        with metadata.transaction() as store:
            assert store.next_token() == 1

    def test_tokens_grow_by_one(self, metadata: MetadataStore) -> None:
        with metadata.transaction() as store:
            assert [store.next_token() for _ in range(3)] == [1, 2, 3]
        with metadata.transaction() as store:
            assert store.next_token() == 4

    @pytest.mark.parametrize(
        "second",
        [
            attempt(token=2, number=2, slot_id="recorded-1"),  # the slice is leased
            attempt(token=2, ordinal=1),  # the slot is busy
            attempt(token=1, number=2, ordinal=1, slot_id="recorded-1"),  # the token is taken
            attempt(token=2, number=1, state=AttemptState.FAILED),  # the key is taken
            attempt(token=2, number=1, ordinal=7),  # there is no such slice
        ],
    )
    def test_the_rules_of_leases_hold_in_the_store_itself(
        self, metadata: MetadataStore, second: Attempt
    ) -> None:
        with metadata.transaction() as store:
            fill(store)
            store.add_attempt(attempt())
        with pytest.raises(StorageError), metadata.transaction() as store:
            store.add_attempt(second)
        with metadata.snapshot() as read:
            assert read.attempts("made-1.0000") == [attempt()]

    def test_a_publishing_attempt_holds_its_slice_but_not_its_slot(self, metadata: MetadataStore) -> None:
        with metadata.transaction() as store:
            fill(store)
            store.add_attempt(attempt(state=AttemptState.PUBLISHING))
            store.add_attempt(attempt(token=2, ordinal=1))
        with pytest.raises(StorageError), metadata.transaction() as store:
            store.add_attempt(attempt(token=3, number=2, slot_id="recorded-1"))

    def test_a_slice_is_published_once(self, metadata: MetadataStore) -> None:
        with metadata.transaction() as store:
            fill(store)
            store.add_attempt(attempt(state=AttemptState.PUBLISHED))
        with pytest.raises(StorageError), metadata.transaction() as store:
            store.add_attempt(attempt(token=2, number=2, state=AttemptState.PUBLISHED))

    def test_campaigns_are_listed_oldest_first_and_numbered_by_name(self, metadata: MetadataStore) -> None:
        with metadata.transaction() as store:
            for number in (2, 1, 3):
                made = campaign(f"made-{number}", number)
                store.add_campaign(made, [run(0, made.campaign_id)], [])
        with metadata.snapshot() as read:
            assert [c.number for c in read.campaigns()] == [2, 1, 3]
            assert sorted(read.campaign_numbers("made")) == [1, 2, 3]

    def test_campaigns_belong_to_people_and_projects(self, metadata: MetadataStore) -> None:
        with metadata.transaction() as store:
            for number, (owner, project) in enumerate(
                [("a", "p"), ("b", "p"), ("a", ""), ("", ""), ("b", "q")]
            ):
                store.add_campaign(campaign(f"m-{number}", number, owner=owner, project=project), [], [])
        with metadata.snapshot() as read:
            assert read.belongs_to("m-1") == Belonging("b", "p") and read.belongs_to("m-9") is None

            def seen(first: int = 0, most: int | None = None, **whose: str) -> list[int]:
                sight = Sight(False, **whose)
                return [c.number for c in read.campaigns(first=first, most=most, sight=sight)]

            assert seen(identity_id="a", project="p") == [0, 1, 2]
            assert seen(identity_id="a", project="") == [0, 2, 3]
            assert seen(identity_id="c", project="r") == []
            # A page is full of what is seen, and the next begins where it ends.
            assert seen(0, 2, identity_id="b", project="") == [1, 2]
            places = {c.number: c.ordinal for c in read.campaigns()}
            assert seen(places[3], 2, identity_id="b", project="") == [3, 4]

    def test_the_waiting_slice_is_due_fitting_and_of_a_running_campaign(
        self, metadata: MetadataStore
    ) -> None:
        with metadata.transaction() as store:
            runs = [run(i, profiler="ncu" if i == 2 else "recorded") for i in range(5)]
            store.add_campaign(campaign(), runs, [Slice(r.run_id, 0) for r in runs])
            store.save_slice(Slice("made-1.0000", 0, not_before_ms=100))
            store.save_slice(Slice("made-1.0001", 0, state=SliceState.LEASED))
            other = campaign("made-2", 2, state=CampaignState.CANCELLED)
            store.add_campaign(other, [run(0, "made-2")], [Slice("made-2.0000", 0)])

        def waiting(now_ms: int, *profilers: str) -> str | None:
            with metadata.snapshot() as read:
                found = waiting_slice(read, Slot("s", profilers), now_ms)
                return found and found[0].run_id

        assert waiting(99, "recorded") == "made-1.0003"
        assert waiting(100, "recorded") == "made-1.0000"
        assert waiting(99, "recorded", "ncu") == "made-1.0002"
        assert waiting(100) is None

    def test_a_live_run_waits_for_its_gpu_its_profiler_and_its_mark(self, metadata: MetadataStore) -> None:
        wanted = run(0, profiler="ncu", device_key="v100", synthetic=True, state=RunState.RUNNING)
        pieces = [
            Slice(wanted.run_id, i, 10 * i, 10, SliceState(s)) for i, s in enumerate(["done", "waiting"])
        ]
        with metadata.transaction() as store:
            store.add_campaign(campaign(), [wanted], pieces)
        slots = {
            "fits": Slot("a", ("nsys", "ncu"), True, InstalledDevice(name="virtual V100")),
            "measured": Slot("b", ("ncu",), False, InstalledDevice(name="V100")),
            "another GPU": Slot("c", ("ncu",), True, InstalledDevice(name="virtual A100")),
            "no ncu": Slot("d", ("nsys",), True, InstalledDevice(name="virtual V100")),
            "no GPU": Slot("e", ("ncu",), True),
        }
        with metadata.snapshot() as read:
            found = {name: waiting_slice(read, slot, 0) for name, slot in slots.items()}
            beside = [read.states_beside(wanted.run_id, index) for index in range(3)]
            done, waiting = frozenset({SliceState.DONE}), frozenset({SliceState.WAITING})
            assert beside == [waiting, done, done | waiting]
        assert found == {**dict.fromkeys(slots), "fits": (wanted, pieces[1])}

    def test_a_share_by_partition_waits_for_a_slot_that_says_it_makes_partitions(
        self, metadata: MetadataStore
    ) -> None:
        """An agent of an earlier release passes over the kind of share, and would make a limit instead."""
        partition = Condition("none", "none", 50.0, "partition")
        live = {"profiler": "nsys", "device_key": "h100", "state": RunState.RUNNING}
        runs = [
            run(0, condition=partition, **live),
            run(1, condition=replace(partition, sm_share="limit"), **live),
            run(2, condition=partition, state=RunState.RUNNING),
        ]
        with metadata.transaction() as store:
            store.add_campaign(campaign(), runs, [Slice(each.run_id, 0) for each in runs])
        old = Slot("a", ("nsys",), False, InstalledDevice(name="H100"))
        with metadata.snapshot() as read:
            found = [
                waiting_slice(read, slot, 0)
                for slot in (old, replace(old, sm_partitions=True), Slot("r", ("recorded",)))
            ]
            needs = [need for need, _ in read.progress("made-1").needs]
        assert [each and each[0].run_id for each in found] == ["made-1.0001", "made-1.0000", "made-1.0002"]
        assert [need.run_id for need in needs] == ["made-1.0000", "made-1.0001", "made-1.0002"]

    def test_runs_with_and_without_a_bundle_wait_apart(self, metadata: MetadataStore) -> None:
        """One of them may have a slot while the other waits for an agent that takes bundles."""
        live = {"profiler": "nsys", "device_key": "h100", "state": RunState.RUNNING}
        plain = CommandSource(("./run",))
        packed = replace(plain, bundle=Bundle("0" * 64, 2048, 1))
        # As a plan makes them: all that they share are the same objects.
        runs = [run(n, recorded=None, command=command, **live) for n, command in enumerate([packed, plain])]
        runs = [replace(each, condition=runs[0].condition, placement=runs[0].placement) for each in runs]
        with metadata.transaction() as store:
            store.add_campaign(campaign(), runs, [Slice(each.run_id, 0) for each in runs])
        slot = Slot("a", ("nsys",), False, InstalledDevice(name="H100"))
        with metadata.snapshot() as read:
            found = waiting_slice(read, slot, 0)
            needs = [need for need, _ in read.progress("made-1").needs]
        assert found is not None and found[0] == runs[1]
        assert needs == runs

    def test_agents_are_listed(self, metadata: MetadataStore) -> None:
        agents = [Agent(name, "s", name, Inventory(), (Slot("0", ("ncu",)),), 7) for name in ("b", "a")]
        with metadata.transaction() as store:
            for agent in agents:
                store.put_agent(agent)
        with metadata.snapshot() as read:
            assert read.agents() == agents[::-1]

    def test_agents_and_attempts_of_heartbeats_are_found_and_noted_together(
        self, metadata: MetadataStore
    ) -> None:
        first = attempt()
        second = attempt(8, ordinal=1, slot_id="other", launches_spooled=50)
        unknown = replace(first.key, token=99)
        agents = [Agent(name, f"process of {name}", name, Inventory(), (), 7) for name in "abc"]
        with metadata.transaction() as store:
            fill(store)
            for each in (first, second):
                store.add_attempt(each)
            for agent in agents:
                store.put_agent(agent)
        with metadata.transaction() as store:
            store.saw_agents(["a", "c"], 100)
            store.saw_agents([], 200)
            store.extend_attempts([(first.key, 20), (second.key, 20)], 5_000)
            store.extend_attempts([], 6_000)
        with metadata.snapshot() as read:
            sessions = read.sessions(["a", "b", "c", "d"])
            no_others = (AttemptKey("x", 0, 1, token) for token in range(10**9, 10**9 + 70_000))
            not_its_own = replace(second.key, token=first.key.token)
            found = read.attempts_with([first.key, unknown, not_its_own, *no_others, second.key])
            assert read.sessions([]) == {}
            assert read.attempts_with([]) == {}
            assert [agent.seen_at_ms for agent in read.agents()] == [100, 7, 100]
        assert {name: (s.session_id, s.seen_at_ms) for name, s in sessions.items()} == {
            "a": ("process of a", 100), "b": ("process of b", 7), "c": ("process of c", 100),
        }  # fmt: skip
        extended = {"lease_ends_at_ms": 5_000, "confirmed": True}
        assert found == {
            first.key: replace(first, launches_spooled=20, **extended),
            second.key: replace(second, launches_spooled=50, **extended),
        }

    def test_attempts_are_found_by_state_agent_slot_and_deadline(self, metadata: MetadataStore) -> None:
        with metadata.transaction() as store:
            fill(store, runs=3)
            store.add_attempt(attempt(1, ordinal=0, lease_ends_at_ms=50))
            store.add_attempt(attempt(2, ordinal=1, agent_id="agent-2", lease_ends_at_ms=10))
            store.add_attempt(attempt(3, ordinal=2, state=AttemptState.EXPIRED))

        def tokens(*states: AttemptState, **where: object) -> list[int]:
            with metadata.snapshot() as read:
                return [a.key.token for a in read.attempts_in(states, **where)]  # type: ignore[arg-type]

        assert tokens(AttemptState.LEASED, AttemptState.EXPIRED) == [1, 2, 3]
        assert tokens(AttemptState.LEASED, lease_ended_before_ms=50) == [2]
        assert tokens(AttemptState.LEASED, agent_id="agent-1", slot_id="recorded-0") == [1]
        assert tokens(AttemptState.LEASED, agent_id="agent-1", slot_id="recorded-1") == []

    def test_an_overview_counts_attempts_and_the_launches_of_the_newest(
        self, metadata: MetadataStore
    ) -> None:
        with metadata.transaction() as store:
            fill(store)
            store.add_attempt(attempt(1, state=AttemptState.SUPERSEDED, launches=70, agent_name="old"))
            store.add_attempt(attempt(2, number=2, launches=10, launches_spooled=30, agent_name="new"))
        with metadata.snapshot() as read:
            first, second = read.run_overviews("made-1")
            assert (first.attempts, first.agent, first.launches) == (2, "new", 30)
            assert (second.attempts, second.agent, second.launches) == (0, "", 0)
            assert (first.slices, first.slices_done, first.retries) == (1, 0, 1)
            assert (second.slices, second.slices_done, second.retries) == (1, 0, 0)
            assert read.run_overviews("made-1", "made-1.0001") == [second]

    def test_runs_are_shown_by_workload_gpu_state_and_flag(self, metadata: MetadataStore) -> None:
        capped = ValidityFlag("power_capped", 'said "throttled" once')
        names = ("a_b", "axb", "A_B two", "other", "other", "100%")
        flags = {1: (capped,), 3: (capped, ValidityFlag("throttled", ""))}
        kinds = {2: "A100"}
        runs = [
            replace(run(n), workload=name, flags=flags.get(n, ()), device_kind=kinds.get(n, "V100"))
            for n, name in enumerate(names)
        ]
        runs[4] = replace(runs[4], state=RunState.FAILED, holds=(Hold.PAUSED,))
        with metadata.transaction() as store:
            store.add_campaign(campaign(), runs, [Slice(each.run_id, 0) for each in runs])

        def shown(first: int = 0, most: int | None = None, **chosen: Any) -> list[int]:
            with metadata.snapshot() as read:
                found = read.run_overviews("made-1", first=first, most=most, chosen=RunFilter(**chosen))
                if not first and most is None:
                    assert read.runs_chosen("made-1", RunFilter(**chosen)) == len(found)
                assert all(each.slices == 1 for each in found)
                return [each.run.ordinal for each in found]

        assert shown() == [0, 1, 2, 3, 4, 5]
        assert shown(search="a_b") == [0, 2], "an underscore is one, in any case"
        assert shown(search="0%") == [5]
        assert shown(search="made-1.0003") == [3]
        assert shown(search="a_b", device_kind="A100") == [2]
        assert shown(state=RunState.FAILED) == shown(paused=True) == [4]
        assert shown(flag="power_capped") == [1, 3]
        assert shown(flag="throttled") == [3], "a word of a detail is no flag"
        assert shown(search="o") == [2, 3, 4]
        assert shown(search="o", first=1, most=1) == [3]
        assert shown(first=4) == [4, 5]
        assert shown(search="'; drop") == []

    def test_an_overview_tells_slices_from_retries(self, metadata: MetadataStore) -> None:
        """Three attempts: one for each of two slices, and one more because the first of them failed."""
        with metadata.transaction() as store:
            store.add_campaign(campaign(), [run(0)], [Slice("made-1.0000", index) for index in range(3)])
            store.save_slice(Slice("made-1.0000", 1, state=SliceState.DONE))
            store.add_attempt(attempt(1, state=AttemptState.FAILED))
            store.add_attempt(attempt(2, number=2))
            other = AttemptKey("made-1.0000", 1, 1, 3)
            store.add_attempt(attempt(key=other, state=AttemptState.PUBLISHED, slot_id="other"))
        with metadata.snapshot() as read:
            [overview] = read.run_overviews("made-1")
            assert read.run_overviews("made-1", "made-1.0000") == [overview]
        assert (overview.slices, overview.slices_done) == (3, 1)
        assert (overview.attempts, overview.retries) == (3, 1)

    def test_runs_are_counted_by_state(self, metadata: MetadataStore) -> None:
        with metadata.transaction() as store:
            fill(store, runs=3)
            store.save_run(run(0, state=RunState.DONE))
            store.save_run(run(2, state=RunState.DONE))
        with metadata.snapshot() as read:
            assert read.run_counts("made-1") == {RunState.DONE: 2, RunState.WAITING: 1}
            assert read.run_counts("made-7") == {}

    def test_all_failed_and_flagged_runs_are_noted_with_those_alike(self, metadata: MetadataStore) -> None:
        with metadata.transaction() as store:
            fill(store, runs=5)
            for number in (1, 3):
                store.save_run(run(number, flags=()))
            store.save_run(run(2, state=RunState.FAILED, failure=FAILURE, flags=FLAGS[1:]))
        with metadata.snapshot() as read:
            assert read.noted_runs("made-1") == [
                NotedRuns(None, FLAGS, ("made-1.0000", "made-1.0004")),
                NotedRuns(FAILURE, FLAGS[1:], ("made-1.0002",)),
            ]
            assert read.noted_runs("made-7") == []

    def test_open_runs_are_those_that_have_not_ended(self, metadata: MetadataStore) -> None:
        with metadata.transaction() as store:
            fill(store, runs=3)
            assert store.open_ends("made-1").open_runs
            store.save_run(run(0, state=RunState.RUNNING))
            store.save_run(run(1, state=RunState.FAILED))
            store.save_run(run(2, state=RunState.CANCELLED))
        with metadata.snapshot() as read:
            assert (read.open_ends("made-1").open_runs, read.open_ends("made-7").open_runs) == (True, False)
            assert (read.campaign_of("made-1.0000"), read.campaign_of("made-7.0000")) == ("made-1", None)

    def test_what_databases_keep_differently_is_kept_alike(self, metadata: MetadataStore) -> None:
        """A NUL, quotes, backslashes, an escape that only looks like a NUL, and a log of ten megabytes."""
        ugly = 'it\'s "quoted" \\u0000 %s %% :name 測定 \U0001f600'
        log = AttemptLog(("a",), {"A": ugly}, "\0" + ugly + "x" * 10_000_000 + "\0")
        failed = attempt(1, agent_name=ugly, log=log, failure=replace(FAILURE, cause=f"\0{ugly}"))
        with metadata.transaction() as store:
            store.add_campaign(campaign(name=ugly), [run(0, workload=ugly)], [Slice("made-1.0000", 0)])
            store.add_attempt(failed)
        with metadata.snapshot() as read:
            assert read.campaign_numbers(ugly) == [1]
            assert read.runs("made-1")[0].workload == ugly
            found = read.attempts("made-1.0000")[0]
            assert [each.campaign_id for each in read.entrants()] == ["made-1"]
        assert found.log.text == "␀" + ugly + "x" * 10_000_000 + "␀"
        assert (found.agent_name, found.log.environment) == (ugly, {"A": ugly})
        assert found.failure == replace(FAILURE, cause=f"␀{ugly}")

    @pytest.mark.parametrize("number", [float("nan"), float("inf")])
    def test_a_number_that_is_not_finite_is_refused(self, metadata: MetadataStore, number: float) -> None:
        with metadata.transaction() as store:
            fill(store)
            store.add_attempt(attempt(1))
        with pytest.raises(StorageError, match="cannot be stored"), metadata.transaction() as store:
            store.save_attempt(attempt(1, log=AttemptLog(wall_seconds=number)))
        with metadata.snapshot() as read:
            assert read.attempts("made-1.0000") == [attempt(1)]

    def test_many_threads_write_one_after_the_other(self, metadata: MetadataStore) -> None:
        tokens: list[int] = []

        def take() -> None:
            for _ in range(20):
                with metadata.transaction() as store:
                    tokens.append(store.next_token())
                with metadata.snapshot() as read:
                    read.campaigns()

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(tokens) == list(range(1, 81))


def test_sql_reads_failures_without_their_logs() -> None:
    """A server that runs for months has logs of many gigabytes."""
    read = {column.name for column in attempts.WORKLOAD_FAILURES.selected_columns}
    assert read == {"slot_id", "gang", "failure"}


# SQLite in memory has one connection, for which its readers wait.
@pytest.mark.parametrize("name", [name for name in METADATA_STORES if name != "sqlite in memory"])
def test_a_snapshot_does_not_wait_for_a_writer_and_sees_none_of_its_changes(
    name: str, tmp_path: Path
) -> None:
    store = METADATA_STORES[name](tmp_path)
    with store.transaction() as write:
        fill(write)
        with store.snapshot() as read:
            assert read.campaigns() == []
    with store.snapshot() as read:
        assert len(read.campaigns()) == 1
    store.close()


@pytest.mark.parametrize("name", [name for name in METADATA_STORES if name != "sqlite in memory"])
def test_a_snapshot_refuses_to_write_and_later_ones_read(name: str, tmp_path: Path) -> None:
    store = METADATA_STORES[name](tmp_path)
    with pytest.raises(StorageError, match=r"read-?only"), store.snapshot() as read:
        fill(read)
        assert read.campaigns()  # a driver may send what writes only now
    with store.snapshot() as read:
        assert read.campaigns() == []
    with store.transaction() as write:
        fill(write)
    store.close()


KEY = AttemptKey("made-1.0000", 0, 1, 9)
OTHER = AttemptKey("made-1.0000", 0, 2, 10)


@pytest.fixture(params=RECORD_STORES)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> RecordBench:
    return RECORD_STORES[request.param](tmp_path)


@pytest.fixture
def records(bench: RecordBench) -> RecordStore:
    return bench.records


def stage(records: RecordStore, key: AttemptKey, segments: list[MadeSegment]) -> list[Segment]:
    staged: list[Segment] = []
    for segment in segments:
        staged.append(segment.record(key, staged[-1].end_bytes if staged else 0))
    records.stage([(r, s.names, s.data) for r, s in zip(staged, segments, strict=True)])
    return staged


def launches_of(path: Path) -> list[int]:
    with open_recording(path) as recording:
        return [value for batch in recording.batches() for value in batch.records["launch"].to_pylist()]


class TestRecordStore:
    def test_staged_segments_come_back(self, records: RecordStore) -> None:
        made = made_segments((10, 20))
        for segment, record in zip(made, stage(records, KEY, made), strict=True):
            assert records.staged(record) == SegmentParts(segment.names, segment.data)

    def test_what_a_crash_left_behind_the_last_segment_is_overwritten(
        self, records: RecordStore, bench: RecordBench
    ) -> None:
        first, second = made_segments((10, 20))
        [staged] = stage(records, KEY, [first])
        [name] = bench.names()
        bench.write(name, bench.read(name) + b"torn" * 1000)
        following = second.record(KEY, staged.end_bytes)
        records.stage([(following, second.names, second.data)])
        assert records.staged(staged) == SegmentParts(first.names, first.data)
        assert records.staged(following) == SegmentParts(second.names, second.data)

    def test_publishing_writes_all_segments_in_order_and_may_be_repeated(self, records: RecordStore) -> None:
        staged = stage(records, KEY, made_segments((10, 20, 30)))
        first = publish_in(records, KEY, staged)
        assert first.launches == 60
        with records.reading(first.file) as path:
            assert first.file_bytes == path.stat().st_size
            assert launches_of(path) == list(range(60))
        assert records.sizes([first.file, "made-1.0009/none"]) == {first.file: first.file_bytes}
        assert list(records.listed()) == [first.file]
        assert publish_in(records, KEY, staged) == first

    def test_the_file_does_not_depend_on_how_launches_were_cut(self, records: RecordStore) -> None:
        first = publish_in(records, KEY, stage(records, KEY, made_segments((10, 20, 30))))
        second = publish_in(records, OTHER, stage(records, OTHER, made_segments((45, 15))))
        assert first.content_hash == second.content_hash

    def test_a_segment_that_changed_on_the_disk_is_not_published(
        self, records: RecordStore, bench: RecordBench
    ) -> None:
        staged = stage(records, KEY, made_segments((10, 20)))
        names = bench.names()
        data = bytearray(bench.read(names[-1]))
        data[-1] ^= 1
        bench.write(names[-1], bytes(data))
        with pytest.raises(DamagedSegmentError, match="segment 1 in it has changed"):
            publish_in(records, KEY, staged)
        for name in names:
            bench.remove(name)
        with pytest.raises(DamagedSegmentError, match="it is gone"):
            publish_in(records, KEY, staged)
        assert bench.names() == []

    def test_an_attempt_without_segments_is_not_published(self, records: RecordStore) -> None:
        with pytest.raises(AssayError, match="nothing to publish"):
            publish_in(records, KEY, [])

    def test_discarding_takes_one_attempt_only_and_may_be_repeated(self, records: RecordStore) -> None:
        [gone] = stage(records, KEY, made_segments((10,)))
        [kept] = stage(records, OTHER, made_segments((10,)))
        for _ in range(2):
            records.discard(KEY)
        with pytest.raises(DamagedSegmentError):
            records.staged(gone)
        assert records.staged(kept)
        records.discard(OTHER)

    def test_withdrawing_takes_the_file_of_a_publication(self, records: RecordStore) -> None:
        published = publish_in(records, KEY, stage(records, KEY, made_segments((10,))))
        for _ in range(2):
            records.withdraw(published.file)
        with records.reading(published.file) as path:
            assert not path.exists()

    def test_a_sweep_keeps_what_is_known_and_sets_the_rest_aside(
        self, records: RecordStore, bench: RecordBench
    ) -> None:
        kept_file = publish_in(records, KEY, stage(records, KEY, made_segments((10,))))
        [kept] = stage(records, OTHER, made_segments((10,)))
        lost = AttemptKey("made-1.0001", 0, 1, 3)
        lost_file = publish_in(records, lost, stage(records, lost, made_segments((10,))))
        records.write_report("made-1", "json", b"{}")
        halfway = AttemptKey("made-1.0002", 0, 1, 4)
        halfway_file = publish_in(records, halfway, stage(records, halfway, made_segments((10,))))
        known = KnownFiles(
            live=[OTHER, halfway],
            publishing=[halfway],
            published=[kept_file.file],
            campaigns=["made-1"],
            has_attempt=lambda run_id, index, attempt: run_id != lost.run_id,
        )
        before = bench.names()
        [lost_segment] = [name for name in before if name.startswith(f"staging/{lost.run_id}/")]
        [ended] = [name for name in before if name.startswith("staging/made-1.0000/slice-00000-attempt-0001")]
        moved = records.sweep(known)
        assert moved is not None and records.all_set_aside() == [moved]
        assert moved.names == (f"records/{lost_file.file}", lost_segment)
        folder = Path(moved.folder).name
        kept_names = set(before) - {*moved.names, ended}
        assert {f"records/{kept_file.file}", f"records/{halfway_file.file}"} < kept_names
        assert bench.names() == sorted([*kept_names, *(f"set-aside/{folder}/{name}" for name in moved.names)])
        assert records.staged(kept)
        assert records.sweep(known) is None

    def test_files_of_bundles_are_kept_read_and_removed_and_unknown_ones_set_aside(
        self, records: RecordStore, bench: RecordBench, tmp_path: Path
    ) -> None:
        source = tmp_path / "packed"
        source.write_bytes(b"compressed" * 1_000)
        for file in ("a-1.tar.z", "b-2.tar.z", "c-3.tar.z"):
            assert not records.has_bundle(file)
            records.keep_bundle(file, source)
            assert records.has_bundle(file) and source.exists()
        with records.reading_bundle("a-1.tar.z") as path:
            assert path.read_bytes() == source.read_bytes()
            for _ in range(2):
                records.remove_bundle("a-1.tar.z")
        with records.reading_bundle("a-1.tar.z") as path:
            assert not path.exists() and not records.has_bundle("a-1.tar.z")
        known = KnownFiles([], [], [], [], lambda *_: False, bundles=["b-2.tar.z"])
        moved = records.sweep(known)
        assert moved is not None and moved.names == ("bundles/c-3.tar.z",)
        assert records.has_bundle("b-2.tar.z") and not records.has_bundle("c-3.tar.z")
        assert list(records.listed()) == [], "bundles are no launches"
        with pytest.raises(StorageError):
            records.keep_bundle("d-4.tar.z", tmp_path / "gone")
        assert not records.has_bundle("d-4.tar.z")

    def test_what_is_set_aside_twice_in_a_second_lies_in_two_folders(self, records: RecordStore) -> None:
        found = []
        for size in (10, 20):
            published = publish_in(records, KEY, stage(records, KEY, made_segments((size,))))
            moved = records.set_aside(published.file)
            assert moved is not None and records.sizes([published.file]) == {}
            found.append((moved.names, moved.reason, moved.file_bytes))
            records.discard(KEY)
        assert [(m.names, m.reason, m.file_bytes) for m in records.all_set_aside()] == found
        assert records.set_aside(published.file) is None

    def test_of_several_staged_reports_one_is_put_and_the_others_are_gone(self, records: RecordStore) -> None:
        for name in ("1", "2"):
            forms = {"json": f"{name}".encode(), "html": b"<p>"}
            records.stage_report("made-1", name, forms)
            records.stage_report("made-1", name, forms)
        assert not records.report_path("made-1", "json").exists()
        records.put_report("made-1", "2", ("json", "html"))
        for late in ("1", "2"):
            with pytest.raises(StorageError):
                records.put_report("made-1", late, ("json", "html"))
        assert records.report_path("made-1", "json").read_bytes() == b"2"
        assert records.report_path("made-1", "html").read_bytes() == b"<p>"

    def test_reports_are_replaced_whole(self, records: RecordStore) -> None:
        for data in (b"first", b"second"):
            records.write_report("made-1", "html", data)
            assert records.report_path("made-1", "html").read_bytes() == data
        with pytest.raises(AssayError, match=r"there is no format '\.\./x'"):
            records.report_path("made-1", "../x")


def test_a_sweep_of_a_folder_removes_half_written_files_and_remembers_what_it_set_aside(
    tmp_path: Path,
) -> None:
    records = LocalRecordStore(tmp_path)
    published = publish_in(records, KEY, stage(records, KEY, made_segments((10,))))
    records.write_report("made-1", "json", b"{}")
    (tmp_path / "records/made-1.0000/slice-00001.parquet.tmp-77").write_bytes(b"half")
    for form in ("json", "html", "parquet"):
        (tmp_path / f"reports/made-1/report.{form}.tmp-77").write_bytes(b"half")
    moved = records.sweep(KnownFiles([KEY], [], [published.file], [], lambda *_: True))
    assert moved is not None and moved.names == ("reports/made-1/report.json",)
    assert list(tmp_path.rglob("*.tmp-*")) == []
    assert (Path(moved.folder) / "manifest.json").is_file()
    assert LocalRecordStore(tmp_path).all_set_aside() == [moved]


def test_a_full_disk_is_a_storage_error_and_what_was_staged_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = LocalRecordStore(tmp_path)
    first, second = made_segments((10, 20))
    staged = stage(records, KEY, [first])

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StorageError, match="No space left on device"):
        records.stage([(second.record(KEY, staged[-1].end_bytes), second.names, second.data)])
    with pytest.raises(StorageError, match="No space left on device"):
        publish_in(records, KEY, staged)
    monkeypatch.undo()
    assert publish_in(records, KEY, staged).launches == 10
