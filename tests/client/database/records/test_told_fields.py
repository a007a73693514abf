"""One declaration takes a field of a run to every reader."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("duckdb", reason="needs the extra `lake`")

DECLARED = """
from rla_client.database.records import told_fields
from rla_client.database.records.told_fields import ToldField
told_fields.TOLD_FIELDS += (
    ToldField("queue_s", "number", shown_in=("show", "page", "sql")),
    ToldField("queued", "moment", shown_in=("sql",)),
)
"""
READERS = """
import sys
from rla_client.cli.app import main
from rla_client.database import open as open_database
from rla_client.database.records.told_fields import shown_in
db = open_database(sys.argv[1])
print(len(db.records(where="queue_s > 12 and queued > '2026-01-01'")), len(db.records(where="queue_s > 13")))
print(db.sql("SELECT queue_s, CAST(queued AS VARCHAR) FROM runs").fetchall())
print([one.name for one in shown_in("page") if one.name.startswith("queue")])
sys.argv = ["rla", "show", "@last", "-d", sys.argv[1]]
main()
"""


@pytest.mark.slow
def test_a_declared_field_is_known_to_filters_sql_show_and_page(
    root: Path, make_run: Callable[..., str], tmp_path: Path
) -> None:
    index = make_run()
    path = next(root.rglob(f"{Path(index).name}/run.json"))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"queue_s": 12.5, "queued": 1.8e9}))
    (tmp_path / "sitecustomize.py").write_text(DECLARED)  # in the process of the query, too
    script = tmp_path / "readers.py"
    script.write_text(READERS)
    paths = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, script, root],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found, rows, page, *shown = done.stdout.splitlines()
    assert found == "1 0"
    assert rows == "[(12.5, '2027-01-15 08:00:00')]"
    assert page == "['queue_s']"
    assert any(line.split() == ["queue_s", "12.5"] for line in shown)
