"""The server's state folder: an older backup takes its place, or a second server wants it."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import time
from pathlib import Path

from tests.chaos.faults.seam import Fault, RuleBrokenError, Whom

_PATIENCE_SECONDS = 3.0
_TABLES = ("attempts", "segments")


class OlderBackup(Fault):
    """A backup is made, work goes on, and then the server continues from the backup."""

    kind = "older_backup"
    whom = Whom.SERVER
    weight = 2

    def inject(self) -> None:
        self._effect = ""
        state, passphrase = str(self.lab.state), ("--passphrase-file", str(self.lab.passphrase))
        backup = self.lab.root / f"backup-{time.monotonic_ns()}"
        made = self.lab.command("assay-server", "backup", str(backup), "--state", state, *passphrase)
        if made.returncode:
            raise RuleBrokenError(f"no backup could be made: {made.stderr}")
        time.sleep(self.chance.uniform(1.0, _PATIENCE_SECONDS))
        self.program.end()
        newer, files = self._known(), self._published()
        restored = self.lab.command(
            "assay-server", "restore", str(backup), "--state", state, "--replace", *passphrase
        )
        if restored.returncode:
            raise RuleBrokenError(f"the backup could not be restored: {restored.stderr}")
        older = self._known()
        gone = [f"{newer[name] - older[name]} {name}" for name in _TABLES if newer[name] != older[name]]
        lost = len(files - self._published())
        self._effect = f"{', '.join(gone)} and {lost} published files were gone" if gone else ""
        self._remove_copies(backup)

    def _known(self) -> dict[str, int]:
        """How many attempts and segments the database knows."""
        with contextlib.closing(sqlite3.connect(self.lab.state / "metadata.sqlite")) as database:
            query = "SELECT count(*) FROM {}"
            return {name: int(database.execute(query.format(name)).fetchone()[0]) for name in _TABLES}

    def _published(self) -> set[str]:
        return {path.parent.name for path in self.lab.state.glob("records/*/slice-*.parquet")}

    def _remove_copies(self, backup: Path) -> None:
        shutil.rmtree(backup)
        for replaced in self.lab.state.parent.glob(f"{self.lab.state.name}?*"):
            if replaced.is_dir():
                shutil.rmtree(replaced)

    def heal(self) -> None:
        self.program.start()
        self.lab.wait_for_server()

    def effect(self) -> str:
        return self._effect


class SecondServer(Fault):
    """A second server is started on the same state folder; it must be refused."""

    kind = "second_server"
    whom = Whom.SERVER
    weight = 3

    def inject(self) -> None:
        state = str(self.lab.state)
        done = self.lab.command("assay-server", "--state", state, "--listen", f"unix:{self.lab.root}/second")
        if not done.returncode:
            raise RuleBrokenError("a second server worked on the same state folder")
        self._said = "another assay-server has it" in done.stderr

    def effect(self) -> str:
        return "refused" if self._said else ""
