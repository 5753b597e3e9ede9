"""Asking a server's health service (grpc.health.v1) whether it does its work.

The message is one enum field, so a client needs no package for it.
"""

from __future__ import annotations

from typing import Any

import grpc

CHECK = "/grpc.health.v1.Health/Check"
_WHOLE_SERVER = b""  # HealthCheckRequest without a service
_SERVING = b"\x08\x01"  # HealthCheckResponse: field 1, status, is SERVING


def is_serving(channel: grpc.Channel, seconds: float, *, wait_for_ready: bool = False) -> bool:
    """Whether the server says SERVING; raises grpc.RpcError if it does not answer."""
    check: Any = channel.unary_unary(CHECK, request_serializer=bytes, response_deserializer=bytes)
    answer: bytes = check(_WHOLE_SERVER, timeout=seconds, wait_for_ready=wait_for_ready)
    return answer == _SERVING
