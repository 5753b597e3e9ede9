"""Certificates that are renewed or withdrawn, and two agents that claim to be one."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time

from tests.chaos.faults.seam import Fault, RuleBrokenError
from tests.chaos.laboratory import BIN, waited

_REFUSED_SECONDS = 30.0


class NewCertificate(Fault):
    """A running agent joins again: its streams live on while it takes the new certificate over."""

    kind = "certificate_renewed"
    needs_server = True
    weight = 4

    def inject(self) -> None:
        log = self.program.log_bytes
        before = self.box.serial
        self.lab.join(self.box)
        taken = waited(lambda: "the certificate was replaced" in self.program.said(log), 25)
        after = self.box.serial
        self._effect = f"{before[:8]} by {after[:8]}" if taken and before != after else ""

    def effect(self) -> str:
        return self._effect


class Revocation(Fault):
    """An agent's identity is revoked; it is refused, and the box joins again under a new one."""

    kind = "identity_revoked"
    needs_server = True
    weight = 3

    def inject(self) -> None:
        log, found = self.program.log_bytes, self.box.credentials.read()
        assert found is not None
        self.lab.ask(lambda owner: owner.revoke(found.identity.identity_id))
        refused = waited(lambda: "was revoked" in self.program.said(log), _REFUSED_SECONDS)
        if not refused and self.program.pid:
            raise RuleBrokenError(f"an agent worked on for {_REFUSED_SECONDS:g} s after its revocation")
        self._effect = "refused" if refused else ""

    def heal(self) -> None:
        self.program.end()
        made = self.lab.command("assay-agent", "new-identity", "--state", str(self.box.state))
        if made.returncode:
            raise RuleBrokenError(f"no new identity: {made.stderr}")
        self.lab.join(self.box)
        self.program.start()

    def effect(self) -> str:
        return self._effect


class SecondAgent(Fault):
    """A copy of an agent's state is started elsewhere; it must be refused while the first one is heard.

    Of an agent that was cut off for half of its lease the server cannot know that it lives; so the copy comes
    after a sign of life. A copy that never reaches the server, because the clock jumped, say, shows nothing.
    """

    kind = "second_agent"
    needs_server = True
    weight = 3

    def inject(self) -> None:
        self._status = 0
        before = self._seen()
        if not waited(lambda: self._seen() != before, _REFUSED_SECONDS):
            return
        copy = self.lab.root / f"copy-{time.monotonic_ns()}"
        shutil.copytree(self.box.state, copy, ignore=shutil.ignore_patterns("spool*", "jobs", "lock", "of-*"))
        copy.chmod(0o700)
        command = [
            str(BIN / "assay-agent"), "run", "--server", self.box.wire.address, "--state", str(copy),
            "--name", f"{self.target}-copy", "--policy", str(self.lab.root / "policy.toml"),
            "--installed-gpus", "false",
        ]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=40, check=False)
            self._status, said = done.returncode, done.stderr
        except subprocess.TimeoutExpired as error:
            said = (error.stderr or b"").decode(errors="replace")
        finally:
            shutil.rmtree(copy)
        if not self._status and "registered with" in said:
            sys.stderr.write(said[-2000:])
            raise RuleBrokenError("a second agent with the same identity was not refused")

    def effect(self) -> str:
        return "refused" if self._status == 7 else ""

    def _seen(self) -> object:
        """When the server last heard of the first agent."""
        agents = self.lab.ask(lambda owner: owner.agents())["agents"]
        mine = self.box.credentials.read()
        return next(
            (each["seen_at"] for each in agents if mine and each["agent_id"] == mine.identity.identity_id),
            None,
        )
