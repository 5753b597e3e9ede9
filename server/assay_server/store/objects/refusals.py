"""What an object store refuses or breaks off, as typed errors with a remedy; never with its keys."""

from __future__ import annotations

import re

from assay_sampling.errors import StorageError


class MissingObjectError(StorageError):
    """There is no object of that name."""


class BrokenOffError(StorageError):
    """The connection ended within an answer, or none came: whether the request was done is not known."""


# Of an error's text: the address that was asked for, which holds names, and the client's own settings.
_NOT_TELLING = re.compile(r"uri: Some\(\s*\S+\s*\)|\w*_timeout: \S+|<(Resource|Key|BucketName)>[^<]*")
_TELL_ADMIN = "nothing already stored is lost, and agents keep what they measure until it answers"
_NO_ANSWER = "the object store does not answer"
_SEE_THAT_IT_RUNS = f"see that it runs and that --records-endpoint names it; {_TELL_ADMIN}"
# After it obstore does not send a PUT that makes an object again, because the first may have made it.
_SILENT = re.compile("kind: Timeout")
_BROKEN_OFF = re.compile(
    r"kind: Interrupted|UnexpectedEof|Incomplete(Body|Message)|BrokenPipe|ConnectionReset"
)
# What a part of an error's text says, most telling first. Source: Amazon S3 API Reference, "Error responses".
_MEANINGS: tuple[tuple[str, str, str], ...] = (
    (
        r"RequestTimeTooSkewed|RequestExpired",
        "this machine's clock and the object store's differ too much",
        "set both clocks, with NTP",
    ),
    (r"NoSuchBucket", "there is no such bucket", "correct its name in --records, or make the bucket"),
    (
        r"InvalidAccessKeyId|SignatureDoesNotMatch|InvalidToken|ExpiredToken|Unauthenticated",
        "the object store does not accept these credentials",
        "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the file of --records-credentials",
    ),
    (
        r"AccessDenied|PermissionDenied|403 Forbidden|AllAccessDisabled",
        "the object store denies access",
        "let these credentials read, write, list and remove objects below the prefix",
    ),
    (
        r"[Cc]ertificate|UnknownIssuer|TlsError|tls handshake|InvalidContentType",
        "TLS with the object store failed: its certificate is not trusted, or it speaks no TLS",
        "check --records-endpoint, and name its authority's certificate with the variable SSL_CERT_FILE",
    ),
    (
        r"InsufficientStorage|XMinioStorageFull|507 |QuotaExceeded",
        "the object store is full",
        "free space in it",
    ),
    (
        r"SlowDown|ServiceUnavailable|503 Service|server error|50[0-9] ",
        "the object store cannot serve now (5xx)",
        f"see its logs; {_TELL_ADMIN}",
    ),
    (
        r"[Cc]onnection|connect error|error sending request|timed? ?out|dns error|[Tt]imeout",
        _NO_ANSWER,
        _SEE_THAT_IT_RUNS,
    ),
    (
        r"169\.254|credential",
        "there are no credentials for the object store",
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give --records-credentials FILE",
    ),
)


def bucket_error(shown: str, name: str, error: BaseException) -> StorageError:
    """The typed error behind one of obstore's, whose text may be long and name keys."""
    text = _NOT_TELLING.sub("", str(error))
    subject = f"{shown}: {name}" if name else shown
    if isinstance(error, FileNotFoundError) and "NoSuchBucket" not in text:
        return MissingObjectError(subject, "there is no such object", "see what assay-server check finds")
    if _BROKEN_OFF.search(text):
        return BrokenOffError(
            subject, "its answer broke off", f"see the network and the object store's logs; {_TELL_ADMIN}"
        )
    if _SILENT.search(text):
        return BrokenOffError(subject, _NO_ANSWER, _SEE_THAT_IT_RUNS)
    for pattern, cause, remedy in _MEANINGS:
        if re.search(pattern, text):
            return StorageError(subject, cause, remedy)
    code_match = re.search(r"<Code>(\w+)</Code>", text)
    why = code_match[1] if code_match else type(error).__name__
    return StorageError(subject, f"the object store refused ({why})", f"see its logs; {_TELL_ADMIN}")
