"""Hooks that raise: the program's output and exit code are those that it has without capture."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.capture_lab import capture, run_plain
from support.captured_programs import (
    ACCELERATE,
    LIGHTNING,
    MLFLOW,
    PARSERS,
    SWANLAB,
    TRACKIO,
    TRANSFORMERS,
    needs,
    parsing_program,
)

pytestmark = pytest.mark.usefixtures("places")

# the program's own sitecustomize, which runs after ours: whatever a hook calls, or the hook itself, raises
BREAK = """
import importlib, os, sys, types

def broken(name):
    def fail(*args, **kwargs):
        with open(os.environ["BROKEN"], "a") as file:
            file.write(name + "\\n")
        raise RuntimeError("broken for the test")
    return fail

def breaks(module, wanted):
    for name, value in list(vars(module).items()):
        if isinstance(value, types.FunctionType) and value.__module__ == module.__name__ and wanted(name):
            setattr(module, name, broken(module.__name__.rpartition(".")[2] + "." + name))

hooks = "_rla_capture.capture.hooks."
if "_rla_capture" in sys.modules:
    finder = importlib.import_module(hooks + "finder")
    importlib.import_module(hooks + "state").MAX_ERRORS = 1000  # no part is off before all have raised
    for name in ("recorder", "seen_parameters"):
        breaks(importlib.import_module(hooks + name), lambda name: True)
    original = finder.CaptureFinder.apply
    if os.environ["HOW"] == "hooks":
        wanted = lambda name: name == "hook"
    else:
        wanted = lambda name: name != "hook" and not name.endswith(("_maker", "_seer"))

    def apply(self, name, module):
        breaks(importlib.import_module(hooks + self._hooks[name][1]), wanted)
        original(self, name, module)

    finder.CaptureFinder.apply = apply
    finder.install(os.environ["RLA_CAPTURE"])  # what was there already
    breaks(importlib.import_module(hooks + "wandb_replacement"), lambda name: name == "spec_for")
"""

USUAL = """
import argparse, random, sys
import gymnasium, torch
from stable_baselines3 import PPO
import tensorboardX
from torch.utils.tensorboard import SummaryWriter
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=1)
args = parser.parse_args()
env = gymnasium.make("CartPole-v1")
for kind in (SummaryWriter, tensorboardX.SummaryWriter):
    with kind("runs/" + kind.__module__) as writer:
        for step in range(5):
            writer.add_scalar("loss", torch.tensor(1.0), global_step=step)
            writer.add_text("text", "words", step)
        writer.add_scalars("both", {"a": 1.0, "b": 2.0}, 1)
        writer.add_hparams({"lr": 0.1}, {"score": 1.0})
        writer.flush()
model = PPO("MlpPolicy", env, n_steps=16, batch_size=16, n_epochs=1, seed=args.seed, device="cpu")
model.learn(64)
torch.save({"a": 1}, "model.pt")
try:
    import wandb
except ImportError as error:
    print(error)
print("done", random.seed(1), random.random(), model.policy.action_net.bias[0].item())
sys.exit(3)
"""
LIGHT = """
import argparse
from tensorboardX import SummaryWriter
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=1)
print(parser.parse_args())
SummaryWriter("runs/a").add_scalar("loss", 1.0, 1)
"""
WANDB = """
import wandb
run = wandb.init(project="proj", config={"lr": 0.1})
run.define_metric("loss", summary="min")
for step in range(4):
    wandb.log({"loss": step})
wandb.finish()
print("done")
"""
PROGRAMS = {  # library → script, words
    **{library: (parsing_program(library), PARSERS[library][1]) for library in PARSERS},
    "transformers": (TRANSFORMERS, []),
    "lightning": (LIGHTNING, []),
    "accelerate": (ACCELERATE, []),
    "mlflow": (MLFLOW, []),
    "trackio": (TRACKIO, []),
    "swanlab": (SWANLAB, []),
    "wandb": (WANDB, []),
}


def masked(line: bytes) -> bytes:
    return re.sub(rb"[0-9.]+", b"#", line)


def same_as_plain(folder: Path, how: str, script: str, *words: str) -> set[str]:
    """Run a script with broken hooks and without capture; the names of what has raised."""
    own = folder / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text(BREAK)
    environment = {
        "PYTHONPATH": str(own), "BROKEN": str(folder / "broken.txt"), "HOW": how, "WANDB_MODE": "offline",
        "WANDB_SILENT": "true", "TRACKIO_DIR": str(folder / "trackio"), "HF_HUB_OFFLINE": "1",
    }  # fmt: skip
    # names that differ in a digit alone, for some libraries fold the lines with their paths
    found = capture(folder / "place3", script, *words, environment=environment)
    plain = run_plain(folder / "place1", script, *words, environment=environment)
    again = run_plain(folder / "place2", script, *words, environment=environment)
    hooked, lines, others = (one.stdout.splitlines() for one in (found, plain, again))
    assert (found.code, len(hooked)) == (plain.code, len(lines)) == (again.code, len(others)), found.stderr
    for number, line in enumerate(lines):
        if line == others[number]:
            assert hooked[number] == line, found.stderr
        elif masked(line) == masked(others[number]):  # a time; else a random name
            assert masked(hooked[number]) == masked(line), found.stderr
    assert "broken for the test" not in found.stderr
    return set((folder / "broken.txt").read_text().split())


@pytest.mark.further
def test_what_hooks_call_raises(tmp_path: Path) -> None:
    broken = same_as_plain(tmp_path, "calls", USUAL, "--seed", "3")
    assert broken >= {
        "argparse_parsers._see", "gymnasium_environments._see", "summary_writers._made",
        "summary_writers._number", "sb3_models._to_dump", "sb3_models._learns", "recorder.opened",
        "wandb_replacement.spec_for",
    }  # fmt: skip


@pytest.mark.slow
def test_hooks_raise(tmp_path: Path) -> None:
    broken = same_as_plain(tmp_path, "hooks", LIGHT, "--seed", "3")
    assert broken >= {"argparse_parsers.hook", "summary_writers.hook"}


@pytest.mark.parametrize(
    "library",
    [pytest.param(name, marks=pytest.mark.further if name in {"absl", "click"} else ()) for name in PROGRAMS],
)
def test_what_hooks_of_a_library_call_raises(tmp_path: Path, library: str) -> None:
    needs(library)
    script, words = PROGRAMS[library]
    assert same_as_plain(tmp_path, "calls", script, *words)
