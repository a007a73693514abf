"""Samples that somebody else keeps to himself: readers say so, and show the others."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.sampled import write_samples
from support.written_runs import MakeRun

pytestmark = pytest.mark.skipif(
    os.geteuid() == 0 and not shutil.which("setpriv"), reason="root may read everything"
)
READERS = """
import json, sys
from pathlib import Path
import rla_client.database
from rla_client.mcp.tools import Tools
from rla_client.web.run_overview import overview
from rla_client.web.run_registry import Site
from rla_client.web.sample_list import listing
root, run = Path(sys.argv[1]), sys.argv[2]
database, site = rla_client.database.open(root), Site([root])
site.look(wait=True)
asked = {"run": f"0/task/{run}"}
page = listing(site, asked)
print(json.dumps({
    "assistant": Tools(database).samples(run),
    "page": [page["count"], page["unread"], overview(site, asked)["samples"]],
    "sql": database.sql("SELECT count(*) FROM samples").fetchone(),
}))
"""


def humble(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run Python without root's right to read everything."""
    drop = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    command = [*drop, sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["folder", "file"])
def test_closed_samples_are_told_of_and_the_others_shown(root: Path, make_run: MakeRun, closed: str) -> None:
    pytest.importorskip("duckdb")
    pytest.importorskip("mcp")
    theirs, mine = make_run(number=1, table="task"), make_run(number=2, table="task")
    for index in (theirs, mine):
        write_samples(root, "task", index, [(1, [{"completion": "yes"}] * 3)])
    other = write_samples(root, "task", mine, [(1, [{"completion": "no"}] * 2)], label="rank-1")
    shut = root / "samples" / "task" / theirs if closed == "folder" else other
    run, left = (theirs, 0) if closed == "folder" else (mine, 3)
    shut.chmod(0)
    try:
        listed = humble("-m", "rla_client.cli.app", "samples", run, "--csv", "-d", root)
        read = humble("-c", READERS, root, run)
    finally:
        shut.chmod(0o755)
    message = f"left out, as you may not read it: {shut}"
    assert listed.returncode == 0, listed.stderr
    assert message in listed.stderr
    assert len(listed.stdout.splitlines()) - 1 == left
    assert read.returncode == 0, read.stderr
    assert message in read.stderr
    found = json.loads(read.stdout)
    assert f"may not read it: {shut}" in found["assistant"]
    assert ("no samples" in found["assistant"]) is (left == 0)
    assert found["page"] == [left, [str(shut)], True]
    assert found["sql"] == [5 if closed == "folder" else 6]
