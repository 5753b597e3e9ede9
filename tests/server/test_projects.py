"""Who knows of which campaigns: by project, in lists too, and which project a submission goes to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_core.identity.roles import IdentityKind, Role
from assay_core.records.campaign import CampaignsPage, ChangedFile, FileChange, SetAsideReason
from assay_core.records.error_metadata import ErrorMetadata
from assay_core.records.lab import LabAgents, LabQuestion, LabQueue
from assay_protos import lab_pb2_grpc
from assay_sampling.errors import NotPermittedError
from assay_server.access.caller import (
    EVERY_PROJECT,
    Caller,
    How,
    called_by,
    project_for,
    require_priority,
    sight_of,
)
from assay_server.app import Server
from assay_server.rpc.handlers.campaigns import CampaignHandler
from assay_server.store.model import EVERYTHING, Belonging
from assay_server.store.people import Identity
from assay_server.store.quarantine_files import MovedFiles
from assay_server.store.sqlite import SqliteStore
from tests.support.identity.authorities import made_credentials
from tests.support.identity.tls_lab import authority_of, channel_of, tls_server
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.queue_lab import QueueLab, agent_of, live_campaign
from tests.support.server.server_support import CAMPAIGN

callers = st.builds(
    Caller,
    identity_id=st.sampled_from(["a", "b"]),
    name=st.just("name"),
    role=st.sampled_from(list(Role)),
    project=st.sampled_from(["", "p", "q", EVERY_PROJECT]),
    how=st.just(How.CERTIFICATE),
)
belongings = st.builds(
    Belonging, owner=st.sampled_from(["", "a", "b"]), project=st.sampled_from(["", "p", "q"])
)


@given(callers, belongings)
def test_one_sees_ones_own_and_ones_projects_and_operators_see_all(caller: Caller, whose: Belonging) -> None:
    everything = caller.role in (Role.OPERATOR, Role.ADMIN) or caller.project == EVERY_PROJECT
    sees = everything or whose.owner == caller.identity_id or whose.project == caller.project
    assert sight_of(caller).sees(whose) is sees


def test_the_owner_of_the_socket_and_the_servers_own_work_see_all() -> None:
    owner = Caller("owner", "owner", Role.ADMIN, how=How.SOCKET)
    assert sight_of(owner) == sight_of(None) == EVERYTHING


@given(callers, st.sampled_from([None, "p", "q"]))
def test_a_submitter_submits_to_their_own_project(caller: Caller, named: str | None) -> None:
    own = "" if caller.project == EVERY_PROJECT else caller.project
    free = caller.role in (Role.OPERATOR, Role.ADMIN) or caller.project == EVERY_PROJECT
    if free or named in (None, own):
        assert project_for(caller, named) == (own if named is None else named)
        # What one submits, one sees.
        assert sight_of(caller).sees(Belonging(caller.identity_id, project_for(caller, named)))
    else:
        with pytest.raises(NotPermittedError, match="leave 'project' out"):
            project_for(caller, named)


@given(callers, st.integers(-100, 100))
def test_only_operators_and_admins_put_a_campaign_before_those_of_others(
    caller: Caller, priority: int
) -> None:
    if priority <= 0 or caller.role in (Role.OPERATOR, Role.ADMIN):
        require_priority(caller, priority)
    else:
        with pytest.raises(NotPermittedError, match=f"priority {priority}: .*leave 'priority' out"):
            require_priority(caller, priority)


def test_the_owner_of_the_socket_and_the_servers_own_work_give_any_priority() -> None:
    require_priority(Caller("owner", "owner", Role.SUBMITTER, how=How.SOCKET), 100)
    require_priority(None, 100)


def person(number: int, role: Role, project: str) -> Identity:
    name = f"{role} of {project or 'none'}"
    return Identity(f"{number:032x}", IdentityKind.PERSON, name, role, project)


VISION, SOUND = person(1, Role.SUBMITTER, "vision"), person(2, Role.SUBMITTER, "sound")
VIEWER, LAB = person(3, Role.VIEWER, "vision"), person(4, Role.VIEWER, EVERY_PROJECT)
NOBODY, OPERATOR = person(5, Role.VIEWER, ""), person(6, Role.OPERATOR, "")


@pytest.fixture
def server(make_server: Callable[..., Server], short_path: Path) -> Server:
    made = tls_server(make_server, short_path)
    store = SqliteStore(made.settings.state_dir / "metadata.sqlite")
    with store.transaction() as transaction:
        for each in (VISION, SOUND, VIEWER, LAB, NOBODY, OPERATOR):
            transaction.put_identity(each)
    store.close()
    return made


@contextmanager
def calling(server: Server, *who: Identity) -> Iterator[list[PlayingAgent]]:
    """People who call over TLS."""
    with ExitStack() as stack:
        people = []
        for one in who:
            mine = made_credentials(authority_of(server), one.kind, one.identity_id)
            caller = PlayingAgent.over(channel_of(server, mine), one.identity_id)
            people.append(stack.enter_context(caller))
        yield people


def listed(who: PlayingAgent) -> list[str]:
    return [each.campaign_id for each in who.listed().campaigns]


def lab(who: PlayingAgent) -> tuple[LabAgents, LabQueue]:
    stub: Any = lab_pb2_grpc.LabServiceStub(who.channel)  # type: ignore[no-untyped-call]
    asked = LabQuestion().to_proto()
    agents, queue = stub.ListAgents(asked, timeout=20), stub.GetQueue(asked, timeout=20)
    return LabAgents.from_proto(agents), LabQueue.from_proto(queue)


def test_lists_agents_and_the_queue_name_only_what_one_may_know_of(server: Server) -> None:
    with calling(server, VISION, SOUND, VIEWER, LAB, NOBODY) as (vision, sound, viewer, all_seeing, nobody):
        mine = vision.submit(CAMPAIGN)
        theirs = sound.submit(CAMPAIGN.replace("made", "secret").replace("training", "codename"))
        assert [listed(who) for who in (vision, sound, viewer, all_seeing, nobody)] == [
            [mine], [theirs], [mine], [mine, theirs], [],
        ]  # fmt: skip
        with PlayingAgent(server.addresses[1]) as box:
            box.register()
            assert box.work().key.run_id == f"{mine}.0000"

            agents, queue = lab(sound)
            [slot] = agents.agents[0].slots
            assert (slot.run_id, slot.slice_index, slot.health) == ("", 0, "ready") and slot.leased_at_ms > 0
            told = [(q.campaign_id, q.owner_name, q.project, q.first_run_id) for q in queue.queued]
            own = (theirs, SOUND.name, "sound")
            assert told == [("",) * 4, ("",) * 4, (*own, f"{theirs}.0000"), (*own, f"{theirs}.0002")]
            assert [q.ahead for q in queue.queued] == [(), (), ("",), ("",)]  # somebody's
            assert all(q.estimate.known and q.estimate.assumed for q in queue.queued)
            assert {q.reason for q in queue.queued[:2]} == {"it is of another project"}
            assert [q.runs for q in queue.queued] == [1, 1, 2, 1]
            assert not any(word in str(queue) for word in ("training", mine, VISION.name))

            agents, queue = lab(viewer)
            assert agents.agents[0].slots[0].run_id == f"{mine}.0000"
            assert not any(word in str(queue) for word in ("codename", theirs, SOUND.name))

            assert [q.ahead for q in lab(all_seeing)[1].queued] == [(), (), (mine,), (mine,)]


def test_a_submission_to_a_project_of_others_is_refused_and_leaves_nothing(server: Server) -> None:
    with calling(server, VISION, LAB) as (vision, all_seeing):
        with pytest.raises(grpc.RpcError) as caught:
            vision.submit(f"project: sound\n{CAMPAIGN}")
        told = ErrorMetadata.beside(caught.value)
        assert told is not None and isinstance(told.error(), NotPermittedError)
        assert told.cause == f"{VISION.name} is of project 'vision'"
        assert listed(all_seeing) == []
        own = vision.submit(f"project: vision\n{CAMPAIGN}")
        assert listed(vision) == [own]


def test_a_submission_with_a_priority_that_a_submitter_may_not_give_is_refused(server: Server) -> None:
    with calling(server, VISION, OPERATOR) as (vision, operator):
        with pytest.raises(grpc.RpcError) as caught:
            vision.submit(f"priority: 1\n{CAMPAIGN}")
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
        told = ErrorMetadata.beside(caught.value)
        assert told is not None and isinstance(told.error(), NotPermittedError)
        assert (told.subject, "have an operator submit" in told.remedy) == ("priority 1", True)
        assert listed(operator) == []
        kept = [vision.submit(f"priority: {each}\n{CAMPAIGN}") for each in (0, -100)]
        first = operator.submit(f"priority: 100\n{CAMPAIGN}")
        assert sorted(listed(operator)) == sorted([*kept, first])


def test_the_overview_names_changed_and_moved_files_only_to_who_may_know_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = QueueLab(agent_of("v100"))
    for number, project in ((1, "vision"), (2, "sound")):
        made.submit(*live_campaign(number, ["v100"], project=project))
    for run_id in ("c-1.0000", "c-2.0000", "gone-1.0000"):
        changed = ChangedFile(run_id, f"records/{run_id}", FileChange.CHANGED)
        made.coordinator.changed_records.note(changed)
    moved = MovedFiles("set-aside/1", SetAsideReason.UNKNOWN, 1, 2, ("records/c-2.0000.parquet",))
    monkeypatch.setattr(made.coordinator.records, "all_set_aside", lambda: [moved])
    handler = CampaignHandler(made.coordinator)
    with called_by(Caller("x", "vera", Role.VIEWER, "vision")):
        told = handler.list_campaigns(CampaignsPage())
    assert [each.run_id for each in told.changed] == ["c-1.0000"]
    assert [(each.names, each.files) for each in told.set_aside] == [((), 1)]
    told = handler.list_campaigns(CampaignsPage())
    assert len(told.changed) == 3 and told.set_aside[0].names == moved.names
