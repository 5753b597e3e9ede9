"""Slurm on one machine: Debian's munged, slurmctld and slurmd on loopback, one node with two fake GPUs.

Root is needed: slurmd refuses other users. Everything lies in one folder, which goes with the processes.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "squeue", "scancel")
_START_SECONDS = 60.0
_NULL, _ZERO = 3, 5  # /dev/null, /dev/zero

_CONFIGURATION = """\
ClusterName={cluster}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={daemon_port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
ReturnToService=2
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_interval=2
SlurmctldTimeout=30
SlurmdTimeout=30
KillWait=30
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
{parameters}
AccountingStorageType=accounting_storage/none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} Gres=gpu:v100:2 State=UNKNOWN
PartitionName=gpu Nodes={host} Default=YES MaxTime=24:00:00 State=UP PriorityTier=1 GraceTime={grace}
PartitionName=urgent Nodes={host} MaxTime=01:00:00 State=UP PriorityTier=10
"""
_GPUS = "NodeName={host} Name=gpu Type=v100 File={folder}/fakegpu[0-1]\n"


def why_not() -> str:
    """Why Slurm cannot be started here; "" if it can."""
    if os.geteuid() != 0:
        return "slurmd runs as root alone, and this is another user"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"not installed: {', '.join(missing)} (Debian's package slurm-wlm)" if missing else ""


class OneNode:
    """A cluster that lives as long as the block.

    Args:
        parameters: further lines of slurm.conf.
        grace_seconds: what a preempted job has.
        cluster: the cluster's name.
    """

    def __init__(self, parameters: str = "", *, grace_seconds: int = 15, cluster: str = "assay") -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="assay-slurm-"))
        self.folder.chmod(0o755)  # munged runs as another user
        self.jobs = self.folder  # a test says where its jobs log
        self._processes: list[subprocess.Popen[bytes]] = []
        ports = iter(_free_ports(2))
        host = socket.gethostname().split(".")[0]
        names = {
            "host": host,
            "cluster": cluster,
            "folder": self.folder,
            "controller_port": next(ports),
            "daemon_port": next(ports),
            "cpus": os.cpu_count(),
            "grace": grace_seconds,
            "parameters": parameters,
        }
        (self.folder / "slurm.conf").write_text(_CONFIGURATION.format(**names))
        (self.folder / "gres.conf").write_text(_GPUS.format(**names))
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=autodetect\n")
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        for number, minor in enumerate((_NULL, _ZERO)):
            # Slurm sets CUDA_VISIBLE_DEVICES and SLURM_JOB_GPUS for devices alone, not for plain files.
            os.mknod(self.folder / f"fakegpu{number}", stat.S_IFCHR | 0o600, os.makedev(1, minor))

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment in which sbatch and its like find this cluster."""
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))
        }
        return {**kept, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def __enter__(self) -> Self:
        try:
            self._start_munge()
            self._start("slurmctld", "-D", "-i")
            self._start("slurmd", "-D")
            self.wait_for(lambda: "idle" in self.run("sinfo", "-h", "-o", "%T"), "an idle node")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        with contextlib.suppress(subprocess.CalledProcessError, AssertionError):
            self.run("scancel", "--user=root", "--signal=KILL", "--full")
            self.run("scancel", "--user=root")
            self.wait_for(lambda: not self.run("squeue", "-h"), "end of all jobs", 20.0)
        for process in reversed(self._processes):
            _end(process)
        for left in self._of_this_cluster():
            with contextlib.suppress(psutil.NoSuchProcess):
                left.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _of_this_cluster(self) -> list[psutil.Process]:
        """Processes that know this cluster: steps and jobs, which are no children of slurmd."""
        mine = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("SLURM_CONF") == self.environment["SLURM_CONF"]:
                    mine.append(process)
        return mine

    def run(self, *command: str) -> str:
        """What a program of Slurm prints; raises CalledProcessError."""
        done = subprocess.run(command, env=self.environment, check=True, capture_output=True, text=True)
        return done.stdout

    def job(self, job_id: str) -> dict[str, str]:
        """What Slurm knows of a job, by its own names."""
        words = self.run("scontrol", "-o", "show", "job", job_id).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait_for(self, is_so: object, what: str, seconds: float = _START_SECONDS) -> None:
        """Wait until a function says yes; its errors are those of a daemon that is not there yet."""
        assert callable(is_so)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                if is_so():
                    return
            except subprocess.CalledProcessError:
                pass
            time.sleep(0.2)
        raise AssertionError(f"no {what} in {seconds:.0f} s\n{self.logs()}")

    def logs(self) -> str:
        """The ends of the daemons' logs, and of the jobs'."""
        logs = [*sorted(self.folder.glob("slurm*d.log")), *sorted(self.jobs.glob("*.log"))]
        return "\n".join(f"{log.name}: {log.read_text(errors='replace')[-3000:]}" for log in logs)

    def _start_munge(self) -> None:
        private = self.folder / "munge"
        private.mkdir(mode=0o755)
        key = private / "key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        for path in (private, key):
            shutil.chown(path, "munge", "munge")
        self._start_plain(
            ["runuser", "-u", "munge", "--", "munged", "--foreground", f"--key-file={key}",
             f"--socket={private}/socket", f"--pid-file={private}/pid", f"--log-file={private}/munged.log",
             f"--seed-file={private}/seed"],
            "munged",
        )  # fmt: skip
        self.wait_for((private / "socket").exists, "socket of munged")

    def _start(self, program: str, *options: str) -> None:
        self._start_plain([program, *options, "-f", str(self.folder / "slurm.conf")], program)

    def _start_plain(self, command: list[str], name: str) -> None:
        with (self.folder / f"{name}.out.log").open("ab") as log:
            self._processes.append(
                subprocess.Popen(
                    command, env=self.environment, stdout=log, stderr=log, start_new_session=True
                )
            )


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(20)
