"""Who may read metrics: this machine, or holders of certificates of one authority over TLS.

Metrics name no kernel, campaign, run or secret, so on loopback any user of the machine may read them. Off
loopback a reader needs a certificate: what a lab measures, and when, is not for everybody on its network.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from assay_core.server_address import ServerAddress, parse_address
from assay_core.settings.declaration import Setting
from assay_sampling.errors import ParameterError

MetricsSetting = Annotated[
    str,
    Setting(
        "HOST:PORT or unix:PATH for Prometheus; off loopback only with the three files below.",
        default="off",
        metavar="ADDRESS",
        at_runtime=True,
    ),
]
MetricsCertificateSetting = Annotated[
    Path | None,
    Setting("Certificate (PEM) under which metrics are served over TLS.", metavar="FILE", at_runtime=True),
]
MetricsKeySetting = Annotated[
    Path | None, Setting("Private key (PEM) of that certificate.", metavar="FILE", at_runtime=True)
]
MetricsReadersSetting = Annotated[
    Path | None,
    Setting(
        "Authority (PEM) whose client certificates may read metrics over TLS.",
        metavar="FILE",
        at_runtime=True,
    ),
]


@dataclass(frozen=True)
class TlsFiles:
    """Certificate and key of the endpoint, and the authority of its readers; read at each connection.

    So a renewed certificate needs no restart.
    """

    certificate: Path
    key: Path
    readers: Path

    def context(self) -> ssl.SSLContext:
        """TLS that refuses readers without a certificate; raises OSError (ssl.SSLError) for bad files."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(self.certificate, self.key)
        context.load_verify_locations(self.readers)
        return context


@dataclass(frozen=True)
class MetricsPlace:
    """Where metrics are read, and over which TLS; ``tls`` None: in the clear, on this machine only."""

    address: ServerAddress
    tls: TlsFiles | None = None


def metrics_place(
    address: str, certificate: Path | None, key: Path | None, readers: Path | None
) -> MetricsPlace | None:
    """The place that the settings name; None: metrics are off. Touches no disk.

    Raises ParameterError for what is not an address, for some but not all files of TLS, and for an address
    that other machines reach without TLS.
    """
    files = [each for each in (certificate, key, readers) if each is not None]
    if not address:
        return None
    subject = f"metrics address {address!r}"
    listen_address = parse_address(address, subject, any_port=True)
    if certificate is not None and key is not None and readers is not None:
        if listen_address.socket is not None:
            raise ParameterError(
                subject, "a socket needs no TLS: only its owner opens it", "leave the three files out"
            )
        return MetricsPlace(listen_address, TlsFiles(certificate, key, readers))
    remedy = "give all of --metrics-certificate, --metrics-key and --metrics-readers"
    if files:
        raise ParameterError(subject, "only some of the files for TLS are given", remedy)
    if not listen_address.on_this_machine:
        raise ParameterError(
            subject,
            "other machines reach it, and readers must show a certificate there",
            f"{remedy}, or use 127.0.0.1",
        )
    return MetricsPlace(listen_address)
