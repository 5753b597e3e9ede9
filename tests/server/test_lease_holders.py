"""Only who holds the lease of an attempt may write it, and only the server says what a flag means."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from assay_core.records.attempt import AttemptKey, AttemptLog
from assay_core.records.campaign import AttemptState
from assay_core.records.validity_flag import ValidityFlag
from assay_protos import agent_pb2
from assay_server.app import Server
from assay_server.store.model import Attempt
from assay_server.store.sqlite import SqliteStore
from tests.support.server.made_segments import MadeSegment, made_segments
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.server_support import CAMPAIGN, eventually

INVENTED = made_segments((40,))
MEASURED = made_segments((10_000, 9_370))
ONE_RUN = """\
campaign: one
workloads: [{name: training, recordings: [{device: V100, light: light.sqlite}]}]
"""


@pytest.fixture
def agent(server: Server) -> Iterator[PlayingAgent]:
    with PlayingAgent(server.addresses[0], "honest", "session-of-honest") as agent:
        agent.register()
        yield agent


@pytest.fixture
def stranger(server: Server) -> Iterator[PlayingAgent]:
    with PlayingAgent(server.addresses[0], "stranger", "session-of-stranger") as stranger:
        stranger.register()
        yield stranger


def published(agent: PlayingAgent, run_id: str) -> tuple[str, int]:
    run = agent.run(run_id).run
    return run.state, run.launches


def attempts(agent: PlayingAgent, run_id: str) -> list[tuple[int, str, int]]:
    return [(a.key.attempt, a.state, a.launches) for a in agent.run(run_id).attempts]


def end_honestly(agent: PlayingAgent, key: AttemptKey, begin: int = 0) -> None:
    answers = agent.upload(key, MEASURED[begin:])
    assert [a.refusal for a in answers] == [None] * len(MEASURED[begin:])
    assert agent.finish(key, 2, 19_370).published
    assert published(agent, key.run_id) == ("done", 19_370)


def test_a_stranger_publishes_nothing_in_place_of_the_agent_that_measures(
    agent: PlayingAgent, stranger: PlayingAgent
) -> None:
    agent.submit(ONE_RUN)
    key = agent.lease().work.key
    seen = stranger.run("one-1.0000").attempts[0].key  # everybody may ask for it
    [answer] = stranger.upload(seen, INVENTED)
    assert answer.refusal.failure_class == "lease_expired"
    assert "does not hold its lease" in answer.refusal.cause
    assert not stranger.finish(seen, 1, 40).published
    assert published(agent, "one-1.0000") == ("running", 0)
    end_honestly(agent, key)


def test_a_stranger_ends_and_delays_no_attempt_of_others(agent: PlayingAgent, stranger: PlayingAgent) -> None:
    agent.submit(ONE_RUN)
    key = agent.lease().work.key
    agent.upload(key, MEASURED[:1])
    seen = stranger.run("one-1.0000").attempts[0].key
    stranger.fail(seen, "permission", retryable=False)
    # Neither a segment that does not fit nor one with another hash makes the server end the attempt.
    for wrong in (INVENTED[0], MadeSegment(7, 40, INVENTED[0].names, INVENTED[0].data)):
        [answer] = stranger.upload(seen, [wrong])
        assert answer.refusal is not None
    assert [k.run_id for k in stranger.heartbeat([seen], launches_spooled=10**9).drop] == ["one-1.0000"]
    assert attempts(agent, "one-1.0000") == [(1, "leased", 10_000)]
    assert stranger.register(sealed=[seen]).drop == (seen,)
    end_honestly(agent, key, begin=1)


def test_the_number_of_a_lease_is_no_proof_and_neither_is_the_name_of_its_agent(
    server: Server, agent: PlayingAgent
) -> None:
    """Who knows the agent's name, its session and the whole key still lacks the secret."""
    agent.submit(ONE_RUN)
    key = agent.lease().work.key
    with PlayingAgent(server.addresses[0], "honest", "session-of-honest") as forger:
        assert forger.upload(key, INVENTED)[0].refusal is not None
        assert not forger.finish(key, 1, 40).published
        for guess in (b"", b"\0" * 32, b"x" * 10_000):
            forger.know(key, guess)
            assert forger.upload(key, INVENTED)[0].refusal is not None
            forger.fail(key)
            assert forger.heartbeat([key]).drop == (key,)
    end_honestly(agent, key)


def test_the_secret_of_a_lease_holds_for_the_session_that_it_was_given_to(
    server: Server, agent: PlayingAgent
) -> None:
    agent.submit(ONE_RUN)
    work = agent.lease().work
    with PlayingAgent(server.addresses[0], "honest", "a later session") as later:
        later.know(work.key, work.write_secret)
        assert later.upload(work.key, MEASURED)[0].refusal is not None
        # A restarted agent finds secret and segments in its spool, and registers them.
        assert later.register(sealed=[work.key]).resume == (work.key,)
        assert agent.upload(work.key, MEASURED)[0].refusal is not None
        assert not agent.finish(work.key, 0, 0).published
        end_honestly(later, work.key)


