import http.client
import http.server
import os
import re
import socket
import struct
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from tests.chaos.faults.kinds import KINDS
from tests.chaos.faults.seam import Whom
from tests.chaos.interposing import Meddling
from tests.chaos.laboratory import waited
from tests.chaos.programs import Program
from tests.chaos.schedule import plan
from tests.chaos.site.broken_disks import DeviceErrors
from tests.chaos.site.faults import KINDS_OF_A_SITE, SITE_KINDS
from tests.chaos.site.gate import Gate, Mood
from tests.chaos.site.laboratory import SERVICES, SiteLaboratory
from tests.chaos.site.services import free_ports
from tests.support.machine.disks import Disk
from tests.support.machine.failing_device import FailingDevice, failing_disk

ANSWER = b"taken"


class Answering(http.server.BaseHTTPRequestHandler):
    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def gate() -> Iterator[Gate]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    made = Gate(server.server_port)
    try:
        yield made
    finally:
        made.close()
        server.shutdown()
        server.server_close()
        thread.join()


def put(port: int) -> int:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/bucket/key", data=b"x" * 200_000, method="PUT")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            if answer.read() != ANSWER:
                raise http.client.IncompleteRead(b"")
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_the_gate_passes_requests_answers_503_and_cuts() -> None:
    with gate() as way:
        assert put(way.port) == 200 and way.refused == 0
        way.set(Mood.CUT)
        with pytest.raises(OSError):
            put(way.port)
        assert way.refused == 1
        way.set(Mood.OPEN)
        assert put(way.port) == 200


def test_a_busy_bucket_answers_503_to_small_requests() -> None:
    with gate() as way:
        way.set(Mood.BUSY)
        request = urllib.request.Request(f"http://127.0.0.1:{way.port}/bucket/key")
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request, timeout=30)
        with caught.value as error:
            assert error.code == 503 and way.refused == 1


def test_requests_meet_one_mood_after_the_other() -> None:
    with gate() as way:
        way.follow([Mood.OPEN, Mood.HALF, Mood.BUSY, Mood.SLOW, Mood.CUT])
        assert put(way.port) == 200
        with pytest.raises((OSError, http.client.HTTPException)):
            put(way.port)
        with pytest.raises(OSError):  # the answer, or a broken pipe while the rest of the request is sent
            if put(way.port) == 503:
                raise OSError
        assert put(way.port) == 200
        with pytest.raises((OSError, http.client.HTTPException)):
            put(way.port)
        assert put(way.port) == 200
        assert way.met == {Mood.OPEN: 2, Mood.HALF: 1, Mood.BUSY: 1, Mood.SLOW: 1, Mood.CUT: 1}
        way.follow([])
        assert put(way.port) == 200 and way.met.total() == 6


def test_a_bucket_that_is_killed_within_a_request_ends_the_connection_to_who_asked() -> None:
    with socket.create_server(("127.0.0.1", 0)) as bucket:
        way = Gate(int(bucket.getsockname()[1]))
        try:
            with socket.create_connection(("127.0.0.1", way.port), timeout=10) as asking:
                asking.sendall(b"PUT /bucket/key HTTP/1.1\r\nContent-Length: 200000\r\n\r\n" + b"x" * 1000)
                taken, _ = bucket.accept()
                # The kernel resets the connections of a process that dies with something unread.
                taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                taken.close()
                assert asking.recv(1) == b""
        finally:
            way.close()


def test_a_plan_for_a_site_hits_each_service_by_the_kinds_that_are_meant_for_it() -> None:
    kinds, agents = list(KINDS_OF_A_SITE), ["box-0", "box-1"]
    planned = plan(Random(3), 1000, kinds, agents, services=SERVICES, known=KINDS_OF_A_SITE)
    assert {each.kind for each in planned} == {*kinds}
    for each in planned:
        whom = KINDS_OF_A_SITE[each.kind].whom
        wanted = {*SERVICES.get(whom, agents), *(SERVICES[Whom.SERVER] if whom is Whom.ANYBODY else ())}
        assert each.target in wanted
    assert {each.target for each in planned} == {
        *agents,
        *(name for names in SERVICES.values() for name in names),
    }
    assert not SITE_KINDS.keys() & KINDS.keys()


WRITING = """
import os, sys, time
with open(sys.argv[1], "wb", buffering=0) as file:
    print("begun", flush=True)
    while True:
        file.write(b"x" * 4096)
        os.fsync(file.fileno())
        time.sleep(0.01)
"""


class LabOfOneDisk(SiteLaboratory):
    """One program that writes to a disk, in place of a site."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        command = [sys.executable, "-c", WRITING, str(disk.folder / "file")]
        meddling = Meddling(None, folder / "control", disk.folder)
        self.writer = Program("server-1", lambda: command, folder / "log", meddling)
        self.services, self.servers, self.boxes = {"server-1": self.writer}, ["server-1"], {}
        self.disks = {"server-1": disk}

    def wait_until_well(self, target: str) -> None:
        begun = waited(lambda: "begun" in self.writer.said(self.writer.started_at_byte), 30)
        assert self.writer.pid and begun


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[LabOfOneDisk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    disk = failing_disk(folder, 16)
    if not isinstance(disk, FailingDevice):
        pytest.skip("no device that fails can be made here")
    made = LabOfOneDisk(tmp_path, disk)
    made.writer.start()
    made.wait_until_well("server-1")
    yield made
    made.writer.end()
    disk.close()


def test_a_failing_device_counts_once_the_program_has_noticed_and_is_mended(lab: LabOfOneDisk) -> None:
    fault = DeviceErrors(lab, "server-1", Random(1))
    fault.inject()
    fault.heal()
    assert re.fullmatch(
        r"loop device over a failing file: [1-9]\d* writes and \d+ reads failed; said '[^']*'", fault.effect()
    )
    lab.wait_until_well("server-1")
    assert (lab.disks["server-1"].folder / "file").stat().st_size > 0


def test_a_device_that_fails_unnoticed_does_not_count(lab: LabOfOneDisk) -> None:
    lab.writer.end()
    fault = DeviceErrors(lab, "server-1", Random(1))
    fault.noticed_seconds = 0.1  # type: ignore[misc]
    with (lab.disks["server-1"].folder / "of-somebody-else").open("wb", buffering=0) as file:
        fault.inject()
        file.write(b"x")
        with pytest.raises(OSError):
            os.fsync(file.fileno())
    fault.heal()
    assert not fault.effect()


def test_ports_that_are_asked_for_together_differ() -> None:
    assert len(set(free_ports(20))) == 20
