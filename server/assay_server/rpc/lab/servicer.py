"""The LabService of assay_protos: agents and the queue, the audit log, and people's roles."""

from __future__ import annotations

from typing import Any

import grpc

from assay_core.records.lab import AuditAsked, BudgetChange, BudgetsAsked, LabQuestion, RoleChange
from assay_protos import lab_pb2_grpc
from assay_server.access.people import PeopleHandler
from assay_server.campaigns.budgets import BudgetHandler
from assay_server.rpc.lab.handler import LabHandler
from assay_server.rpc.threads import Threads, sent

Context = grpc.aio.ServicerContext[Any, Any]


class LabServicer(lab_pb2_grpc.LabServiceServicer):
    """What people and admins ask about a lab."""

    def __init__(
        self, people: PeopleHandler, lab: LabHandler, budgets: BudgetHandler, threads: Threads
    ) -> None:
        self._people = people
        self._lab = lab
        self._budgets = budgets
        self._threads = threads

    async def ReadAudit(self, request: Any, context: Context) -> Any:
        read = AuditAsked.from_proto
        return await sent(context, self._threads.people, self._people.read_audit, read, request)

    async def SetRole(self, request: Any, context: Context) -> Any:
        read = RoleChange.from_proto
        return await sent(context, self._threads.people, self._people.set_role, read, request)

    async def ListBudgets(self, request: Any, context: Context) -> Any:
        read = BudgetsAsked.from_proto
        return await sent(context, self._threads.people, self._budgets.budgets, read, request)

    async def SetBudget(self, request: Any, context: Context) -> Any:
        read = BudgetChange.from_proto
        return await sent(context, self._threads.people, self._budgets.set_budget, read, request)

    async def ListAgents(self, request: Any, context: Context) -> Any:
        read = LabQuestion.from_proto
        return await sent(context, self._threads.status, self._lab.agents, read, request)

    async def GetQueue(self, request: Any, context: Context) -> Any:
        read = LabQuestion.from_proto
        return await sent(context, self._threads.status, self._lab.queue, read, request)
