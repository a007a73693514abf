"""Scripts that several ranks run, started by torchrun."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.ports import free_port

HEAD = """
import json, os, sys, time
from pathlib import Path
import torch
import torch.distributed as dist
torch.set_num_threads(1)
data_root, out = sys.argv[1], Path(sys.argv[2])
config = {"LOG_USED": ["csv"], "PROJECT_TYPE": {"backup_code_by": "source"},
          "BACKUP_CONFIG": {"backup_code_dir": ["nothing"]}}
from functools import partial
from rla_client import exp_manager, time_step_holder
exp_manager.configure = partial(exp_manager.configure, code_root=data_root)
"""


def command(script: Path, world: int, *arguments: object, restarts: int = 0) -> dict[str, Any]:
    folder = script.parent
    launcher = [
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        str(world),
        "--master-port",
        str(free_port()),
        "--max-restarts",
        str(restarts),
    ]
    told = [str(folder / "data"), str(folder), *map(str, arguments)]
    return {
        "args": [sys.executable, *launcher, str(script), *told],
        "env": {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(folder / "tmp")},
        "text": True,
    }


def run(script: Path, world: int, *arguments: object, restarts: int = 0) -> subprocess.CompletedProcess[str]:
    started = command(script, world, *arguments, restarts=restarts)
    done = subprocess.run(**started, capture_output=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-5000:]
    return done
