"""A server with its live page and a virtual GPU, as processes, for a browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from assay_client.demonstration.processes import running_service
from assay_client.pages import folder as folder_of
from assay_client.remote.client import Client

_HEAD = """\
campaign: {name}
synthetic: true
gpus: [V100]
detailed: {{first: 200, slice_launches: 100}}
workloads:
"""


@dataclass(frozen=True)
class PagedLab:
    """A running lab, and a client of its owner."""

    client: Client

    def link(self) -> str:
        """A new link to the page."""
        return str(self.client.web_link()["url"])

    @property
    def base(self) -> str:
        return self.link().partition("/login")[0]

    def submit(self, folder: Path, name: str, workloads: dict[str, str]) -> str:
        """Submit a campaign of example workloads, by the names that they get in it."""
        source = folder_of("campaigns") / "virtual"
        lines = [
            f"  - {{name: {json.dumps(shown)}, command: [{source / f'{example}.toml'}]}}\n"
            for shown, example in workloads.items()
        ]
        file = folder / f"{name}.yaml"
        file.write_text(_HEAD.format(name=name) + "".join(lines))
        return str(self.client.submit(file))


@contextmanager
def paged_lab(folder: Path) -> Iterator[PagedLab]:
    """The lab while the block runs."""
    with (
        running_service(folder / "state", folder / "logs", ("V100",), web="127.0.0.1:0") as service,
        Client(service.address) as client,
    ):
        yield PagedLab(client)
