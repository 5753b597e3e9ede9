"""The example notebook runs from its first cell to its last, and is kept without outputs."""

from __future__ import annotations

from pathlib import Path

import nbclient
import nbformat
import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "notebook.ipynb"


@pytest.mark.processes
def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The kernel and its settings belong to this test, whoever runs it.
    for variable in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(EXAMPLE, as_version=4)
    nbclient.NotebookClient(
        notebook,
        startup_timeout=200,
        timeout=200,
        resources={"metadata": {"path": str(tmp_path)}},
    ).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    pages = [output["data"]["text/html"] for output in shown if "text/html" in output.get("data", {})]
    assert len(pages) == 6
    drawn = [output["data"]["image/svg+xml"] for output in shown if "image/svg+xml" in output.get("data", {})]
    assert len(drawn) == 4 and all("(synthetic)" in svg for svg in drawn)
    assert any("<strong>Selection</strong>" in page and "synthetic" in page for page in pages)


def test_the_example_is_kept_without_outputs() -> None:
    notebook = nbformat.read(EXAMPLE, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [(cell.outputs, cell.execution_count) for cell in code] == [([], None)] * len(code)
    assert "synthetic" in notebook.cells[0].source
