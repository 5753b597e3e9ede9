"""``make chaos-lab``: the same campaigns in an undisturbed lab and in one with faults; nothing may differ.

python -m tests.chaos [--short] [--seed N] [--faults N] [--launches N] [--kinds ...] [--minutes N] [--json]
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from tests.chaos.broken_server import BREAKS, broken_server
from tests.chaos.faults.kinds import KINDS
from tests.chaos.laboratory import BIN, Laboratory, laboratory
from tests.chaos.printing import Printer
from tests.chaos.proof import Proof, asked_for, common_parser, end_in_order_at_sigterm, folder_of_labs
from tests.chaos.schedule import ONE_SERVER
from tests.chaos.work import Size
from tests.support.machine.namespaces import start_again_inside
from tests.support.machine.packet_wires import NoWiresError, packet_wires

LONG = Size(10_000_000, runs=320, campaigns=8, live_runs=36, agents=4, slots=2, undisturbed_seconds=200)
SHORT = Size(240_000, runs=24, campaigns=3, live_runs=4, agents=3, slots=2, undisturbed_seconds=14)
LONG_FAULTS, SHORT_FAULTS = 200, 18
_SERVER = (str(BIN / "assay-server"),)


def main(arguments: Sequence[str] | None = None) -> int:
    """0: nothing differs, and enough faults took hold."""
    given = _parser().parse_args(arguments)
    end_in_order_at_sigterm()
    size = _size(given)
    asked = asked_for(given, size, SHORT_FAULTS if given.short else LONG_FAULTS)
    printer = Printer(quiet=given.json)
    words = sys.argv[1:] if arguments is None else arguments
    why_not = start_again_inside(["-m", "tests.chaos", *words]) or _no_wires()
    printer.say(f"seed {asked.seed}; again with: python -m tests.chaos --seed {asked.seed}")
    if why_not:
        printer.say(f"no fault below TCP: {why_not}")

    def lab_of(server: tuple[str, ...], root: Path, kept: ExitStack) -> AbstractContextManager[Laboratory]:
        return laboratory(root, size, asked.seed, server, with_packets=not why_not, kept=kept)

    disturbed = broken_server(given.broken) if given.broken else _SERVER
    with folder_of_labs("chaos-", keep=given.keep) as folder:
        return Proof(
            folder, asked, printer, 60 * given.minutes,
            known=KINDS, kinds=given.kinds or [*KINDS], services=ONE_SERVER,
        ).run(
            lambda root, kept: lab_of(_SERVER, root, kept), lambda root, kept: lab_of(disturbed, root, kept)
        )  # fmt: skip


def _parser() -> argparse.ArgumentParser:
    parser = common_parser("python -m tests.chaos", __doc__, KINDS)
    parser.add_argument("--launches", type=int, help="how many launches the campaigns hold")
    parser.add_argument(
        "--undisturbed", type=float, help="seconds that playing takes undisturbed; 0: no pace"
    )
    parser.add_argument("--break", dest="broken", choices=BREAKS, help="a server with this fault of its own")
    return parser


def _size(given: argparse.Namespace) -> Size:
    size = SHORT if given.short else LONG
    if given.launches:
        size = dataclasses.replace(size, launches=given.launches)
    if given.undisturbed is not None:
        size = dataclasses.replace(size, undisturbed_seconds=given.undisturbed)
    return size


def _no_wires() -> str:
    """Why no wire below TCP can be made here; "" if one can."""
    try:
        with packet_wires(1, 0, own_network=False):
            return ""
    except NoWiresError as error:
        return str(error)


if __name__ == "__main__":
    sys.exit(main())
