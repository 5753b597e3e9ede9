"""What a release leaves on disks and sends over the wire, kept so that later releases can be tested with it.

    python -m tests.release.fixtures FOLDER

One archive a release: the state of ``assay run`` with a finished and a waiting campaign, an agent's spool,
documents with the command lines that printed them, and a message of every kind. All of it is synthetic.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from google.protobuf.message import Message

from assay_agent.spool.spool import Spool
from assay_client.cli.main import main as assay
from assay_client.local import run_campaign
from assay_client.local_service import LocalService
from assay_client.remote.client import Client
from assay_core.records.upload import AnnouncedSegment, upload_messages
from assay_core.records.validity_flag import ValidityFlag
from tests.support.agent.assignments import LOG, assignment
from tests.support.agent.fake_server import batches_of
from tests.support.wire_records import RECORDS

FIXTURES = Path(__file__).parent / "fixtures"
ARCHIVE = "kept.tar.xz"
GPU = "V100"
SPOOLED_LAUNCHES = 100
CAMPAIGN = """\
campaign: kept
synthetic: true
gpus: [V100]
detailed: {first: 8, slice_launches: 4, sets: features}
workloads:
  - {name: tiny, command: [tiny.toml]}
analysis:
  methods: [random, systematic]
"""
LIGHT_CAMPAIGN = """\
campaign: waiting
synthetic: true
gpus: [V100]
detailed: none
workloads:
  - {name: tiny, command: [tiny.toml]}
analysis:
  methods: [random]
"""
WORKLOAD = """\
# Made up, for tests; synthetic.
workload = "tiny"
seed = 3
buffers.a = "1 MiB"
[kernels.tile]
name = "void tile<float>(float*)"
block = 128
instructions = 200
global_loads = 20
reads = { a = 1.0 }
[[phases]]
repeat = 8
nvtx = "step"
steps = [{ kernel = "tile", grid = 30 }, { kernel = "tile", grid = 60 }]
"""
_RECORDING = "state/server/records/kept-1.0000/slice-00000.parquet"
# What a later release must still take, and print with the same keys; each in the folder of a fixture.
_PRINTED = {
    "plan": "plan campaign.yaml",
    "inspect": f"inspect {_RECORDING}",
    "select": f"select systematic {_RECORDING} -p launches=2 -o {{out}}/selection.json",
    "compare": f"compare {_RECORDING} -m random -m systematic",
    "evaluate": f"evaluate selection.json {_RECORDING}",
    "export": "export selection.json --to weights -o {out}/weights.txt",
    "export_weights": "export weights.txt --to nvbit -o {out}/nvbit",
    "report": "report kept-1 --state state",
}
_ASKED = {
    "status": "lab status kept-1",
    "explain": "explain kept-1.0000",
    "agents": "lab agents",
    "gpus": "lab gpus",
    "queue": "lab queue",
}  # fmt: skip
_README = """\
# What Assay {version} kept and sent

**All of it is synthetic**: virtual GPUs measured, and the messages are made up. `{archive}` holds what
`tests/release/fixtures.py` made with that release; `tests/release/test_fixtures.py` opens it with the
release of its checkout.
"""


def make_fixture(folder: Path, version: str) -> None:
    """The fixture of the running release, in a folder that does not exist yet."""
    with tempfile.TemporaryDirectory(prefix="assay-") as scratch, contextlib.chdir(scratch):
        with patch("socket.gethostname", return_value="box"):
            asked = _make_state(Path("state"))
        _make_spool(Path("spool"))
        documents = {"files": dict(printed(_PRINTED, Path())), "server": asked}
        Path("printed.json").write_text(json.dumps(documents, indent=1))
        Path("report.parquet").write_bytes(Path("state/server/reports/kept-1/report.parquet").read_bytes())
        Path("wire.json").write_text(json.dumps([_kept(message) for message in _messages()], indent=1))
        folder.mkdir(parents=True)
        (folder / "README.md").write_text(_README.format(version=version, archive=ARCHIVE))
        with tarfile.open(folder / ARCHIVE, "w:xz") as archive:
            for path in sorted(Path().iterdir()):
                archive.add(path)


def unpacked(fixture: Path, folder: Path) -> Path:
    """The files of a fixture, in ``folder``."""
    with tarfile.open(fixture / ARCHIVE) as archive:
        archive.extractall(folder, filter="tar")
    return folder


def printed(commands: dict[str, str], out: Path, *options: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """What ``assay`` prints for command lines, in the working folder; what they write goes to ``out``."""
    for name, command in commands.items():
        document = json.loads(typed([*command.format(out=out).split(), "--json", *options]))
        yield name, {"command": command, "document": document}


def typed(arguments: Sequence[str]) -> str:
    """The standard output of ``assay``, in this process; AssertionError if it fails."""
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        code = assay(list(arguments))
    assert code == 0, f"assay {' '.join(arguments)}: {code}\n{errors.getvalue()}"
    return output.getvalue()


def _make_state(state: Path) -> dict[str, dict[str, Any]]:
    """A campaign that is done, and one that waits; what verbs print of them that ask a server."""
    Path("tiny.toml").write_text(WORKLOAD)
    Path("campaign.yaml").write_text(CAMPAIGN)
    Path("waiting.yaml").write_text(LIGHT_CAMPAIGN)
    run_campaign("campaign.yaml", state, virtual_gpus=[GPU])
    with LocalService(state, [GPU], begins=False) as service, Client(service.address) as client:
        client.submit("waiting.yaml")
        asked = dict(printed(_ASKED, Path(), "--server", service.address))
    for left in (state / "agent" / "virtual-tools", state / "reports"):
        shutil.rmtree(left)
    return asked


def _make_spool(folder: Path) -> None:
    """An attempt that is whole and only has to be sent."""
    spool = Spool(folder, minimum_free_bytes=0)
    attempt = spool.create(assignment())
    for batch in batches_of(SPOOLED_LAUNCHES, SPOOLED_LAUNCHES, counters=2):
        attempt.append(batch)
    attempt.seal((ValidityFlag("counters_nan", "made up"),), LOG)
    spool.close()


def _messages() -> Iterator[Message]:
    """A message of every kind that has a field, alone or in another one."""
    yield from (record.to_proto() for record in RECORDS)
    announced = next(record for record in RECORDS if isinstance(record, AnnouncedSegment))
    yield from upload_messages(announced, b"names", b"launches")


def _kept(message: Message) -> dict[str, str]:
    return {"message": message.DESCRIPTOR.full_name, "bytes": message.SerializeToString().hex()}


if __name__ == "__main__":
    make_fixture(Path(sys.argv[1]).resolve(), "of this checkout")
