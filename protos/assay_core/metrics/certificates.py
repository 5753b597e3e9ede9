"""When a daemon's certificates end, for alerts: a renewal that fails must be seen before it matters."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from cryptography import x509
from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from assay_sampling.errors import AssayError

_log = logging.getLogger(__name__)

CertificateSource = Callable[[], "x509.Certificate | None"]


class CertificatesCollector(Collector):
    """Looks at each certificate when metrics are read; the program names them: ``authority``, ``metrics``."""

    def __init__(
        self, sources: Mapping[str, CertificateSource], now: Callable[[], float] = time.time
    ) -> None:
        self._sources, self._now = sources, now

    def collect(self) -> Iterable[Metric]:
        expires = GaugeMetricFamily(
            "assay_certificate_expires_seconds", "When it expires, Unix time.", labels=["certificate"]
        )
        left = GaugeMetricFamily(
            "assay_certificate_left_ratio",
            "What is left of its lifetime, from 1 to 0.",
            labels=["certificate"],
        )
        for name, source in self._sources.items():
            certificate = _read(name, source)
            if certificate is None:
                continue
            end = certificate.not_valid_after_utc.timestamp()
            lifetime = end - certificate.not_valid_before_utc.timestamp()
            expires.add_metric([name], end)
            left.add_metric([name], min(max((end - self._now()) / max(lifetime, 1.0), 0.0), 1.0))
        return [expires, left]


def certificate_of_file(path: Path | None) -> x509.Certificate | None:
    """The first certificate of a PEM file; None if none is named. Raises OSError, ValueError."""
    return None if path is None else x509.load_pem_x509_certificate(path.read_bytes())


def _read(name: str, source: CertificateSource) -> x509.Certificate | None:
    try:
        return source()
    except (OSError, ValueError, AssayError) as error:
        _log.warning("the %s certificate cannot be read: %s", name, error)
        return None
