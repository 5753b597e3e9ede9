"""Answers requests about bundles. Plain functions; they may block."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from assay_core.records.campaign import AttemptState
from assay_core.records.upload import (
    BundleChunk,
    BundlesMissing,
    BundlesNamed,
    BundleWanted,
    StoredBundle,
)
from assay_sampling.errors import InputError, NotPermittedError, ParameterError
from assay_server.access.audit import note_subject
from assay_server.campaigns.bundles import holder
from assay_server.campaigns.scheduling.coordinator import Coordinator


class BundleHandler:
    """What is missing, what is sent, what is fetched."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._store = coordinator.bundles

    def missing(self, named: BundlesNamed) -> BundlesMissing:
        """Those that the caller must send, and what is here of them already."""
        most = self._store.limits.campaign_bundles
        if len(named.bundles) > most:
            raise ParameterError("bundles", f"a campaign names at most {most:,}", "make several campaigns")
        missing = self._store.missing(holder(), named.bundles)
        missing_bundles = [bundle for bundle in named.bundles if bundle.sha256 in missing]
        return BundlesMissing(missing, self._store.parts(holder(), missing_bundles))

    def receive(self) -> Generator[None, BundleChunk | None, StoredBundle]:
        """Takes a bundle in chunks, the first of which names it, and answers once it is durable.

        Raises InputError, StorageError.
        """
        chunk = yield
        if chunk is None:
            raise InputError("bundle", "the stream is empty", "send it again")
        if chunk.bundle is None:
            raise InputError("bundle", "the stream does not begin with its name", "send it again")
        self._coordinator.capacity.require()
        bundle, most = chunk.bundle, self._store.limits.bundle_chunk_bytes
        note_subject(f"bundle {bundle.sha256[:64]}", f"{bundle.files} files")
        with self._store.begin(holder(), bundle, chunk.offset) as incoming:
            while chunk is not None:
                if chunk.bundle is not None and chunk.bundle is not bundle:
                    raise InputError("bundle", "a stream brings one bundle", "send each by itself")
                if len(chunk.data) > most:
                    raise InputError("bundle", f"a chunk has at most {most:,} bytes", "send it again")
                incoming.feed(chunk.data)
                chunk = yield
            incoming.finish()
        return StoredBundle(bundle, self._store.stored_bytes(bundle.sha256))

    def fetch(self, request: BundleWanted) -> Iterator[BundleChunk]:
        """The bundle of a run, for whoever holds its lease. Raises NotPermittedError for all others."""
        key = request.claim.key
        with self._coordinator.snapshot() as store:
            attempt = store.attempt(key.run_id, key.slice_index, key.attempt)
            run = store.run(key.run_id)
        bundle = run.command.bundle if run is not None and run.command is not None else None
        is_holder = (
            attempt is not None and attempt.state is AttemptState.LEASED and attempt.is_held_by(request.claim)
        )
        if not is_holder or bundle is None or bundle.sha256 != request.sha256:
            raise NotPermittedError(
                f"bundle {request.sha256[:64]}",
                "only the agent that holds the lease of a run gets that run's bundle",
                "wait for a run of the campaign that names it",
            )
        return (BundleChunk(piece) for piece in self._store.pieces(bundle.sha256))
