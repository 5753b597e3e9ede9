"""The parts of the documentation that are made from the code; run as a program, this module writes them.

Such a part lies between ``<!-- generated: NAME -->`` and ``<!-- end -->`` in a page; the rest is by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from assay_agent.config import AgentSettings
from assay_client.remote.lab_model import AgentsDocument, BudgetsDocument, GpusDocument, QueueDocument
from assay_client.settings import ClientSettings
from assay_core.identity.roles import Role
from assay_core.settings.table import settings_table
from assay_report.model.report import Report
from assay_sampling.counters.simulated import simulated_counters
from assay_sampling.documents.base import Part
from assay_sampling.documents.designs import DesignsDocument
from assay_sampling.documents.handover import HandOverDocument, SimulationDocument
from assay_sampling.documents.reference import field_tables, schema_text
from assay_sampling.documents.selection import SelectionDocument
from assay_sampling.methods.parameter_help import parameter_table
from assay_sampling.methods.registry import samplers
from assay_sampling.notes.registry import note_table
from assay_sampling.running.failures import FailureClass
from assay_sampling.running.validity import flag_table
from assay_sampling.verdicts.rules import rule_table
from assay_server.access.table import RULES
from assay_server.config import ServerSettings
from assay_server.limits import CAMPAIGN_FILE_LIMITS, DEFAULT_LIMITS, JOIN_LIMITS, limit_table
from assay_virtual.sensors import FAULTS as SENSOR_FAULTS
from assay_virtual.tools.faults import FAULTS
from tests.bench.scale import cost_model
from tests.support.client.python_names import python_names
from tests.support.page_index import SECTIONS, page_table
from tests.support.room_tables import PACKAGES, room_table

DOCS = Path(__file__).resolve().parents[2] / "docs"


def _parameters(method: str) -> str:
    return parameter_table(samplers()[method].parameters)


def _simulated_counters() -> str:
    rows = ["| counter | unit | statistic | meaning |", "|---|---|---|---|"]
    for each in simulated_counters().values():
        statistic = f"`{each.statistic}`" if each.statistic else ""
        rows.append(f"| `{each.name}` | {each.unit} | {statistic} | {each.help} |")
    return "\n".join(rows)


def _calls_and_roles() -> str:
    rows = [f"| call | {' | '.join(Role)} | owner of the socket | in the audit log |", "|---|" + "---|" * 7]
    for path, rule in RULES.items():
        may = ["yes" if role in rule.roles else "" for role in Role]
        if rule.seen_campaign or rule.seen_run or rule.lists_campaigns:
            for role in (Role.VIEWER, Role.SUBMITTER):
                may[list(Role).index(role)] = "of campaigns seen"
        if rule.own_campaign:
            may[list(Role).index(Role.SUBMITTER)] = "own campaigns"
        who = ["anybody, where people join", *[""] * 5] if rule.open else [*may, "yes"]
        cells = [*who, "yes" if rule.audited else ""]
        rows.append(f"| `{path.rpartition('.')[2]}` | {' | '.join(cells)} |")
    return "\n".join(rows)


def _python_names() -> str:
    return "\n".join(("```", *python_names(), "```"))


def _failures() -> str:
    rows = ["| class | what happened | what to do | tried again | whose fault |", "|---|---|---|---|---|"]
    for each in FailureClass:
        tried_again = "yes" if each.retryable else "no"
        rows.append(f"| `{each.value}` | {each.meaning} | {each.remedy} | {tried_again} | {each.fault} |")
    return "\n".join(rows)


def _switches(faults: Mapping[str, str]) -> str:
    rows = [f"| `{name}` | {effect} |" for name, effect in faults.items()]
    return "\n".join(["| switch | what happens |", "|---|---|", *rows])


def _cost_model() -> str:
    return cost_model.page(cost_model.measured(cost_model.MEASURED.read_text().splitlines()))


PARTS: Mapping[str, Callable[[], str]] = {
    **{f"parameters-{method}": partial(_parameters, method) for method in samplers()},
    **{f"rooms-{package}": partial(room_table, package) for package in PACKAGES},
    **{f"pages-{section}": partial(page_table, section) for section in SECTIONS},
    "limits-campaign-files": partial(limit_table, CAMPAIGN_FILE_LIMITS),
    "limits-joins": partial(limit_table, JOIN_LIMITS),
    **{f"limits-{name}": partial(limit_table, group) for name, group in vars(DEFAULT_LIMITS).items()},
    "tool-faults": lambda: _switches(FAULTS),
    "sensor-faults": lambda: _switches(SENSOR_FAULTS),
    "simulated-counters": _simulated_counters,
    "failures": _failures,
    "calls-and-roles": _calls_and_roles,
    "notes": note_table,
    "run-flags": partial(flag_table, "run"),
    "result-flags": partial(flag_table, "result"),
    "verdict-rules": rule_table,
    "python-names": _python_names,
    "cost-model": _cost_model,
    "designs-fields": lambda: field_tables(DesignsDocument),
    "handover-fields": lambda: field_tables(HandOverDocument),
    "simulation-fields": lambda: field_tables(SimulationDocument),
    "report-fields": lambda: field_tables(Report),
    "selection-fields": lambda: field_tables(SelectionDocument),
    "agents-fields": lambda: field_tables(AgentsDocument),
    "gpus-fields": lambda: field_tables(GpusDocument),
    "queue-fields": lambda: field_tables(QueueDocument),
    "budgets-fields": lambda: field_tables(BudgetsDocument),
    "server-settings": lambda: settings_table(ServerSettings),
    "agent-settings": lambda: settings_table(AgentSettings),
    "client-settings": lambda: settings_table(ClientSettings),
}
# The published schemas, in docs/schemas.
SCHEMAS: Mapping[str, type[Part]] = {
    "agents.schema.json": AgentsDocument,
    "budget.schema.json": BudgetsDocument,
    "designs.schema.json": DesignsDocument,
    "gpus.schema.json": GpusDocument,
    "handover.schema.json": HandOverDocument,
    "queue.schema.json": QueueDocument,
    "report.schema.json": Report,
    "selection.schema.json": SelectionDocument,
    "simulation.schema.json": SimulationDocument,
}
_PART = re.compile(r"(<!-- generated: ([a-z0-9_-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def regenerated(page: str) -> str:
    """A page with its generated parts made anew; raises KeyError for a part that nothing makes."""
    return _PART.sub(lambda found: f"{found[1]}{PARTS[found[2]]()}\n{found[3]}", page)


def pages() -> list[Path]:
    """The pages that have generated parts."""
    return [path for path in sorted(DOCS.rglob("*.md")) if _PART.search(path.read_text())]


if __name__ == "__main__":
    for path in pages():
        path.write_text(regenerated(path.read_text()))
    for name, model in SCHEMAS.items():
        (DOCS / "schemas" / name).write_text(schema_text(model))
