"""A box as its agent describes it: its GPUs, the slots that take runs, and the agent's registration."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from assay_core.records.attempt import AttemptKey, HeldAttempt
from assay_core.records.wire import UNSENT, Record, received_values
from assay_protos import agent_pb2, common_pb2
from assay_sampling.running.identity import device_key

_LONGEST_SLOT_ID = 200
_MIG_PREFIX = "MIG-"


@dataclass(frozen=True)
class InstalledDevice(Record[common_pb2.Device]):
    """A GPU of a box. ``sm_count`` and ``memory_bytes`` are 0 if the driver does not report them.

    ``index`` is its ordinal in PCI bus order. ``problem`` is set if the GPU is present but cannot be queried;
    ``left_out`` if somebody chose to give it no runs: which choice that was, and how to change it.
    """

    index: int = 0
    name: str = ""
    uuid: str = ""
    compute_capability: str = ""
    sm_count: int = 0
    memory_bytes: int = 0
    problem: str = ""
    left_out: str = ""


@dataclass(frozen=True)
class GpuSample(Record[agent_pb2.GpuSample]):
    """What the sensors of a slot's GPU said ``age_ms`` ago; None: the GPU does not report it."""

    slot_id: str
    age_ms: int = 0
    temperature_celsius: float | None = None
    power_watts: float | None = None
    busy_percent: float | None = None
    sm_clock_mhz: float | None = None

    @classmethod
    def from_proto(cls, message: agent_pb2.GpuSample) -> GpuSample:
        """Numbers that are not finite count as not reported; texts are bounded."""
        values = received_values(cls, message)
        finite: dict[str, Any] = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in values.items()
        }
        finite |= {"slot_id": message.slot_id[:_LONGEST_SLOT_ID], "age_ms": max(0, message.age_ms)}
        return cls(**finite)


@dataclass(frozen=True)
class Inventory(Record[agent_pb2.Inventory]):
    """The description of a box for the server; ``no_device_reason`` says why ``devices`` is empty."""

    host: str = ""
    agent_version: str = ""
    cpu_count: int = 0
    memory_bytes: int = 0
    devices: tuple[InstalledDevice, ...] = ()
    driver_version: str = ""
    cuda_driver_version: str = ""
    no_device_reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """For people and scripts (``assay-agent inventory --json``), and for the server's store."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Inventory:
        """Reads what :meth:`to_dict` returned; other keys are ignored."""
        values = {item.name: document[item.name] for item in dataclasses.fields(cls)}
        devices = tuple(InstalledDevice(**device) for device in document["devices"])
        return cls(**{**values, "devices": devices})


@dataclass(frozen=True)
class Slot(Record[agent_pb2.Slot]):
    """A place of an agent that takes one run at a time: a GPU, or a player of recordings that needs none.

    ``slot_id`` is the UUID of the device, or "recorded-0". ``profilers`` are the names of those that can
    measure there. ``quarantine_reason``: why it is out of service; "" if it takes runs. ``sm_partitions``:
    its SMs can be partitioned, so it gets runs on a partition. ``gangs``: it can take part in a run over
    several GPUs. ``bundles``: its agent runs files of submitters, confined.
    """

    slot_id: str
    profilers: tuple[str, ...] = ()
    synthetic: bool = False
    device: InstalledDevice | None = None
    quarantine_reason: str = ""
    sm_partitions: bool = False
    gangs: bool = False
    bundles: bool = False

    @property
    def device_name(self) -> str:
        """The name of its GPU; "" if it has no GPU."""
        return self.device.name if self.device is not None else ""

    @property
    def device_key(self) -> str:
        """The key of its GPU's name; "" if it has no GPU."""
        return device_key(self.device_name)

    @property
    def is_mig(self) -> bool:
        """Whether it is an instance of a partitioned GPU (MIG); the driver names those by their UUID."""
        return self.slot_id.startswith(_MIG_PREFIX)

    @property
    def may_join_gangs(self) -> bool:
        """Whether it can take part in a run over several GPUs: its agent makes them, and it is a whole GPU.

        A process sees at most one instance of a partitioned GPU, so instances cannot work together.
        """
        return self.gangs and self.device is not None and not self.is_mig


@dataclass(frozen=True)
class Registration(Record[agent_pb2.RegisterRequest], kept_bytes=UNSENT):
    """An agent's process and the attempts that it holds.

    ``agent_id`` is kept on the agent's disk, ``session_id`` is new with every process. ``held``: attempts of
    an earlier process that the disk proves to be this agent's own. ``place`` tells its state folder, on this
    boot of this box, from copies of the folder; "" if unknown. ``kept_bytes``: the size of the message as
    received, without the held attempts.
    """

    agent_id: str
    session_id: str
    name: str
    inventory: Inventory
    slots: tuple[Slot, ...]
    held: tuple[HeldAttempt, ...] = ()
    place: str = ""
    kept_bytes: int = field(default=0, compare=False)

    @classmethod
    def from_proto(cls, message: agent_pb2.RegisterRequest) -> Registration:
        kept_bytes = message.ByteSize() - sum(each.ByteSize() for each in message.held)
        return dataclasses.replace(super().from_proto(message), kept_bytes=kept_bytes)


@dataclass(frozen=True)
class Registered(Record[agent_pb2.RegisterResponse]):
    """The answer to a registration: ``resume`` are the held attempts still wanted, ``drop`` the others.

    ``lease_ms`` is how long a lease lasts. ``idle_heartbeat_ms``: how often an agent without attempts sends a
    heartbeat; 0: the server is of a release that does not tell it.
    """

    heartbeat_ms: int
    lease_ms: int
    resume: tuple[AttemptKey, ...] = ()
    drop: tuple[AttemptKey, ...] = ()
    server_version: str = ""
    idle_heartbeat_ms: int = 0
