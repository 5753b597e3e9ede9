"""The certificate that a peer presented, after TLS has verified that our authority issued it."""

from __future__ import annotations

from functools import lru_cache

from assay_core.identity.certificates import CertifiedIdentity, certified_identity, read_certificate
from assay_sampling.errors import NotIdentifiedError, ParameterError


@lru_cache(maxsize=4096)
def presented_certificate(pem: bytes) -> CertifiedIdentity:
    """Whose a verified certificate is; raises NotIdentifiedError if it names nobody."""
    try:
        return certified_identity(read_certificate(pem, "certificate"))
    except ParameterError as error:
        remedy = "join again with a new token of this server"
        raise NotIdentifiedError(error.subject, error.cause, remedy) from error
