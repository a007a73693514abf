"""All ranks of a resumed job go on at the same point: two real ranks of torchrun, killed and run again."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.ports import free_port
from support.spooled import bare_opening

from rla_client.database.imports.tensorboard import read_points
from rla_client.run.rank_meeting import Meeting, await_resumed
from rla_client.run.rank_variables import RANK_VARIABLES
from rla_client.run.run_mode import MODE_VARIABLE

LONG_AGO_S = 10 * 86400.0  # before this process of the tests began, however long it has run
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "clusters.md"
HEAD = """
import json, os, signal, sys, time
import torch
import torch.distributed as dist
from rla_client import exp_manager, logger, time_step_holder
dist.init_process_group("gloo")
rank = dist.get_rank()
data_root = sys.argv[1] if rank == 0 or len(sys.argv) < 4 else sys.argv[3]
config = {"LOG_USED": ["csv"], "PROJECT_TYPE": {"backup_code_by": "source"},
          "BACKUP_CONFIG": {"backup_code_dir": ["nothing"]}}
from functools import partial
exp_manager.configure = partial(exp_manager.configure, code_root=data_root)
"""
SEEING = """
while rank and not os.path.exists(f"{sys.argv[2]}.trained"):  # rank 0 has newer checkpoints by then
    time.sleep(0.01)
exp_manager.configure("ddp", config, data_root, run_id="ddp-1", resume="allow")
exp_manager.set_hyper_param(lr=0.1)
exp_manager.log_files_gen()
start, content = exp_manager.load_checkpoint() if exp_manager.resumed_from is not None else (0, None)
"""
TRAINING = """
found = {"start": start, "resumed": exp_manager.resumed, "clock": time_step_holder.get_time(),
         "epoch": exp_manager.get_custom_data("epoch"), "random": torch.rand(1).item(),
         "w": None if content is None else content["w"].tolist()}
json.dump(found, open(f"{sys.argv[2]}.{rank}", "w"))
exp_manager.new_saver(max_to_keep=1)
for step in range(start + 1, 121):
    time_step_holder.set_time(step)
    logger.record_tabular("x", step)
    logger.dump_tabular()
    if step % 33 == 0:
        exp_manager.add_custom_data("epoch", step // 33, mode="replace")
        exp_manager.save_checkpoint({"w": torch.full((2,), float(step))})
if rank == 0:
    assert exp_manager.flush(60)
    open(f"{sys.argv[2]}.trained", "w").close()
dist.barrier()
if start == 0:
    os.kill(os.getpid(), signal.SIGKILL)
"""


def launch(script: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Two ranks under torchrun, their temporary files beside the script."""
    (script.parent / "tmp").mkdir(exist_ok=True)
    command = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port())]
    return subprocess.run(
        [sys.executable, *command, script, *map(str, arguments)], capture_output=True, text=True, check=False,
        timeout=400, env={**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(script.parent / "tmp")},
    )  # fmt: skip


def documented() -> str:
    """The snippet of the document's section on ranks."""
    section = DOCUMENT.read_text().split("## Ranks", 1)[1]
    return section.split("```python\n", 1)[1].split("```", 1)[0]


@pytest.mark.slow
@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize("way", ["each sees it", pytest.param("broadcast", marks=pytest.mark.further)])
def test_both_ranks_go_on_at_the_same_checkpoint(tmp_path: Path, way: str) -> None:
    data, other = tmp_path / "data", tmp_path / "other"
    data.mkdir()
    script = tmp_path / "train.py"
    script.write_text(HEAD + (SEEING if way == "each sees it" else documented()) + TRAINING)
    roots = [] if way == "each sees it" else [other]
    assert launch(script, data, tmp_path / "first", *roots).returncode != 0
    again = launch(script, data, tmp_path / "second", *roots)
    assert again.returncode == 0, again.stderr
    first, second = (
        [json.loads((tmp_path / f"{name}.{rank}").read_text()) for rank in (0, 1)]
        for name in ("first", "second")
    )
    assert [found["start"] for found in first] == [0, 0]
    assert [found["start"] for found in second] == [99, 99]
    assert [found["w"] for found in second] == [[99.0, 99.0]] * 2
    if way == "each sees it":
        same = [(found["resumed"], found["clock"], found["epoch"]) for found in second]
        assert same == [(True, 99, 3)] * 2
        assert second[0]["random"] != second[1]["random"], "rank 0's generators are its own"
    assert len(list(data.glob("log/ddp/*/*/*/*"))) == 1
    assert not other.exists()


