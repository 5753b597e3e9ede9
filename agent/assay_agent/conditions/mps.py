"""A share of the SMs through a private MPS daemon; and runs without MPS, kept away from all daemons.

A CUDA program attaches to any daemon that answers in its pipe folder; if none answers, it silently runs on
all SMs. So the share is set before the first client and read back, and a probe in the run's environment must
see fewer SMs, or there is no run; after the run the daemon must still live and must have had clients.
Compute modes are never changed. Source: docs/conditions.md, "SM shares".
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from assay_agent.conditions.base import Condition, Site
from assay_agent.conditions.leftovers import MPS_ENTRY, end_daemon
from assay_agent.conditions.mps_control import (
    LONGEST_SOCKET_PATH,
    PIPE_VARIABLE,
    PROGRAM,
    MpsDaemon,
    MpsError,
    MpsFolders,
    program_version,
)
from assay_agent.conditions.mps_daemons import mps_daemons
from assay_agent.conditions.sm_probe import ProbedGPU, ProbeError, probe_sms
from assay_agent.execution.errors import ProfilerError
from assay_sampling.errors import StorageError
from assay_sampling.running.failures import FailureClass
from assay_sampling.scoring.two_conditions import share_bounds

_log = logging.getLogger(__name__)

# The daemon prints tenths.
_ROUNDING_PERCENT = 0.0501
# The daemon gets these variables of the run; the workload's own are not for it.
_OF_THE_DAEMON = ("HOME", "TMPDIR", "LC_ALL", "CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES")


class WithoutMps(Condition):
    """A run without MPS: its private pipe folder has no daemon, so it attaches to none."""

    def __enter__(self) -> Self:
        nobody = self.site.base / "no-mps"
        nobody.mkdir(mode=0o700, exist_ok=True)
        self.environment = {PIPE_VARIABLE: str(nobody)}
        _note_strangers(self)
        return self


class SmShare(Condition):
    """A share of the SMs, or all of them, under a private MPS daemon that lives as long as the run.

    ``facts``: ``sm_percent``, ``sm_percent_in_force`` as the daemon reports it, ``effective_sms`` as probed,
    ``all_sms``, ``cuda_version``, ``mps_program``, ``mps_version``.
    """

    daemon_options: tuple[str, ...] = ()

    def __init__(self, site: Site, percent: float) -> None:
        super().__init__(site)
        self.percent = percent
        self.folders = MpsFolders(site.base)
        self.daemon: MpsDaemon | None = None
        self._probe_clients = 0
        self.daemon_facts: dict[str, str | int | float] = {}

    def __enter__(self) -> Self:
        self.environment = dict(self.folders.variables)
        try:
            self._start(self.program())
            self.set_share()
            self.step("probe")
            self._judge(self._probe())
            self.step("in force")
        except BaseException:
            self._undo()
            raise
        _note_strangers(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo()

    def step(self, step: str, **facts: str) -> None:
        self.site.journal.step(MPS_ENTRY, step, **facts)

    def program(self) -> str:
        program = shutil.which(PROGRAM, path=self.site.gpu.path)
        if program is None:
            raise self.failed(
                f"{PROGRAM} is not in the PATH of the agent",
                "install it (it comes with NVIDIA's driver), or start the agent with a PATH that has it",
            )
        longest = self.folders.longest_socket_bytes
        if longest > LONGEST_SOCKET_PATH:
            raise self.failed(
                f"the sockets of an MPS daemon in {self.folders.root} would have paths of {longest} bytes, "
                f"and at most {LONGEST_SOCKET_PATH} are possible",
                "start the agent with a TMPDIR that has a shorter name",
            )
        return program

    def _start(self, program: str) -> None:
        self.step("folders", base=str(self.site.base), program=program)
        try:
            end_daemon(self.site.base, program)  # of an agent with another state directory
            for folder in (self.folders.root, self.folders.pipe, self.folders.log):
                folder.mkdir(mode=0o700)
        except OSError as error:
            raise self.failed(f"the folders of the MPS daemon cannot be made: {error}") from error
        # The daemon looks its server up in the PATH, and says little if it is not there.
        folders = dict.fromkeys((str(Path(program).parent), str(Path(program).resolve().parent)))
        environment = {
            "PATH": ":".join((*folders, self.site.gpu.path)),
            **{name: self.site.environment[name] for name in _OF_THE_DAEMON},
            **self.site.gpu.variables,
            **self.folders.variables,
        }
        self.daemon_facts = {"mps_program": program, "mps_version": program_version(program)}
        self.step("daemon")
        self.daemon = MpsDaemon(program, environment, self.folders, (self.site.lock,), self.daemon_options)
        try:
            self.daemon.start(self.site.cancelled)
        except MpsError as error:
            raise self.failed(str(error)) from error

    def set_share(self) -> None:
        self.step("share")
        assert self.daemon is not None
        try:
            in_force = self.daemon.control.set_share(self.percent)
        except MpsError as error:
            raise self.failed(str(error)) from error
        if abs(in_force - self.percent) > _ROUNDING_PERCENT:
            raise self.failed(
                f"{self.percent:g} % was set, but the MPS daemon says that {in_force:g} % is in force "
                f"({self.daemon.last_words()})"
            )
        self.daemon_facts["sm_percent_in_force"] = in_force

    def _probe(self) -> ProbedGPU:
        site, daemon = self.site, self.daemon
        assert daemon is not None
        environment = {**site.environment, **self.environment}
        try:
            gpu = probe_sms(environment, site.home, site.gpu.device.uuid, site.lock)
        except ProbeError as error:
            raise self.failed(
                f"the probe of the SMs failed: {error}; the MPS daemon's last words: {daemon.last_words()}"
            ) from error
        self._probe_clients = daemon.clients_seen()
        return gpu

    def _judge(self, gpu: ProbedGPU) -> None:
        """Record what is in force; raises ProfilerError if that is not the share."""
        whole = self.site.gpu.device.sm_count
        if whole is None or (self.percent >= 100 and whole != gpu.sm_count):
            whole = self._all_sms()
        self.facts = {
            "sm_percent": self.percent,
            "effective_sms": gpu.sm_count,
            "all_sms": whole,
            "cuda_version": gpu.cuda_version,
            **self.daemon_facts,
        }
        if self.percent >= 100 and gpu.sm_count != whole:
            raise self.failed(f"the probe sees {gpu.sm_count} SMs at 100 %, but the GPU has {whole}")
        if self.percent < 100 and gpu.sm_count >= whole:
            raise self.failed(
                f"{self.percent:g} % was set, but the probe sees all {gpu.sm_count} SMs of the GPU",
            )
        if self.percent < 100:
            self.require_share(gpu.sm_count, whole)

    def require_share(self, sm_count: int, whole: int) -> None:
        """Raises ProfilerError if the probe did not find the share of the SMs that was set."""
        least, most = share_bounds(whole, self.percent, self.site.gpu.device.compute_capability)
        if not least <= sm_count <= most:
            raise self.failed(
                f"{self.percent:g} % of {whole} SMs was set, but the probe sees {sm_count} "
                f"(the share is in force with {least} to {most})"
            )

    def whole_sms(self) -> int:
        """SMs of the whole GPU, from the driver's library on the box or a process without MPS."""
        return self.site.gpu.device.sm_count or self._all_sms()

    def _all_sms(self) -> int:
        """SMs of the GPU as a process without MPS sees them; raises ProfilerError."""
        nobody = self.site.base / "no-mps"
        nobody.mkdir(mode=0o700, exist_ok=True)
        environment = {**self.site.environment, PIPE_VARIABLE: str(nobody)}
        try:
            gpu = probe_sms(environment, self.site.home, self.site.gpu.device.uuid, self.site.lock)
        except ProbeError as error:
            raise self.failed(f"the probe of the whole GPU failed: {error}") from error
        return gpu.sm_count

    def before_ending(self) -> None:
        """A client that a signal kills may take the server with it, so its GPU work is ended first."""
        if self.daemon is None:
            return
        try:
            ended = self.daemon.control.terminate_clients()
        except MpsError as error:
            self.site.note(f"MPS: the clients could not be terminated: {error}")
            return
        if ended:
            self.site.note(f"MPS: clients terminated: {', '.join(map(str, ended))}")

    def check(self) -> None:
        """Raises ProfilerError if the daemon ended during the run; flags a run that was never its client."""
        assert self.daemon is not None
        if not self.daemon.alive:
            raise self.failed(
                f"the MPS daemon ended during the run ({self.daemon.last_words()}); a process that starts "
                "afterwards has all SMs",
                "find out what ended it (out of memory, a person); then submit the campaign again",
            )
        clients = self.daemon.clients_seen() - self._probe_clients
        self.facts["mps_clients"] = clients
        if self._probe_clients and not clients:
            self.flag(
                "sm_share_not_in_force",
                "no process of the workload was a client of the MPS daemon, so it ran on all SMs: the "
                "command must keep CUDA_MPS_PIPE_DIRECTORY, also for what it starts in containers",
            )

    def _undo(self) -> None:
        # A full disk must not keep the daemon alive; the earlier step's entry is enough to undo it.
        self._noted(lambda: self.step("stop"))
        if self.daemon is not None:
            self.site.note(f"MPS: the daemon ended by {self.daemon.stop()}")
        shutil.rmtree(self.folders.root, ignore_errors=True)
        self._noted(lambda: self.site.journal.end(MPS_ENTRY))

    def _noted(self, write: Callable[[], None]) -> None:
        try:
            write()
        except StorageError as error:
            _log.warning("the MPS daemon of %s: %s", self.site.gpu.device.uuid, error)

    def failed(self, cause: str, remedy: str = "") -> ProfilerError:
        return ProfilerError(FailureClass.MPS_NOT_IN_FORCE, str(self.site.work.key), cause, remedy)


def _note_strangers(condition: Condition) -> None:
    """Record other people's MPS daemons; they are left alone, and the run is kept away from them."""
    strangers = list(_strangers(condition.site.base))
    if strangers:
        condition.facts["foreign_mps_daemons"] = ", ".join(map(str, strangers))
        condition.flag(
            "foreign_mps_daemon",
            f"another MPS daemon lives at {condition.facts['foreign_mps_daemons']}; it was left alone",
        )


def _strangers(base: Path) -> Iterator[Path]:
    """Pipe folders of living daemons, except those of this user's agents."""
    for pipe in mps_daemons():
        if base.parent not in pipe.parents:
            yield pipe
