"""``make chaos-site``: one undisturbed server, and a site with faults; records and results may not differ.

python -m tests.chaos.site [--short] [--seed N] [--faults N] [--kinds ...] [--minutes N] [--json]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from tests.chaos.laboratory import BIN, Laboratory, laboratory
from tests.chaos.printing import Printer
from tests.chaos.proof import Proof, asked_for, common_parser, end_in_order_at_sigterm, folder_of_labs
from tests.chaos.site.faults import KINDS_OF_A_SITE
from tests.chaos.site.laboratory import SERVICES, site_laboratory
from tests.chaos.site.needed import missing
from tests.chaos.work import Size

LONG = Size(2_000_000, runs=96, campaigns=6, live_runs=8, agents=3, slots=2, undisturbed_seconds=120)
SHORT = Size(240_000, runs=24, campaigns=3, live_runs=2, agents=2, slots=2, undisturbed_seconds=14)
LONG_FAULTS, SHORT_FAULTS = 80, 12


def main(arguments: Sequence[str] | None = None) -> int:
    """0: nothing differs, and enough faults took hold; or what a site needs is not here."""
    given = common_parser("python -m tests.chaos.site", __doc__, KINDS_OF_A_SITE).parse_args(arguments)
    end_in_order_at_sigterm()
    printer = Printer(quiet=given.json)
    if lacks := missing():
        printer.say(f"no site can be made here; missing: {', '.join(lacks)}")
        return 0
    size, faults = (SHORT, SHORT_FAULTS) if given.short else (LONG, LONG_FAULTS)
    asked = asked_for(given, size, faults)
    printer.say(f"seed {asked.seed}; again with: python -m tests.chaos.site --seed {asked.seed}")

    def undisturbed(root: Path, kept: ExitStack) -> AbstractContextManager[Laboratory]:
        server = (str(BIN / "assay-server"),)
        return laboratory(root, size, asked.seed, server, with_packets=False, kept=kept)

    def disturbed(root: Path, kept: ExitStack) -> AbstractContextManager[Laboratory]:
        return site_laboratory(root, size, asked.seed, kept=kept)

    with folder_of_labs("site-", keep=given.keep) as root:
        return Proof(
            root, asked, printer, 60 * given.minutes,
            known=KINDS_OF_A_SITE, kinds=given.kinds or [*KINDS_OF_A_SITE], services=SERVICES,
        ).run(undisturbed, disturbed)  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
