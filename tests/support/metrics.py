"""Reading metrics as Prometheus does."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample


class _SocketConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def fetched(address: str, path: str = "/metrics", tls: ssl.SSLContext | None = None) -> tuple[int, str]:
    """Status and text of what an endpoint answers; raises OSError (ssl.SSLError) if it refuses."""
    if address.startswith("unix:"):
        connection: http.client.HTTPConnection = _SocketConnection(address.removeprefix("unix:"))
    elif tls is not None:
        connection = http.client.HTTPSConnection(address, timeout=60, context=tls)
    else:
        connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def samples_of(text: str) -> list[Sample]:
    """The samples of a text that an endpoint gave."""
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def value(registry: CollectorRegistry, name: str, **labels: str) -> float:
    """The value of one sample; fails if there is none."""
    found = registry.get_sample_value(name, labels)
    assert found is not None, (name, labels)
    return found


def label_values(samples: Iterable[Sample]) -> dict[str, set[str]]:
    """All values of each label."""
    found: dict[str, set[str]] = {}
    for sample in samples:
        for label, text in sample.labels.items():
            found.setdefault(label, set()).add(text)
    return found
