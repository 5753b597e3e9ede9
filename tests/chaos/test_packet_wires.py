"""Wires below TCP: the rules by which frames are lost, late or doubled, and a real connection over one."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.machine.frames import FAIR, End, FrameQueue, PacketWeather
from tests.support.machine.packet_wires import NoWiresError, PacketWires, packet_wires

HEADER = bytes(12) + b"\x08\x00"


def frames(count: int) -> list[bytes]:
    return [HEADER + number.to_bytes(4, "big") for number in range(count)]


def sent(weather: PacketWeather, count: int, seed: int = 1) -> tuple[FrameQueue, list[tuple[End, bytes]]]:
    """Frames a millisecond apart to the far end, and what arrives in the next hour."""
    queue = FrameQueue(Random(seed))
    queue.weather = weather
    for number, frame in enumerate(frames(count)):
        queue.put(number / 1000, frame, End.FAR)
    return queue, queue.due(3600.0)


def test_in_fair_weather_every_frame_arrives_once_at_once_and_in_order() -> None:
    queue = FrameQueue(Random(1))
    for number, frame in enumerate(frames(50)):
        queue.put(float(number), frame, End.NEAR)
        assert queue.due(float(number)) == [(End.NEAR, frame)]
    assert (queue.next_due(), queue.counts.passed) == (None, 50)


@given(weather=st.builds(PacketWeather, *[st.floats(0, 1)] * 5), seed=st.integers(0, 999))
def test_every_frame_is_counted_and_none_is_made_up(weather: PacketWeather, seed: int) -> None:
    queue, arrived = sent(weather, 60, seed)
    found = Counter(frame for _, frame in arrived)
    assert set(found) <= set(frames(60)) and max(found.values(), default=0) <= 2
    assert queue.counts.lost == 60 - len(found)
    assert queue.counts.duplicated == len(arrived) - len(found)
    assert queue.counts.passed == len(arrived)


def test_parts_are_those_that_were_asked_for() -> None:
    queue, _ = sent(PacketWeather(lost=0.25), 4000)
    assert 900 < queue.counts.lost < 1100
    queue, _ = sent(PacketWeather(duplicated=1.0), 10)
    assert (queue.counts.duplicated, queue.counts.passed) == (10, 20)
    assert sent(PacketWeather(lost=1.0), 10)[1] == []


def test_late_frames_arrive_when_they_are_due_and_keep_their_order_without_jitter() -> None:
    queue = FrameQueue(Random(1))
    queue.weather = PacketWeather(delay_seconds=2.0)
    first, second = frames(2)
    queue.put(0.0, first, End.FAR)
    queue.put(0.5, second, End.FAR)
    assert (queue.due(1.9), queue.next_due()) == ([], 2.0)
    assert queue.due(2.4) == [(End.FAR, first)]
    queue.weather = FAIR
    assert queue.due(2.5) == [(End.FAR, second)], "a frame on its way keeps its delay"
    assert queue.counts.delayed == 2


def test_frames_overtake_each_other_by_jitter_or_alone() -> None:
    for weather in (PacketWeather(overtaken=0.5), PacketWeather(delay_seconds=1.0, jitter_seconds=0.5)):
        arrived = [frame for _, frame in sent(weather, 60)[1]]
        assert arrived != sorted(arrived) and sorted(arrived) == frames(60)


def test_a_deaf_end_hears_nothing_and_is_heard() -> None:
    queue = FrameQueue(Random(1))
    queue.weather = PacketWeather(deaf_far=True)
    [frame] = frames(1)
    queue.put(0.0, frame, End.FAR)
    queue.put(0.0, frame, End.NEAR)
    assert queue.due(0.0) == [(End.NEAR, frame)]
    assert (queue.counts.unheard, queue.counts.passed) == (1, 1)


def test_what_is_neither_ip_nor_arp_is_not_carried() -> None:
    queue = FrameQueue(Random(1))
    queue.put(0.0, bytes(12) + b"\x86\xdd" + bytes(40), End.FAR)
    assert (queue.next_due(), queue.counts.passed, queue.counts.lost) == (None, 0, 0)


# Two networks of the kernel.

SERVE = """
import hashlib, socket
with socket.create_server((address, 7000)) as listener:
    print("listens", flush=True)
    connection, _ = listener.accept()
    with connection:
        found = hashlib.sha256()
        while data := connection.recv(65536):
            found.update(data)
        connection.sendall(found.digest())
"""
SEND = """
import hashlib, random, socket
data = random.Random(1).randbytes(300_000)
with socket.create_connection((address, 7000)) as connection:
    connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)
    print(connection.recv(100) == hashlib.sha256(data).digest())
"""
LINKS = "import socket; print(sorted(name for _, name in socket.if_nameindex()))"


@pytest.fixture(scope="module")
def wires() -> Iterator[PacketWires]:
    try:
        with packet_wires(1, seed=1) as made:
            yield made
    except NoWiresError as error:
        pytest.skip(str(error))


def started(prefix: tuple[str, ...], program: str, address: str) -> subprocess.Popen[str]:
    begin = f"address = {address!r}\n"
    return subprocess.Popen(
        [*prefix, sys.executable, "-S", "-c", begin + program], stdout=subprocess.PIPE, text=True
    )


def test_tcp_carries_every_byte_over_a_wire_that_loses_doubles_and_reorders(wires: PacketWires) -> None:
    [wire] = wires.wires
    before = wire.counts
    with started(wires.at_near_end, SERVE, wire.near_address) as server:
        assert server.stdout is not None and server.stdout.readline() == "listens\n"
        wire.set(PacketWeather(0.05, 0.2, 0.2, delay_seconds=0.005, jitter_seconds=0.004))
        with started(wire.at_far_end, SEND, wire.near_address) as sender:
            assert sender.communicate(timeout=120)[0] == "True\n"
    wire.set()
    happened = wire.counts.since(before)
    assert min(happened.lost, happened.duplicated, happened.overtaken, happened.delayed) > 0


def test_the_networks_have_nothing_but_the_wire(wires: PacketWires) -> None:
    def links(prefix: tuple[str, ...]) -> str:
        return started(prefix, LINKS, "").communicate(timeout=60)[0].strip()

    assert links(wires.wires[0].at_far_end) == "['assay-far', 'lo']"
    assert links(wires.at_near_end) == "['assay-0', 'lo']"
