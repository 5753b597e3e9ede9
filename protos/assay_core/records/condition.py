"""Conversion of a run's level and condition to and from protobuf; the values are the pure library's."""

from __future__ import annotations

from typing import get_args

from assay_core.records.wire import ClosedSet, convert_by
from assay_protos import common_pb2
from assay_sampling.running.identity import CacheCondition, ClockCondition, Condition, RunLevel, SmShareKind

LEVELS: ClosedSet[RunLevel] = ClosedSet(common_pb2.Level, get_args(RunLevel))
_CACHES: ClosedSet[CacheCondition] = ClosedSet(common_pb2.Cache, get_args(CacheCondition))
_CLOCKS: ClosedSet[ClockCondition] = ClosedSet(common_pb2.Clock, get_args(ClockCondition))
_SM_SHARES: ClosedSet[SmShareKind] = ClosedSet(common_pb2.SmShare, get_args(SmShareKind))


def condition_to_proto(condition: Condition) -> common_pb2.Condition:
    """A condition as a message, without the fields that were not recorded."""
    return common_pb2.Condition(
        cache=None if condition.cache is None else _CACHES.to_proto(condition.cache),
        clock=None if condition.clock is None else _CLOCKS.to_proto(condition.clock),
        sm_percent=condition.sm_percent or 0.0,
        sm_share=_SM_SHARES.to_proto(condition.sm_share),
    )


def condition_from_proto(message: common_pb2.Condition, subject: str) -> Condition:
    """A condition from a message about ``subject``; raises WireError for unknown values."""
    return Condition(
        cache=_CACHES.optional_from_proto(message.cache, subject),
        clock=_CLOCKS.optional_from_proto(message.clock, subject),
        sm_percent=message.sm_percent or None,
        sm_share=_SM_SHARES.optional_from_proto(message.sm_share, subject) or "limit",
    )


convert_by(Condition, condition_to_proto, condition_from_proto)
convert_by(RunLevel, LEVELS.to_proto, LEVELS.from_proto)