@pytest.mark.parametrize("session_id", ["session-of-honest", "session-of-stranger"])
def test_the_secret_of_a_lease_helps_no_other_agent(
    server: Server, agent: PlayingAgent, session_id: str
) -> None:
    agent.submit(ONE_RUN)
    work = agent.lease().work
    with PlayingAgent(server.addresses[0], "stranger", session_id) as stranger:
        stranger.know(work.key, work.write_secret)
        answer = stranger.register(sealed=[work.key])
        assert (list(answer.resume), list(answer.drop)) == ([], [work.key])
        assert stranger.upload(work.key, INVENTED)[0].refusal is not None
        assert not stranger.finish(work.key, 0, 0).published
    end_honestly(agent, work.key)


@pytest.mark.parametrize("guess", [b"", b"x" * 32])
def test_a_restarted_agent_without_the_secret_keeps_no_lease_waiting(
    server: Server, agent: PlayingAgent, guess: bytes
) -> None:
    """It can never finish that attempt: the slice waits for another at once, not until the lease expires."""
    agent.submit(ONE_RUN)
    key = agent.lease().work.key
    with PlayingAgent(server.addresses[0], "honest", "a later session") as later:
        later.know(key, guess)
        assert later.register(sealed=[key]).drop == (key,)
        assert attempts(later, "one-1.0000") == [(1, "failed", 0)]
        again = later.lease(wait_ms=5000).work.key
        assert (again.run_id, again.attempt) == ("one-1.0000", 2)
        end_honestly(later, again)


def test_every_lease_has_a_secret_of_its_own_that_no_other_answer_holds(
    server: Server, agent: PlayingAgent, stranger: PlayingAgent
) -> None:
    campaign_id = agent.submit(CAMPAIGN)
    secrets = []
    for segments in (made_segments((30,), "detailed", counters=1), made_segments((20,)), made_segments((9,))):
        work = agent.lease(wait_ms=5000).work
        again = agent.lease().work  # the first answer may have been lost
        assert (again.key, again.write_secret) == (work.key, work.write_secret)
        secrets.append(work.write_secret)
        answers = [*agent.upload(work.key, segments), agent.heartbeat([work.key])]
        answers += [agent.run(work.key.run_id), agent.status(campaign_id), stranger.register()]
        answers += [agent.register(sealed=[work.key])]
        agent.finish(work.key, 1, segments[0].launches, flags=[ValidityFlag(name="power_capped")])
        answers += [agent.run(work.key.run_id), agent.status(campaign_id)]
        answers += [agent.listed()]
        for answer in answers:
            assert work.write_secret not in answer.to_proto().SerializeToString()
    assert [len(secret) for secret in secrets] == [32, 32, 32]
    assert len(set(secrets)) == 3
    eventually(lambda: agent.status(campaign_id).state == "done", "the end of the campaign")
    for form in ("json", "html"):
        report = b"".join(chunk.data for chunk in agent.report(campaign_id, form))
        assert not any(secret in report or secret.hex().encode() in report for secret in secrets)


def test_which_flags_invalidate_says_the_registry_of_the_server_and_never_an_agent(
    agent: PlayingAgent,
) -> None:
    agent.submit(ONE_RUN)
    key = agent.lease().work.key
    agent.upload(key, MEASURED)
    flags = [
        ValidityFlag(name="xid_error", detail="XID 79", invalidates=False),
        ValidityFlag(name="power_capped", detail="at 250 W", invalidates=True),
        ValidityFlag(name="of_a_newer_agent", detail="seen", invalidates=False),
    ]
    assert agent.finish(key, 2, 19_370, flags=flags).published
    kept = {f.name: (f.detail, f.invalidates) for f in agent.run("one-1.0000").run.flags}
    del kept["condition_assumed"]
    assert kept == {
        "xid_error": ("XID 79", True),
        "power_capped": ("at 250 W", False),
        # What nobody here knows may be the worst: it is shown, and results refuse to rest on the run.
        "of_a_newer_agent": ("seen", True),
    }


def test_who_registers_nothing_finishes_nothing(server: Server, agent: PlayingAgent) -> None:
    """A lease is bound to the process that registered: an empty identity is nobody's."""
    agent.submit(ONE_RUN)
    work = agent.lease().work
    request = agent_pb2.FinishAttemptRequest(
        key=work.key.to_proto(), segments=0, write_secret=work.write_secret
    )
    assert not agent.agent.FinishAttempt(request, timeout=60).published
    assert attempts(agent, "one-1.0000") == [(1, "leased", 0)]


def test_no_error_of_the_database_quotes_the_secret_of_a_lease(tmp_path: Path) -> None:
    """Faults of ours go to the log with their traceback, and in a sentence to whoever asked."""
    secret, metadata = bytes(range(32)), SqliteStore(tmp_path / "metadata.sqlite")
    unknown = Attempt(AttemptKey("r", 0, 1, 1), AttemptState.LEASED, "a", "name", "s", "0", 1, 2)
    refused: dict[str, Attempt] = {
        "a run that is unknown": unknown,
        "what is no JSON": replace(unknown, log=AttemptLog(environment={"A": object()})),  # type: ignore[dict-item]
    }
    for what, attempt in refused.items():
        with pytest.raises(Exception) as caught, metadata.transaction() as store:
            store.add_attempt(replace(attempt, write_secret=secret))
        told = "".join(traceback.format_exception(caught.value))
        assert "attempts" in told, what
        assert secret.hex() not in told, what
    metadata.close()
