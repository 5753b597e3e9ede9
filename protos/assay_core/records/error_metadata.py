"""The typed error that is sent with the status of a failed call: one record, one encoder, one decoder."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from assay_sampling import errors
from assay_sampling.errors import AssayError, MisalignedError

METADATA_KEY = "assay-error-bin"
# gRPC takes 8 KiB of metadata by default: the document is in base64, and the status has details of its own.
MOST_BYTES = 4000
MOST_DIFFERENCES = 20


@dataclass(frozen=True)
class ErrorMetadata:
    """The part of an error that is sent: its kind, a name of :mod:`assay_sampling.errors`, and its texts.

    ``differences`` are those of a :class:`assay_sampling.errors.MisalignedError`, at most MOST_DIFFERENCES.
    """

    kind: str
    subject: str
    cause: str
    remedy: str = ""
    differences: tuple[str, ...] = ()

    @classmethod
    def of(cls, error: AssayError) -> ErrorMetadata:
        """The kind is the nearest of the error's classes that every program knows."""
        kind = next(each for each in type(error).__mro__ if getattr(errors, each.__name__, None) is each)
        differences = error.differences[:MOST_DIFFERENCES] if isinstance(error, MisalignedError) else ()
        return cls(kind.__name__, str(error.subject), error.cause, error.remedy, differences)

    def encode(self) -> bytes:
        """JSON of at most MOST_BYTES; texts that are too long are cut."""
        most = MOST_BYTES
        while True:
            cut = replace(
                self,
                subject=cut_text(self.subject, most),
                cause=cut_text(self.cause, most),
                remedy=cut_text(self.remedy, most),
                differences=tuple(cut_text(each, most) for each in self.differences[:MOST_DIFFERENCES]),
            )
            document = {
                "type": cut.kind, "subject": cut.subject, "cause": cut.cause, "remedy": cut.remedy,
                **({"differences": cut.differences} if cut.differences else {}),
            }  # fmt: skip
            data = json.dumps(document, ensure_ascii=False).encode(errors="replace")
            if len(data) <= MOST_BYTES:
                return data
            most = most * 3 // 4

    @classmethod
    def decode(cls, data: bytes | str) -> ErrorMetadata | None:
        """None for what :meth:`encode` did not write."""
        try:
            document = json.loads(data)
        except (ValueError, RecursionError):
            return None
        if not isinstance(document, dict):
            return None
        kind, subject, cause, remedy = (
            str(document.get(name, "")) for name in ("type", "subject", "cause", "remedy")
        )
        listed = document.get("differences")
        differences = listed[:MOST_DIFFERENCES] if isinstance(listed, list) else []
        return cls(kind, subject, cause, remedy, tuple(map(str, differences)))

    @classmethod
    def beside(cls, error: Any) -> ErrorMetadata | None:
        """The error that a server sent with the status of a failed gRPC call; None if it sent none."""
        read = getattr(error, "trailing_metadata", None)
        metadata: Iterable[tuple[str, Any]] = (read() if read is not None else None) or ()
        return next((cls.decode(value) for key, value in metadata if key == METADATA_KEY), None)

    def error(self) -> AssayError:
        """The error as it was raised; a kind that only another release knows becomes a plain AssayError."""
        kind = getattr(errors, self.kind, AssayError)
        if not (isinstance(kind, type) and issubclass(kind, AssayError)):
            kind = AssayError
        # Some errors have their own constructors; only the fields of the base class crossed the wire.
        rebuilt = kind.__new__(kind)
        if isinstance(rebuilt, MisalignedError):
            rebuilt.differences = self.differences
        AssayError.__init__(rebuilt, self.subject or "server", self.cause, self.remedy)
        return rebuilt


def cut_text(text: str, most_bytes: int) -> str:
    """``text``, cut to at most ``most_bytes`` of UTF-8."""
    data = text.encode(errors="replace")
    if len(data) <= most_bytes:
        return text
    return f"{data[: most_bytes - 3].decode(errors='ignore')}..."
