"""A project whose training processes do what they are told, with a master: for tests of replication."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from support.replication_lab import Sshd, tree
from support.waiting import TIME_FACTOR

SYNC_S = 3600.0  # that a training waits for the master, when it is told to; what waits in vain hangs
STORES = ("code/.objects/", ".rla")  # of this machine alone
TRAINING = f"""
import sys
from pathlib import Path
from rla_client import exp_manager, logger

root, config, number = sys.argv[1:4]
exp_manager.configure("table", rla_config=config, data_root=root, is_master_node="master" in sys.argv)
exp_manager.set_hyper_param(lr=0.1)
exp_manager.log_files_gen()
print(exp_manager.log_dir, flush=True)
done = 0
for line in sys.stdin:
    word, _, count = line.strip().partition(" ")
    if word == "rows":
        for _ in range(int(count)):
            done += 1
            exp_manager.set_timestep(done)
            logger.record_tabular("number", done)
            logger.record_tabular("text", "x" * (done % 97) + ',"' + chr(10))
            if done % 50 == 0:
                logger.record_tabular(f"late{{done // 500}}", done)
            logger.dump_tabular()
        print(done, flush=True)
    elif word == "checkpoint":
        import torch
        exp_manager.new_saver(max_to_keep=2)
        for step in range(int(count)):
            exp_manager.set_timestep(done + step)
            exp_manager.save_checkpoint({{"w": torch.ones(200_000) * step}})
        Path(exp_manager.results_dir, "own").mkdir(exist_ok=True)
        Path(exp_manager.results_dir, "own", "kept.bin").write_bytes(bytes(70_000))
        Path(exp_manager.tmp_data_dir, "scratch.txt").write_text("scratch")
        print(exp_manager.flush(60), flush=True)
    elif word == "sync":
        print(exp_manager.sync_log_file(wait=count == "wait", timeout={SYNC_S}), flush=True)
    else:
        break
"""


class Training:
    """A training process that does what it is told."""

    def __init__(self, folder: Path, config: Path, *words: str, **environment: str) -> None:
        self.script = folder / "training.py"
        self.script.write_text(TRAINING)
        self.root = folder / "data"
        self.root.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            [sys.executable, str(self.script), str(self.root), str(config), "1", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={**os.environ, **environment},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._told, self._said = self.process.stdin, self.process.stdout
        self.log = Path(next(line.strip() for line in self._said if line.startswith("/")))

    def tell(self, words: str) -> str:
        """Have it do something; what it says when that is done."""
        self._told.write(words + "\n")
        for line in self._said:
            if line.strip() == "True" or line.strip() == "False" or line.strip().isdigit():
                return line.strip()
        raise AssertionError("the training process ended early")

    def close(self) -> None:
        for stream in (self._told, self._said):
            with suppress(OSError):
                stream.close()

    def end(self) -> None:
        self._told.close()
        assert self.process.wait(30 * TIME_FACTOR) == 0


class Project:
    """A project folder whose runs go to `master`."""

    def __init__(self, folder: Path, master: Sshd, remote: dict[str, object] | None = None) -> None:
        self.folder = folder
        folder.mkdir()
        self.root = folder / "data"
        self.master = master
        self.config = folder / "rla_config.yaml"
        self.trainings: list[Training] = []
        self.content: dict[str, Any] = {
            "LOG_USED": ["csv", "tensorboard", "log"],
            "SEND_LOG_FILE": True,
            "BACKUP_CONFIG": {"backup_code_dir": ["training.py"]},
            "REMOTE_SETTING": master.remote() if remote is None else remote,
        }
        self.write_config()

    def write_config(self) -> None:
        self.config.write_text(yaml.safe_dump(self.content))

    def train(self, *words: str, config: Path | None = None, **environment: str) -> Training:
        self.trainings.append(Training(self.folder, config or self.config, *words, **environment))
        return self.trainings[-1]

    def end(self) -> None:
        """Kill what still trains."""
        for training in self.trainings:
            training.process.kill()
            training.process.wait()
            training.close()

    def there(self, path: Path) -> Path:
        """Where a file of the database lies on the master."""
        return self.master.root / path.relative_to(self.root.resolve())

    def here(self) -> dict[str, str]:
        found = tree(self.root)
        return {
            path: sha for path, sha in found.items() if not path.startswith(STORES) and ".rla-tmp" not in path
        }

    def differences(self) -> dict[str, list[str]]:
        here, there = self.here(), tree(self.master.root)
        return {
            "missing": sorted(here.keys() - there.keys()),
            "extra": sorted(there.keys() - here.keys()),
            "other": sorted(path for path in here.keys() & there.keys() if here[path] != there[path]),
        }

    def same(self) -> bool:
        return bool(self.here()) and not any(self.differences().values())
