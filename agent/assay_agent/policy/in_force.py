"""The policy in force, which may be replaced while the agent runs: the next run is judged by the new one."""

from __future__ import annotations

from assay_agent.policy.gate import Gate
from assay_core.records.work import Work


class PolicyInForce:
    """Judges by the gate that it was given last. Each run is judged by one gate alone. Thread-safe."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    @property
    def gate(self) -> Gate:
        """The gate that judges now."""
        return self._gate

    def replace(self, gate: Gate) -> None:
        """Judge by this gate from the next run on."""
        self._gate = gate

    def admit(self, work: Work) -> Work:
        """As Gate.admit; raises ProfilerError."""
        return self._gate.admit(work)
