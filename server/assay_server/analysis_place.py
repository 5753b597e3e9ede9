"""Where campaigns are analysed: in processes of the server, or by workers of a Dask scheduler.

Source: docs/security.md, "Workers of analyses".
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from assay_core.server_address import ServerAddress, parse_address
from assay_sampling.errors import ParameterError

_PLAIN, _TLS = "dask://", "dask+tls://"


@dataclass(frozen=True)
class AnalysisPlace:
    """A Dask scheduler.

    Args:
        scheduler: its host and port.
        ca, certificate, key: PEM files for mutual TLS; None: it speaks plain TCP.
    """

    scheduler: ServerAddress
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    @property
    def tls(self) -> bool:
        """Whether both sides prove who they are."""
        return self.ca is not None

    @property
    def address(self) -> str:
        """The address in Dask's words."""
        return f"{'tls' if self.tls else 'tcp'}://{self.scheduler.text}"

    def __str__(self) -> str:
        return f"{_TLS if self.tls else _PLAIN}{self.scheduler.text}"


def analysis_place(
    text: str, ca: Path | None, certificate: Path | None, key: Path | None
) -> AnalysisPlace | None:
    """The place that the settings name; None: processes of the server. Raises ParameterError."""
    subject = f"--analysis {text!r}"
    files = (ca, certificate, key)
    if not text:
        if any(files):
            raise ParameterError(
                "--analysis-ca", "there is no scheduler to use it for", "give --analysis dask+tls://HOST:PORT"
            )
        return None
    scheme = next((each for each in (_PLAIN, _TLS) if text.startswith(each)), None)
    if scheme is None:
        raise ParameterError(
            subject, "it does not name a Dask scheduler", "give dask://HOST:PORT, or dask+tls://HOST:PORT"
        )
    if scheme == _TLS and not all(files):
        raise ParameterError(
            subject,
            "TLS with Dask needs three files",
            "give --analysis-ca, --analysis-certificate and --analysis-key",
        )
    if scheme == _PLAIN and any(files):
        raise ParameterError(
            subject, "files for TLS are given, and this scheduler speaks none", f"give {_TLS}HOST:PORT"
        )
    address = parse_address(text.removeprefix(scheme), subject)
    if address.socket is not None:
        raise ParameterError(subject, "Dask opens no Unix socket", "give dask://HOST:PORT")
    return AnalysisPlace(address, ca, certificate, key)
