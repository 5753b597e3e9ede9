"""What several services' tests share: PostgreSQL with a fresh database for each test, and the Helm chart."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.chart import CHART, Document, Render, documents
from tests.services.packages import folder_of, import_from, why_not
from tests.services.postgresql import OwnPostgresql, programs


@pytest.fixture(scope="session")
def own_postgresql() -> Iterator[OwnPostgresql]:
    """A server of the tests' own; tests that kill it start it again."""
    if not os.environ.get("ASSAY_SERVICES") or programs() is None:
        pytest.skip("make test-services has a PostgreSQL")
    with OwnPostgresql() as own:
        yield own


@pytest.fixture
def fresh_database(own_postgresql: OwnPostgresql) -> str:
    """The URL of an empty database."""
    own_postgresql.administrate(
        "DROP DATABASE IF EXISTS fresh WITH (FORCE)", "CREATE DATABASE fresh", database="postgres"
    )
    return own_postgresql.url("fresh")


@pytest.fixture(scope="session")
def chart_packages() -> None:
    """Helm's library and Kubernetes' schemas can be imported."""
    given = os.environ.get("ASSAY_SERVICES")
    if not given:
        pytest.skip("'make test-services' runs it")
    folder = folder_of(Path(given), "chart")
    if reason := why_not(folder):
        pytest.skip(f"no Helm: {reason}")
    import_from(folder)


@pytest.fixture(scope="session")
def render(chart_packages: None) -> Iterator[Render]:
    with importlib.import_module("helm_python.chart").Chart.load(str(CHART)) as chart:

        def rendered(values: Document, name: str = "assay", namespace: str = "lab") -> list[Document]:
            return documents(chart.render(values, name=name, namespace=namespace))

        yield rendered
