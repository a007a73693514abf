"""The examples of docs/examples.md and their pictures.

`PYTHONPATH=tests python -m support.example_pictures FOLDER` makes these.

Each example runs in a small copy of the repository, with the machine's agent, and says how long it took.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
RLA = (sys.executable, "-m", "rla_client.cli.app")


@dataclass(frozen=True)
class Example:
    """Command lines below examples/, what makes them short in a test, and the line that draws the picture.

    `kill`: the first command line ends itself by SIGKILL. `modules`: what it imports, of what may be missing.
    """

    name: str
    lines: tuple[str, ...]
    short: str
    picture: str
    kill: bool = False
    modules: tuple[str, ...] = ("torch", "gymnasium", "matplotlib")

    def play(self, folder: Path, *, short: bool) -> Path:
        """Run it in `folder` and draw; the path of the picture."""
        shutil.copytree(EXAMPLES, folder / "examples")
        shutil.copy(EXAMPLES.parent / "rla_config.yaml", folder)
        _run(
            ["git", "init", "--quiet"], folder
        )  # as in a clone: what tells the launcher where its project ends
        for number, line in enumerate(self.lines):
            words = shlex.split(f"{line} {self.short}" if short else line)
            wanted = -signal.SIGKILL if self.kill and number == 0 else 0
            program = [*RLA, "sweep"] if words[0].endswith(".yaml") else [sys.executable]
            _run([*program, f"examples/{words[0]}", *words[1:]], folder, wanted)
        picture = folder / f"{self.name}.png"
        if self.picture:
            _run([*RLA, "plot", *shlex.split(self.picture), "--out", str(picture)], folder)
        return picture


def _run(command: list[str], folder: Path, wanted: int = 0) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # as where the environment is activated
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != wanted:
        message = f"{shlex.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        raise RuntimeError(message)


GRPO = Example(
    "grpo", ("grpo_tiny.py",), "--steps 2", "train/reward -d data", modules=("trl", "datasets", "matplotlib")
)
ALL = (
    Example("ppo", ("ppo_cartpole.py --data-root data",), "--timesteps 8192", "perf/return -d data"),
    Example("dqn", ("dqn_cartpole.py",), "--timesteps 3000", "perf/return -d data"),
    Example("sac", ("sac_pendulum.py",), "--timesteps 2400", "perf/mean_10 -d data"),
    Example(
        "cleanrl",
        ("cleanrl_ppo.py --total-timesteps 30000",),
        "--total-timesteps 3000",
        "episodic_return -d data --smooth 9",
    ),
    Example(
        "sb3",
        ("sb3_ppo.py --timesteps 30000",),
        "--timesteps 4096 --save-freq 2048",
        "rollout/ep_rew_mean -d data",
        modules=("stable_baselines3",),
    ),
    Example("seeds", ("seeds.py",), "--seeds 3 --iterations 5", ""),
    Example(
        "resume",
        ("resume.py --data-root data --kill-at 350", "resume.py --data-root data"),
        "--steps 400",
        "loss/mean_20 -d data",
        kill=True,
    ),
    Example(
        "two_machines",
        ("two_machines.py",),
        "--timesteps 60000",
        "perf/return -d two_machines/master/data",
    ),
    Example("sweep", ("sweep.yaml --data-root data",), "", "perf/return --group lr -d data"),
    Example("garage", ("garage_style.py",), "", "perf/return perf/best -d data"),
    GRPO,
)


def main() -> None:
    """Make the pictures in the folder that the command line names."""
    target = Path(sys.argv[1]).absolute()
    chosen = sys.argv[2:] or [example.name for example in ALL]
    for example in (one for one in ALL if one.name in chosen):
        with tempfile.TemporaryDirectory(prefix="rla-example-") as folder:
            began = time.monotonic()
            picture = example.play(Path(folder), short=False)
            os.makedirs(target, exist_ok=True)
            shutil.copy(picture, target)
            sys.stdout.write(f"{example.name}: {time.monotonic() - began:.0f} s\n")


if __name__ == "__main__":
    main()
