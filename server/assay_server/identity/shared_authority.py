"""One certificate authority for a server and its standby: members of one are known to the other."""

from __future__ import annotations

from assay_sampling.errors import StorageError
from assay_server.identity.authority import Authority
from assay_server.store.sql import MetadataStore

_MARK_DIGITS = 15  # of the fingerprint: what a number of the database holds


def require_same_authority(store: MetadataStore, authority: Authority | None) -> None:
    """Raise StorageError unless a server has the authority of the others; the first one decides which."""
    own = None if authority is None else int(authority.fingerprint.replace(":", "")[:_MARK_DIGITS], 16)
    with store.transaction() as write:
        known = write.authority_mark()
        if known is None and own is not None:
            write.keep_authority_mark(own)
    if known is None or known == own:
        return
    cause = "it has no certificate authority" if own is None else "its certificate authority is another one"
    raise StorageError(
        "this server",
        f"{cause}, and whoever enrolled trusts that of the other server",
        "copy the folder 'authority' from the state folder of the other server, with its modes (cp -a)",
    )
