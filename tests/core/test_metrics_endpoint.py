"""The endpoint of metrics: whom it answers, what it refuses, and that no reader can hold it up."""

from __future__ import annotations

import contextlib
import socket
import ssl
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge

from assay_core.identity.certificates import certificate_pem
from assay_core.identity.keys import key_pem, new_key
from assay_core.metrics.certificates import CertificatesCollector, certificate_of_file
from assay_core.metrics.endpoint import MetricsEndpoint
from assay_core.metrics.reading import MetricsPlace, metrics_place
from assay_sampling.errors import ParameterError
from assay_server.identity.authority import Authority
from tests.support.agent.fake_server import wait_for
from tests.support.identity.authorities import DAY, made_authority, made_credentials, now
from tests.support.metrics import fetched, value


@pytest.fixture
def endpoint() -> Iterator[MetricsEndpoint]:
    registry = CollectorRegistry()
    Gauge("answer", "Of everything.", registry=registry).set(42)
    made = MetricsEndpoint(registry)
    yield made
    made.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="assay-") as made:
        yield Path(made)


def place(address: str) -> MetricsPlace | None:
    return metrics_place(address, None, None, None)


def test_a_socket_of_the_owner_and_a_port_on_loopback_answer_alike(
    endpoint: MetricsEndpoint, folder: Path
) -> None:
    endpoint.serve(place(f"unix:{folder}/metrics.sock"))
    assert endpoint.address == f"unix:{folder}/metrics.sock"
    assert stat.S_IMODE((folder / "metrics.sock").stat().st_mode) == 0o600
    status, text = fetched(endpoint.address)
    assert status == 200
    assert "answer 42.0" in text
    assert fetched(endpoint.address, "/")[0] == 404
    endpoint.serve(place("127.0.0.1:0"))
    assert not (folder / "metrics.sock").exists(), "it is served at one place only"
    assert fetched(endpoint.address) == (200, text)
    endpoint.serve(None)
    assert endpoint.address == ""


def test_a_killed_programs_socket_is_taken_over_and_a_living_ones_is_not(
    endpoint: MetricsEndpoint, folder: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(f"{folder}/metrics.sock")
    endpoint.serve(place(f"unix:{folder}/metrics.sock"))
    other = MetricsEndpoint(CollectorRegistry())
    with pytest.raises(ParameterError, match="another program does"):
        other.serve(place(endpoint.address))
    assert fetched(endpoint.address)[0] == 200


def test_if_the_new_place_is_taken_the_earlier_one_stays(endpoint: MetricsEndpoint) -> None:
    endpoint.serve(place("127.0.0.1:0"))
    before = endpoint.address
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(ParameterError, match="another program does"):
            endpoint.serve(place(f"127.0.0.1:{taken.getsockname()[1]}"))
        assert endpoint.address == before
    assert fetched(before)[0] == 200


@pytest.mark.parametrize(
    ("address", "files", "why"),
    [
        ("0.0.0.0:9400", (), "readers must show a certificate"),
        ("[::]:9400", (), "readers must show a certificate"),
        ("lab:9400", (), "readers must show a certificate"),
        ("lab:9400", ("c", "k"), "only some of the files"),
        ("127.0.0.1:9400", ("c",), "only some of the files"),
        ("unix:/run/m.sock", ("c", "k", "r"), "a socket needs no TLS"),
        ("9400", (), "is not an address"),
    ],
)
def test_no_place_is_open_to_others_without_certificates(
    address: str, files: tuple[str, ...], why: str
) -> None:
    paths = [Path(name) for name in files]
    with pytest.raises(ParameterError, match=why):
        metrics_place(address, *paths, *[None] * (3 - len(paths)))


def write_server_files(authority: Authority, folder: Path) -> MetricsPlace:
    key = new_key()
    certificate = authority.issue_for_server(key.public_key(), DAY, now())
    (folder / "cert.pem").write_bytes(certificate_pem(certificate))
    (folder / "key.pem").write_bytes(key_pem(key))
    (folder / "readers.pem").write_bytes(certificate_pem(authority.certificate))
    made = metrics_place("127.0.0.1:0", folder / "cert.pem", folder / "key.pem", folder / "readers.pem")
    assert made is not None
    return made


def reader(trusted: Authority, shown: Authority | None, folder: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=certificate_pem(trusted.certificate).decode())
    context.check_hostname = False  # its name is assay-server, whatever its address
    if shown is not None:
        credentials = made_credentials(shown)
        (folder / "reader.pem").write_bytes(credentials.certificate)
        (folder / "reader.key").write_bytes(credentials.key_pem)
        context.load_cert_chain(folder / "reader.pem", folder / "reader.key")
    return context


def test_over_tls_only_readers_with_the_authoritys_certificate_are_answered(
    endpoint: MetricsEndpoint, folder: Path
) -> None:
    lab, stranger = made_authority(), made_authority("Stranger")
    endpoint.serve(write_server_files(lab, folder))
    assert fetched(endpoint.address, tls=reader(lab, lab, folder))[0] == 200
    for shown in (None, stranger):
        with pytest.raises(OSError):
            fetched(endpoint.address, tls=reader(lab, shown, folder))
    with pytest.raises(OSError):
        fetched(endpoint.address)  # without TLS
    assert fetched(endpoint.address, tls=reader(lab, lab, folder))[0] == 200


def test_a_renewed_certificate_needs_no_restart_and_a_bad_file_refuses_at_the_start(
    endpoint: MetricsEndpoint, folder: Path
) -> None:
    first, second = made_authority(), made_authority("Renewed")
    where = write_server_files(first, folder)
    endpoint.serve(where)
    write_server_files(second, folder)
    assert fetched(endpoint.address, tls=reader(second, second, folder))[0] == 200
    (folder / "key.pem").write_text("not a key")
    with pytest.raises(ParameterError, match="files for TLS cannot be used"):
        MetricsEndpoint(CollectorRegistry()).serve(where)


def test_readers_who_send_nothing_are_few_and_give_way_to_others() -> None:
    endpoint = MetricsEndpoint(CollectorRegistry(), patience_seconds=600.0)  # it outlasts this test
    endpoint.serve(place("127.0.0.1:0"))
    others = set(threading.enumerate())

    def readers() -> int:
        """How many have a thread of the endpoint, which ends when their place is free."""
        return len(set(threading.enumerate()) - others)

    with contextlib.closing(endpoint):
        with contextlib.ExitStack() as connections:
            silent = [connections.enter_context(connected(endpoint)) for _ in range(8)]
            wait_for(lambda: readers() == 8)
            for oldest in silent:
                assert fetched(endpoint.address)[0] == 200
                assert oldest.recv(1) == b""
                wait_for(lambda: readers() <= 7)
                silent.append(connections.enter_context(connected(endpoint)))
                wait_for(lambda: readers() == 8)
                if len(silent) == 24:
                    break
        wait_for(lambda: readers() == 0)
        assert fetched(endpoint.address)[0] == 200


def test_a_reader_who_sends_a_byte_now_and_then_is_hung_up_on() -> None:
    with contextlib.closing(MetricsEndpoint(CollectorRegistry(), patience_seconds=0.5)) as endpoint:
        endpoint.serve(place("127.0.0.1:0"))
        with connected(endpoint) as slow:
            slow.settimeout(0.05)
            began = time.monotonic()
            while time.monotonic() - began < 30:
                try:
                    slow.send(b"G")
                    if slow.recv(1) == b"":
                        break
                except TimeoutError:
                    continue
                except OSError:
                    break
            else:
                pytest.fail("it may send for as long as it likes")


def connected(endpoint: MetricsEndpoint) -> socket.socket:
    host, _, port = endpoint.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=60)


