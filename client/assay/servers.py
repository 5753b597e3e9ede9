"""A campaign server: one that runs somewhere, or one of a folder on this machine, with the same methods."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from assay import frames
from assay.campaigns import Campaign
from assay.display import page, table
from assay_client.files import AnyPath
from assay_client.remote.channel import CONNECT_SECONDS
from assay_client.remote.client import Client

if TYPE_CHECKING:
    import pandas as pd

_TEXTS = ("campaign_id", "name", "state", "owner_name", "project")
_COUNTS = ("runs_total", "runs_done", "runs_failed", "runs_running", "runs_cancelled", "runs_paused")


class Server:
    """A campaign server. Use it as a context manager, or call :meth:`close`.

    Args:
        address: ``unix:PATH``, or ``HOST:PORT`` after ``assay lab login``; None: $ASSAY_SERVER, else your own
            socket.
        connect_seconds: how long to wait for the server to answer at all.
    """

    def __init__(self, address: str | None = None, *, connect_seconds: float = CONNECT_SECONDS) -> None:
        self._resources = contextlib.ExitStack()
        self._client = self._resources.enter_context(Client(address, connect_seconds=connect_seconds))

    @classmethod
    def local(cls, state: AnyPath, *, virtual_gpus: Sequence[str] = ()) -> Server:
        """Server and agent of a state folder in this process, as in ``assay run``, until :meth:`close`.

        Args:
            state: the folder, such as ``--state`` of ``assay run``; a missing one is made.
            virtual_gpus: the virtual GPUs that it offers beside this machine's, KIND or KIND:COUNT each.

        Raises StorageError if the folder cannot be used, or another server has it; MissingExtraError without
        the extras of server and agent.
        """
        from assay_client.local import require_usable  # noqa: PLC0415 - loads server and agent
        from assay_client.local_service import LocalService  # noqa: PLC0415

        folder = Path(state)
        require_usable(folder)
        with contextlib.ExitStack() as resources:
            service = resources.enter_context(LocalService(folder, virtual_gpus))
            server = cls(service.address)
            server._resources.callback(resources.pop_all().close)
        return server

    @property
    def address(self) -> str:
        return self._client.address

    def submit(self, campaign_file: AnyPath) -> Campaign:
        """Hand a campaign file to the server, with the files of its bundles; raises CampaignError."""
        return Campaign(self._client, self._client.submit(campaign_file))

    def campaign(self, campaign_id: str) -> Campaign:
        """A campaign by its id; raises CampaignError if the server has none that you may see."""
        self._client.summary(campaign_id)
        return Campaign(self._client, campaign_id)

    def campaigns(self) -> tuple[Campaign, ...]:
        """All campaigns that you may see, in the server's order."""
        return tuple(Campaign(self._client, each["campaign_id"]) for each in self._client.campaigns())

    def to_arrow(self) -> pa.Table:
        """A row a campaign: its id, name, state, owner and counts of runs."""
        campaigns = self._client.campaigns()
        return pa.table(
            {
                **{name: pa.array([each[name] for each in campaigns], pa.string()) for name in _TEXTS},
                **{name: pa.array([each[name] for each in campaigns], pa.int64()) for name in _COUNTS},
            }
        )

    def to_pandas(self) -> pd.DataFrame:
        """As :meth:`to_arrow`."""
        return frames.to_frame(self.to_arrow())

    def close(self) -> None:
        """Close the connection; a local server and its agent end."""
        self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Server({self.address!r})"

    def _repr_html_(self) -> str:
        shown = ("campaign_id", "name", "state", "runs_total", "runs_done", "runs_failed")
        columns: dict[str, list[Any]] = self.to_arrow().select(shown).to_pydict()
        return page(f"Server {self.address}", (), table(shown, list(zip(*columns.values(), strict=True))))
