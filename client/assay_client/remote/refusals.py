"""From a call that failed to the typed error that its caller gets."""

from __future__ import annotations

import grpc

from assay_core.records.error_metadata import ErrorMetadata
from assay_sampling.errors import (
    AssayError,
    CampaignError,
    RefusedError,
    ServerUnreachableError,
    StorageError,
)

CALL_SECONDS = 60.0
"""How long a server may take for one answer."""


def unreachable(address: str, cause: str) -> ServerUnreachableError:
    """The error for a server that does not answer, with its remedy."""
    return ServerUnreachableError(
        address, cause, "start one with: assay-server --state DIR, or name another with --server"
    )


def typed_error(error: grpc.RpcError, address: str) -> AssayError:
    """The typed error behind a failed call: the one the server raised, else one for the gRPC status."""
    metadata = ErrorMetadata.beside(error)
    return metadata.error() if metadata is not None else _from_status(error, address)


_KINDS: dict[grpc.StatusCode, tuple[type[AssayError], str, str]] = {
    grpc.StatusCode.UNIMPLEMENTED: (
        RefusedError,
        "the server there does not know this request",
        "use client and server of the same release of Assay",
    ),
    grpc.StatusCode.NOT_FOUND: (CampaignError, "the server knows no such thing", "see: assay lab status"),
    grpc.StatusCode.INVALID_ARGUMENT: (CampaignError, "the server cannot read the request", ""),
    grpc.StatusCode.FAILED_PRECONDITION: (RefusedError, "the server refused", ""),
    grpc.StatusCode.PERMISSION_DENIED: (RefusedError, "the server refused", ""),
    grpc.StatusCode.RESOURCE_EXHAUSTED: (StorageError, "the server could not store or send it", ""),
    grpc.StatusCode.DATA_LOSS: (StorageError, "the server's data are damaged", ""),
}


def _from_status(error: grpc.RpcError, address: str) -> AssayError:
    code = error.code() if hasattr(error, "code") else None
    details = str(error.details() or "") if hasattr(error, "details") else ""
    if code is grpc.StatusCode.UNAVAILABLE:
        return unreachable(address, "the server went away")
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return unreachable(address, f"the server did not finish its answer within {CALL_SECONDS:g} s")
    if code is grpc.StatusCode.CANCELLED:
        cause = "the server has more calls than it can begin"
        return StorageError(address, cause, "try again later")
    if code in _KINDS:
        kind, cause, remedy = _KINDS[code]
        return kind(address, details or cause, remedy)
    name = code.name if code is not None else "no status"
    return AssayError(
        address,
        f"the server failed ({name}{': ' + details if details else ''})",
        "see the log of the server; if it persists, report it to the authors of Assay",
    )
