"""Where the live page is served: its address, the names under which browsers may ask for it, and its TLS.

Source: docs/security.md, "The live page".
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from assay_core.server_address import ServerAddress, parse_address
from assay_sampling.errors import ParameterError

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,62}\.?)*")
_LONGEST_NAME = 253


@dataclass(frozen=True)
class WebPlace:
    """Where the page is served.

    Args:
        address: the address that it listens on.
        names: hosts under which browsers reach it, the one of links first; other Host headers are refused.
        tls: whether it speaks TLS: always off loopback.
        certificate, key: PEM files for TLS; None: the lab's authority certifies ``names``.
    """

    address: ServerAddress
    names: tuple[str, ...]
    tls: bool
    certificate: Path | None = None
    key: Path | None = None


def web_place(
    address: str, names: Sequence[str], certificate: Path | None, key: Path | None
) -> WebPlace | None:
    """The place that the settings name; None: the page is off. Touches no disk.

    Raises ParameterError for what is not an address over TCP, one of two files, and names that cannot be.
    """
    if not address:
        return None
    subject = f"web address {address!r}"
    web_address = parse_address(address, subject, any_port=True)
    if web_address.socket is not None:
        raise ParameterError(
            subject, "browsers open no Unix socket", "give HOST:PORT, such as localhost:7180"
        )
    if (certificate is None) != (key is None):
        raise ParameterError(
            subject, "only one of the two files for TLS is given", "give --web-certificate and --web-key"
        )
    for name in names:
        _require_name(name)
    known = list(names)
    if not _is_wildcard(web_address.host):
        known.append(web_address.host)
    if web_address.on_this_machine:
        known += _LOOPBACK_NAMES
    if not known:
        raise ParameterError(
            subject,
            "it does not say under which name browsers reach it, and others must be refused",
            "say it: --web-name HOST",
        )
    tls = certificate is not None or not web_address.on_this_machine
    return WebPlace(web_address, tuple(dict.fromkeys(name.lower() for name in known)), tls, certificate, key)


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _require_name(name: str) -> None:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        if len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
            raise ParameterError(
                "--web-name",
                f"{name[:80]!r} is not the name of a host",
                "give a name without scheme and port",
            ) from None
