import http.server
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest

from tests.chaos.faults.kinds import KINDS
from tests.chaos.faults.seam import Whom
from tests.chaos.needs import Need
from tests.chaos.schedule import plan
from tests.chaos.site.faults import KINDS_OF_A_SITE, SITE_KINDS
from tests.chaos.site.gate import Gate, Mood
from tests.chaos.site.laboratory import SERVICES
from tests.chaos.site.services import free_ports


class Answering(http.server.BaseHTTPRequestHandler):
    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()

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


def test_a_plan_for_a_site_hits_each_service_by_the_kinds_that_are_meant_for_it() -> None:
    kinds, agents = list(KINDS_OF_A_SITE), ["box-0", "box-1"]
    planned = plan(Random(3), 300, kinds, agents, services=SERVICES, known=KINDS_OF_A_SITE)
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


def test_a_disk_of_the_database_fails_by_a_device_or_by_the_library_and_by_one_of_them_alone() -> None:
    device, library = (KINDS_OF_A_SITE[name] for name in ("database_device_errors", "database_fsync_errors"))
    assert device.needs == {Need.FAILING_DEVICES} and library.needs == {Need.DATABASE_CALLS}


def test_ports_that_are_asked_for_together_differ() -> None:
    assert len(set(free_ports(20))) == 20
