"""Requests of people that are carried out piece by piece, in SQL."""

from __future__ import annotations

import dataclasses

import sqlalchemy as sa

from assay_server.store import tables
from assay_server.store.model import PendingRequest
from assay_server.store.parts.known import KnownRows
from assay_server.store.rows import selected_runs


class RequestRows(KnownRows):
    """Requests of people that are carried out piece by piece, in SQL."""

    def pending_requests(self, campaign_id: str | None = None) -> list[PendingRequest]:
        """Requests that are not yet carried out, of all campaigns or one, oldest first."""
        q = tables.requests.c
        query = sa.select(tables.requests).order_by(q.request_id)
        if campaign_id is not None:
            query = query.where(q.campaign_id == campaign_id)
        return [selected_runs.request_of(row) for row in self.rows(query)]

    def add_request(self, request: PendingRequest) -> PendingRequest:
        """Add a request; returns it with its number."""
        last = self.connection.scalar(sa.select(sa.func.max(tables.requests.c.request_id)))
        numbered = dataclasses.replace(request, request_id=1 if last is None else int(last) + 1)
        self.write(sa.insert(tables.requests), [selected_runs.request_values(numbered)])
        return numbered

    def save_request(self, request: PendingRequest) -> None:
        self.replace(tables.requests, selected_runs.request_values(request), (request.request_id,))

    def end_request(self, request_id: int) -> None:
        """Forget a request that was carried out."""
        self.write(sa.delete(tables.requests).where(tables.requests.c.request_id == request_id))
