"""All kinds of faults."""

from __future__ import annotations

from tests.chaos.faults.clocks import ClockJump
from tests.chaos.faults.devices import DiskFallsReadOnly, DiskLost, ServerStartsReadOnly, StartsReadOnly
from tests.chaos.faults.disk import (
    DiskFull,
    FailingSync,
    FlippedSpool,
    FlippedStaging,
    ReadOnlyDisk,
    SlowSync,
    TornWrite,
)
from tests.chaos.faults.identities import NewCertificate, Revocation, SecondAgent
from tests.chaos.faults.messages import RepeatedMessages
from tests.chaos.faults.network import (
    BrokenStreams,
    HalfOpen,
    LateMessages,
    NetworkCut,
    NetworkDelay,
    NetworkSlow,
    Partition,
)
from tests.chaos.faults.packets import (
    DeafEnd,
    GoneWithoutGoodbye,
    PacketCut,
    PacketDelay,
    PacketDuplicates,
    PacketLoss,
    PacketReordering,
)
from tests.chaos.faults.processes import (
    DrainAgent,
    DrainServer,
    KillAgent,
    KillProfiler,
    KillServer,
    StopAgent,
    StopProfiler,
    StopServer,
)
from tests.chaos.faults.seam import Fault
from tests.chaos.faults.states import OlderBackup, SecondServer

KINDS: dict[str, type[Fault]] = {
    kind.kind: kind
    for kind in (
        KillAgent, KillServer, KillProfiler, StopAgent, StopServer, StopProfiler, DrainAgent, DrainServer,
        NetworkCut, Partition, NetworkDelay, NetworkSlow, BrokenStreams, HalfOpen, LateMessages,
        RepeatedMessages,
        PacketLoss, PacketDelay, PacketDuplicates, PacketReordering, PacketCut, DeafEnd, GoneWithoutGoodbye,
        DiskFallsReadOnly, DiskLost, StartsReadOnly, ServerStartsReadOnly,
        DiskFull, ReadOnlyDisk, FailingSync, SlowSync, TornWrite, FlippedSpool, FlippedStaging,
        ClockJump, OlderBackup, SecondServer, NewCertificate, Revocation, SecondAgent,
    )
}  # fmt: skip
