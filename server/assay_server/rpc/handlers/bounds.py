"""Bounds texts, lists and numbers from agents before they are kept, and sets what only the server decides."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import replace

from assay_core.records.attempt import LONGEST_LOG_CHARACTERS, AttemptLog, bounded_text
from assay_core.records.failure import Failure
from assay_core.records.machine import InstalledDevice, Registration, Slot
from assay_core.records.validity_flag import ValidityFlag
from assay_sampling.errors import ParameterError
from assay_sampling.running.attempt_facts import MOST_BYTES
from assay_server.store.model import Agent

_LONGEST_NAME = 100
_LONGEST_TEXT = 4096
_MOST_ENTRIES = 1000


def bounded_failure(failure: Failure) -> Failure:
    """A failure from an agent, its texts bounded."""
    return replace(
        failure,
        failure_class=failure.failure_class[:_LONGEST_NAME],
        subject=failure.subject[:_LONGEST_TEXT],
        cause=failure.cause[:_LONGEST_TEXT],
        remedy=failure.remedy[:_LONGEST_TEXT],
    )


def bounded_flags(flags: Iterable[ValidityFlag]) -> tuple[ValidityFlag, ...]:
    """Validity flags from an agent, their texts bounded; the server's registry decides what they mean.

    A flag that the registry does not know, say from a newer agent, is kept and invalidates.
    """
    return tuple(
        ValidityFlag.of_kind(flag.name[:_LONGEST_NAME], flag.detail[:_LONGEST_TEXT])
        for flag in list(flags)[:_MOST_ENTRIES]
    )


def bounded_log(log: AttemptLog) -> AttemptLog:
    """An attempt's log; a text that is too long keeps its beginning and end."""
    environment = {
        name[:_LONGEST_TEXT]: log.environment[name][:_LONGEST_TEXT]
        for name in sorted(log.environment)[:_MOST_ENTRIES]
    }
    return AttemptLog(
        tuple(word[:_LONGEST_TEXT] for word in log.command[:_MOST_ENTRIES]),
        environment,
        bounded_text(log.text),
        _json_object(log.telemetry_json, LONGEST_LOG_CHARACTERS),
        log.wall_seconds if 0 <= log.wall_seconds < math.inf else 0.0,
        _json_object(log.facts_json, MOST_BYTES),
    )


def _json_object(text: str, longest: int) -> str:
    """The text, or "" if it is not a JSON object or is too long to keep."""
    if len(text) > longest:
        return ""
    try:
        return text if isinstance(json.loads(text), dict) else ""
    except (ValueError, RecursionError):
        return ""


def agent_of(registration: Registration) -> Agent:
    """The agent that registers; raises ParameterError for an invalid registration."""
    slots = registration.slots
    identifiers = {slot.slot_id for slot in slots}
    if (
        not registration.agent_id
        or not registration.session_id
        or len(identifiers) != len(slots)
        or "" in identifiers
    ):
        raise ParameterError(
            f"agent {registration.name!r}",
            "its registration lacks an identifier, or names a slot twice",
            "run the same release of Assay on agent and server",
        )
    devices = tuple(_bounded_device(device) for device in registration.inventory.devices)
    return Agent(
        agent_id=registration.agent_id,
        session_id=registration.session_id,
        name=_name(registration.name or registration.agent_id),
        inventory=replace(registration.inventory, devices=devices),
        slots=tuple(_bounded_slot(slot) for slot in slots),
        seen_at_ms=0,
        place=registration.place[:_LONGEST_TEXT],
    )


def _name(text: str) -> str:
    """A name as it is shown to people: short, and without characters that could steer their terminal."""
    return "".join(each if each.isprintable() else "?" for each in text[:_LONGEST_NAME])


def _bounded_slot(slot: Slot) -> Slot:
    device = None if slot.device is None else _bounded_device(slot.device)
    return replace(slot, quarantine_reason=slot.quarantine_reason[:_LONGEST_TEXT], device=device)


def _bounded_device(device: InstalledDevice) -> InstalledDevice:
    return replace(device, problem=device.problem[:_LONGEST_TEXT], left_out=device.left_out[:_LONGEST_TEXT])
