"""The notebook of the examples runs in a real kernel: on a look-alike, and on runs that it makes itself."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
RUNS = 6


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_notebook_shows_tables_and_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_runs(tmp_path / "data")
    outputs = execute(tmp_path, monkeypatch)
    kinds = [set(output.get("data", {})) for output in outputs]
    assert sum("image/png" in kind for kind in kinds) >= 3
    tables = [output["data"]["text/html"] for output in outputs if "text/html" in output.get("data", {})]
    assert any(f"newest {RUNS} runs" in table for table in tables)
    assert any("hyper-parameters" in table for table in tables)
    assert any("Interval(point=" in output.get("data", {}).get("text/plain", "") for output in outputs)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_the_notebook_makes_its_own_runs(agent: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="simplest.py, which makes the runs, needs torch")
    outputs = execute(tmp_path, monkeypatch)
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 3
    assert len(list((tmp_path / "data" / "log" / "simplest").glob("*/*/*/*"))) == RUNS


def execute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """All outputs; a cell that raises fails the test with its traceback."""
    nbclient = pytest.importorskip("nbclient", reason="notebooks need nbclient and ipykernel")
    pytest.importorskip("ipykernel", reason="notebooks need nbclient and ipykernel")
    import nbformat

    monkeypatch.setenv("RLA_DATA_ROOT", str(tmp_path / "data"))
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES.parent))
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.delenv("MPLBACKEND", raising=False)
    project = tmp_path / "project"
    shutil.copytree(EXAMPLES, project / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(EXAMPLES.parent / "rla_config.yaml", project)
    notebook = nbformat.read(EXAMPLES / "plot_results.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    assert not any(cell.get("outputs") for cell in notebook.cells), "it is stored without outputs"
    folder = {"metadata": {"path": str(project / "examples")}}
    nbclient.NotebookClient(notebook, timeout=600, resources=folder).execute()
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def write_runs(root: Path) -> None:
    """What six runs of simplest.py leave, in little."""
    import numpy as np
    from matplotlib import image

    for number, (lr, size) in enumerate((lr, size) for lr in (0.02, 0.1) for size in (4, 8, 16)):
        index = f"2026/11/21/09-30-{number:02}-123456_noip_&lr={lr}&input_size={size}"
        for kind in ("log", "hyperparameter", "results"):
            (root / kind / "simplest" / index).mkdir(parents=True)
        rows = [f"{size * (1 - lr) ** step!r},0.5,{step * 50}" for step in range(9)]
        log = root / "log" / "simplest" / index
        (log / "progress.csv").write_text("\n".join(["perf/mse,y/mean,time-step", *rows]) + "\n")
        (log / "run.json").write_text(json.dumps({"format": 1, "state": "finished", "opened": 1.8e9}))
        text = json.dumps({"lr": lr, "input_size": size, "steps": 400})
        (root / "hyperparameter" / "simplest" / index / "parameter.json").write_text(text)
        image.imsave(root / "results" / "simplest" / index / "50-figure.png", np.zeros((4, 6, 3)))