@pytest.mark.slow
@pytest.mark.usefixtures("agent")
@pytest.mark.further
def test_the_rows_of_every_rank_go_on_at_the_checkpoint(
    tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    data, script = tmp_path / "data", tmp_path / "train.py"
    data.mkdir()
    head = HEAD.replace('["csv"]', '["csv", "tensorboard"]')
    script.write_text(head + SEEING.replace("log_files_gen()", "log_files_gen(all_ranks=True)") + TRAINING)
    assert launch(script, data, tmp_path / "first").returncode != 0
    (log,) = data.glob("log/ddp/*/*/*/*")
    mine = log / "progress.rank1.csv"

    def steps(table: Path) -> list[int]:
        return [int(row["time-step"]) for row in csv.DictReader(table.read_text().splitlines())]

    def event_steps(folder: str) -> list[float]:
        files = sorted((log / "tb" / folder).iterdir())
        return [step for file in files for tag, step, *_ in read_points(file) if tag == "x"]

    wait_until(lambda: steps(mine) == event_steps("rank1") == list(range(1, 121)))
    again = launch(script, data, tmp_path / "second")
    assert again.returncode == 0, again.stderr
    for table in (mine, log / "progress.csv"):
        wait_until(lambda table=table: steps(table) == list(range(1, 121)))
        assert steps(log / "abandoned-1" / table.name) == list(range(100, 121))
    assert sorted(path.name for path in log.glob("progress.*")) == ["progress.csv", "progress.rank1.csv"]
    for folder in ("rank1", "events"):
        wait_until(lambda folder=folder: event_steps(folder) == list(range(1, 121)))


@pytest.mark.further
@pytest.mark.slow
def test_without_a_launcher_the_newest_checkpoint_is_seen_and_the_run_left_as_it_is(
    agent: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., Any]
) -> None:
    assert agent.alive
    script = (
        "import os, sys, torch\n"
        "from rla_client import exp_manager, time_step_holder\n"
        "exp_manager.configure('t', {'LOG_USED': ['csv']}, sys.argv[1], code_root=sys.argv[1],\n"
        "                      run_id='one', resume='allow')\n"
        "exp_manager.set_hyper_param(lr=1)\n"
        "exp_manager.log_files_gen()\n"
        "if len(sys.argv) > 2:\n"
        "    index = exp_manager.resumed_from\n"
        "    looked = exp_manager.resume(sys.argv[2])\n"
        "    print(index, exp_manager.load_checkpoint(), looked[0])\n"
        "else:\n"
        "    time_step_holder.set_time(5)\n"
        "    exp_manager.save_checkpoint({'w': 1.5})\n"
        "    assert exp_manager.flush(60)\n"
        "    print(exp_manager.log_dir)\n"
        "    sys.stdout.flush()\n"
        "    os._exit(1)\n"
    )

    def run(*arguments: str) -> str:
        command = [sys.executable, "-c", script, str(tmp_path), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False).stdout

    log = Path(run().strip().splitlines()[-1])
    index = "/".join(log.parts[-4:])
    wait_until(lambda: json.loads((log / "run.json").read_text())["state"] == "killed")

    def paths() -> list[Path]:
        """All but those of the agent, whose spool comes and goes."""
        tops = [path for path in tmp_path.iterdir() if path.name != "state"]
        return sorted(path for top in tops for path in (top, *top.rglob("*")))

    before = paths()
    monkeypatch.setenv(MODE_VARIABLE, "disabled")
    assert run(index).strip().splitlines()[-1] == "None (5, {'w': 1.5}) 5"
    monkeypatch.delenv(MODE_VARIABLE)
    monkeypatch.setenv(RANK_VARIABLES[0], "1")
    assert run(index).strip().splitlines()[-1] == "5 (5, {'w': 1.5}) 5"
    assert paths() == before, "only read"


def test_what_a_former_attempt_said_does_not_count(tmp_path: Path) -> None:
    """It ran on this machine and is gone, or it was long ago."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    host = os.uname().nodename
    elsewhere = bare_opening(host="other", pid=1).to_fields()
    for opening, age_s in (
        (bare_opening(host=host, pid=gone.pid).to_fields(), 0.0),
        (elsewhere, LONG_AGO_S),
    ):
        path = tmp_path / "meeting.json"
        path.write_text(json.dumps({"opening": opening, "time": time.time() - age_s, "resumed": None}))
        assert await_resumed(Meeting("", path), str(tmp_path), wait_s=0.1) is None
    path.write_text(json.dumps({"opening": elsewhere, "time": time.time()}))
    found = await_resumed(Meeting("", path), str(tmp_path), wait_s=0.1)
    assert found is not None
    assert found.item is None
