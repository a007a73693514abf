"""Who may read a run: those whom the umask of the training process lets, whatever the agent's is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SCRIPT = """
import os, sys
import numpy as np
from rla_client import ImgRecorder, exp_manager, logger, time_step_holder

project, root = sys.argv[1:]
sinks = ["csv", "json", "log", "tensorboard", "stdout"]
config = {"LOG_USED": sinks, "AGENT": {"autostart": False, "sample_interval_s": 0.05}}
exp_manager.set_hyper_param(lr=0.001)
exp_manager.configure("table", config, root, code_root=project)
exp_manager.log_files_gen()
for step in range(50):
    time_step_holder.set_time(step)
    logger.record_tabular("a", step)
    if step > 20:
        logger.record_tabular(f"late{step}", step)  # the CSV is widened, again and again
    logger.dump_tabular()
logger.log("some text")
image = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
ImgRecorder.save("below/image", image)
try:
    import torch
except ImportError:
    pass
else:
    exp_manager.new_saver(max_to_keep=2)
    exp_manager.save_checkpoint({"w": torch.zeros(1000)})
    exp_manager.save_checkpoint({"w": torch.zeros(3_000_000)})
print(exp_manager.results_dir, flush=True)
assert exp_manager.flush(150)
"""


@pytest.fixture
def train(agent: Any, tmp_path: Path) -> Callable[[int], Path]:
    """Run the script with a umask; returns the data root."""
    assert agent.alive
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text(SCRIPT)

    def train(umask: int) -> Path:
        root = tmp_path / f"data{umask:o}"
        command = [sys.executable, str(project / "train.py"), str(project), str(root)]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=300, umask=umask, cwd=project
        )
        assert done.returncode == 0, done.stderr
        return root

    return train


@pytest.mark.slow
@pytest.mark.further
def test_a_run_is_as_open_as_the_umask_says(
    train: Callable[[int], Path], agent: Any, wait_until: Callable[..., Any]
) -> None:
    """Files, folders, checkpoints, pictures, code: what the agent makes like what the training makes."""
    for umask in (0o077, 0o027, 0o002, 0o022):
        root = train(umask)
        (run,) = root.glob("log/table/*/*/*/*/run.json")
        wait_until(lambda run=run: '"finished"' in run.read_text(), 30)
        paths = list(root.rglob("*"))
        names = {path.name for path in paths}
        assert {"progress.csv", "run.json", "log.txt", "train.py", "below"} <= names
        assert any("tfevents" in name for name in names)
        assert any(name.endswith("image.png") for name in names)
        for path in paths:
            mode = path.stat().st_mode & 0o777
            assert not mode & umask, (path, oct(mode), oct(umask))
            shared = 0o777 & ~umask if path.is_dir() else 0o444 & ~umask
            assert mode & shared == shared, (path, oct(mode), oct(umask))
        assert run.stat().st_mode & 0o777 == 0o666 & ~umask
        assert run.with_name("progress.csv").stat().st_mode & 0o777 == 0o666 & ~umask


@pytest.mark.further
@pytest.mark.slow
def test_runs_of_the_same_code_do_not_open_each_other(train: Callable[[int], Path], tmp_path: Path) -> None:
    """Equal contents are one file of the store, and a link has the mode of its file."""
    (tmp_path / "data").mkdir(mode=0o755)
    modes: dict[Path, int] = {}
    for umask in (0o022, 0o077, 0o027):
        os.symlink("data", tmp_path / f"data{umask:o}")
        root = train(umask)
        for path in root.resolve().glob("code/table/**/train.py"):
            modes.setdefault(path, path.stat().st_mode & 0o777)
            assert path.stat().st_mode & 0o777 == modes[path]
    assert sorted(modes.values()) == [0o400, 0o440, 0o444]