def test_a_reader_who_sends_nothing_is_hung_up_on() -> None:
    with contextlib.closing(MetricsEndpoint(CollectorRegistry(), patience_seconds=0.05)) as endpoint:
        endpoint.serve(place("127.0.0.1:0"))
        with connected(endpoint) as silent:
            assert silent.recv(1) == b""


def test_over_tls_a_reader_who_sends_nothing_is_hung_up_on_too(folder: Path) -> None:
    lab = made_authority()
    where, own = write_server_files(lab, folder), reader(lab, lab, folder)
    for patience_seconds in (0.1, 1.0, 10.0):  # a busy machine needs longer for the handshake
        with contextlib.closing(MetricsEndpoint(CollectorRegistry(), patience_seconds)) as endpoint:
            endpoint.serve(where)
            with connected(endpoint) as before_handshake:
                assert before_handshake.recv(1) == b""
            with connected(endpoint) as plain:
                try:
                    silent = own.wrap_socket(plain)
                except OSError:
                    continue
                with silent, contextlib.suppress(ssl.SSLEOFError):
                    assert silent.recv(1) == b""
                return
    pytest.fail("no handshake succeeded")


def test_what_is_left_of_a_certificate_is_told_and_one_that_cannot_be_read_is_left_out(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    where = write_server_files(made_authority(), folder)
    assert where.tls is not None
    certificate = certificate_of_file(where.tls.certificate)
    assert certificate is not None
    begin, end = (
        moment.timestamp() for moment in (certificate.not_valid_before_utc, certificate.not_valid_after_utc)
    )
    moments = [begin, (begin + end) / 2, end + 1]
    (folder / "bad.pem").write_text("not a certificate")
    registry = CollectorRegistry()
    sources = {
        "metrics": lambda: certificate,
        "bad": lambda: certificate_of_file(folder / "bad.pem"),
        "none": lambda: certificate_of_file(None),
    }
    registry.register(CertificatesCollector(sources, lambda: moments[0]))
    for left in (1, 0.5, 0):
        found = value(registry, "assay_certificate_left_ratio", certificate="metrics")
        assert found == pytest.approx(left)
        moments.append(moments.pop(0))
    assert value(registry, "assay_certificate_expires_seconds", certificate="metrics") == end
    for name in ("bad", "none"):
        labels = {"certificate": name}
        assert registry.get_sample_value("assay_certificate_left_ratio", labels) is None
    assert "the bad certificate cannot be read" in caplog.text
