"""Programs of further libraries, captured; each is skipped where its library is not installed."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.capture_lab import capture, capture_command, own_scalars, run_plain
from support.captured_programs import (
    ACCELERATE,
    ACCELERATE_WANDB,
    LIGHTNING,
    MLFLOW,
    PARSERS,
    RSL_RL,
    SB3,
    SWANLAB,
    TRACKIO,
    TRANSFORMERS,
    WRITE,
    needs,
    parsing_program,
)  # fmt: skip

pytestmark = pytest.mark.usefixtures("places")


@pytest.mark.further
def test_sb3(tmp_path: Path) -> None:
    found, plain = capture(tmp_path, SB3), run_plain(tmp_path / "plain", SB3)
    assert (found.code, found.stdout, found.stderr) == (0, plain.stdout, plain.stderr)
    run = found.run
    assert (run.table, run.about["state"]) == ("CartPole-v1-PPO", "finished")
    assert [row["time-step"] for row in run.rows] == ["64", "128", "192"]
    assert run.values()["train/learning_rate", 192] == 0.0003
    assert run.parameters["n_steps"] == 64
    assert not run.captured["errors"]
    assert "tensorboard" not in run.captured["sources"]  # SB3's own writer is inside of it


@pytest.mark.slow
def test_a_second_sb3_model_has_its_own_run(tmp_path: Path) -> None:
    first, second = capture(tmp_path, SB3, "second").runs
    assert [row["time-step"] for row in first.rows] == ["64", "128", "192"]
    assert [row["time-step"] for row in second.rows] == ["32", "64"]
    assert first.parameters["n_steps"], second.parameters["n_steps"] == (64, 32)
    assert {first.about["state"], second.about["state"]} == {"finished"}


@pytest.mark.further
def test_transformers(tmp_path: Path) -> None:
    needs("transformers", "accelerate")
    found = capture(tmp_path, TRANSFORMERS, name="finetune.py")
    assert found.code == 0, found.stderr
    run = found.run
    assert run.table == "finetune"
    assert [row["time-step"] for row in run.rows if row["train/loss"]] == ["1", "2", "3", "4"]
    assert run.parameters["max_steps"] == 4
    assert not run.captured["errors"]
    assert "tensorboard" not in run.captured["sources"]
    plain = run_plain(tmp_path / "plain", TRANSFORMERS)
    assert found.stdout.splitlines()[-1] == plain.stdout.splitlines()[-1]


def test_lightning(tmp_path: Path) -> None:
    needs("lightning")
    found = capture(tmp_path, LIGHTNING, name="fit.py")
    assert found.code == 0, found.stderr
    run = found.run
    assert run.table == "fit"
    assert len([key for key in run.values() if key[0] == "loss"]) == 8
    assert run.parameters["lr"] == 0.1
    assert not run.captured["errors"]


@pytest.mark.further
def test_accelerate(tmp_path: Path) -> None:
    needs("accelerate")
    found = capture(tmp_path, ACCELERATE)
    assert found.code == 0, found.stderr
    assert (found.run.table, found.run.parameters["lr"]) == ("tuned", 0.5)
    assert found.run.values() == {("loss", step): step / 2 for step in range(3)}


@pytest.mark.skipif(importlib.util.find_spec("wandb") is not None, reason="wandb is installed here")
def test_accelerate_with_wandb_replaced(tmp_path: Path) -> None:
    """Each value once: what the tracker logs, not what the Accelerator was given beside it."""
    needs("accelerate")
    found = capture(tmp_path, ACCELERATE_WANDB, options=["--capture=replace"])
    assert (found.code, found.stderr) == (0, "")
    assert (found.run.table, found.run.parameters["name"]) == ("tuned", "first")
    losses = {("loss", step): step / 2 for step in range(3)}
    assert found.run.values() == {**losses, **{("split.a", step): step for step in range(3)}, ("own", 3): 7}


@pytest.mark.further
@pytest.mark.skipif(importlib.util.find_spec("wandb") is not None, reason="wandb is installed here")
@pytest.mark.parametrize("library", ["transformers", "lightning"])
def test_a_trainer_with_wandb_replaced_logs_each_value_once(tmp_path: Path, library: str) -> None:
    needs(library, "accelerate")
    if library == "lightning":
        script = LIGHTNING.replace(
            "L.Trainer(", "L.Trainer(logger=L.pytorch.loggers.WandbLogger(project='x'), "
        )
    else:
        script = TRANSFORMERS.replace('"tensorboard"', '"wandb"')
    assert "andb" in script
    found = capture(tmp_path, script, options=["--capture=replace"])
    assert found.code == 0, found.stderr
    (loss,) = {tag for tag, _ in found.run.values() if tag.rpartition("/")[2] == "loss"}
    steps = [row["time-step"] for row in found.run.rows if row[loss]]
    assert len(steps) == len(set(steps)) >= 4
    assert found.run.captured["sources"].keys() == {"wandb"}


def test_mlflow(tmp_path: Path) -> None:
    needs("mlflow")
    found = capture(tmp_path, MLFLOW)
    assert found.code == 0, found.stderr
    assert (found.run.table, found.run.parameters["lr"]) == ("exp", 0.25)
    assert len(found.run.rows) == 3
    assert len(found.run.values()) == 9


@pytest.mark.further
def test_trackio(tmp_path: Path) -> None:
    needs("trackio")
    found = capture(
        tmp_path, TRACKIO, environment={"TRACKIO_DIR": str(tmp_path / "trackio"), "HF_HUB_OFFLINE": "1"}
    )
    assert found.code == 0, found.stderr
    assert (found.run.table, found.run.parameters["lr"]) == ("tracked", 0.125)
    assert found.run.values() == {("loss", step): step / 2 for step in range(3)}


def test_swanlab(tmp_path: Path) -> None:
    needs("swanlab")
    found = capture(tmp_path, SWANLAB)
    assert found.code == 0, found.stderr
    assert (found.run.table, found.run.parameters["lr"]) == ("tracked", 0.125)
    values = found.run.values()
    assert {step: value for (tag, step), value in values.items() if tag == "loss"} == {
        0: 0,
        1: 0.5,
        2: 1,
        3: 7,
    }
    assert values["group/a", 0] == 1


@pytest.mark.further
def test_rsl_rl(tmp_path: Path) -> None:
    needs("rsl_rl")
    found = capture(tmp_path, RSL_RL, name="walk.py")
    assert found.code == 0, found.stderr
    run = found.run
    assert (run.table, run.parameters["algorithm"]["num_mini_batches"]) == ("walk", 1)
    theirs = own_scalars(tmp_path / "logs")
    assert len(theirs) > 20
    assert {key: np.float32(value) for key, value in run.values().items()} == theirs
    assert run.captured["sources"]["rsl_rl"]["parameters"]


@pytest.mark.slow
@pytest.mark.parametrize("library", PARSERS)
def test_parameters_of_command_lines(tmp_path: Path, library: str) -> None:
    needs(library)
    _, words, parameters, tracked = PARSERS[library]
    found = capture(tmp_path, parsing_program(library), *words)
    assert (found.code, found.stderr) == (0, "")
    assert found.run.parameters.items() >= parameters.items()
    assert tracked in found.run.folder.name
    assert library in found.run.captured["sources"]
    assert not found.run.captured["errors"]


@pytest.mark.further
def test_environments_seeds_and_files(tmp_path: Path) -> None:
    script = """
import gymnasium, pickle, torch
from torch.utils.tensorboard import SummaryWriter
assert pickle.loads(pickle.dumps(gymnasium.make)) is gymnasium.make
torch.manual_seed(77)
env = gymnasium.make("CartPole-v1")
writer = SummaryWriter("runs/a")
writer.add_scalar("loss", 1.0, 10)
torch.save({"a": torch.ones(2)}, "model.pt")
"""
    found = capture(tmp_path, script, options=["--capture=+checkpoints"])
    assert (found.code, found.stderr) == (0, "")
    run = found.run
    assert run.parameters.items() >= {"env_id": "CartPole-v1", "seed": 77}.items()
    assert "seed=77" in run.folder.name
    assert run.captured["saved"] == {str(tmp_path / "model.pt"): 10}
    assert list((tmp_path / "data" / "checkpoint").rglob("model.pt"))


@pytest.mark.slow
def test_a_module_and_the_programs_own_sitecustomize(tmp_path: Path) -> None:
    package = tmp_path / "zoo"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "train.py").write_text(WRITE)
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text(
        "import sys\nif '_rla_capture' in sys.modules:\n    print('own sitecustomize')\n"
    )
    found = capture_command(tmp_path, sys.executable, "-m", "zoo.train", environment={"PYTHONPATH": str(own)})
    assert (found.code, found.stdout, found.stderr) == (0, b"own sitecustomize\n", "")
    assert found.run.table == "zoo"


@pytest.mark.parametrize("flag", ["-I", "-E", "-S"])
@pytest.mark.further
def test_interpreters_that_take_no_path(tmp_path: Path, flag: str) -> None:
    found = capture(tmp_path, "print('done')", flags=[flag])
    assert (found.code, found.stdout) == (0, b"done\n")
    assert "nothing was captured: no Python process loaded it" in found.stderr


TOOLS = {  # module → the command that it stands before
    "opentelemetry.instrumentation.auto_instrumentation": ["opentelemetry-instrument"],
    "ddtrace": ["ddtrace-run"],
    "coverage": ["coverage", "run", "-m"],
}


@pytest.mark.parametrize("order", ["inside", "outside"])
@pytest.mark.parametrize("tool", TOOLS)
def test_beside_tools_that_hook_programs_too(tmp_path: Path, tool: str, order: str) -> None:
    name, *words = TOOLS[tool]
    command = [str(Path(sys.executable).with_name(name)), *words]
    if not Path(command[0]).exists():
        pytest.skip(f"{name} is not installed; `make test-capture` does it")
    (tmp_path / "program.py").write_text(f"import sys{WRITE}print({tool!r} in sys.modules)\n")
    exporters = ("OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_LOGS_EXPORTER")
    quiet = {"DD_TRACE_ENABLED": "false", "DD_INSTRUMENTATION_TELEMETRY_ENABLED": "false"}
    environment = dict.fromkeys(exporters, "none") | quiet
    if order == "inside":
        program = ["program"] if words else [sys.executable, "program.py"]
        found = capture_command(tmp_path, *command, *program, environment=environment)
    else:
        found = capture_command(
            tmp_path, sys.executable, "program.py", environment=environment,
            before=[*command[:1], "run"] if words else command,
        )  # fmt: skip
    assert (found.code, len(found.run.rows)) == (0, 1), found.stderr
    assert found.stdout == b"True\n" or (words and order == "outside")


@pytest.mark.further
def test_check_says_which_python_would_be_captured(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("open('ran', 'w')")
    rla = str(Path(sys.executable).with_name("rla"))
    done = subprocess.run(
        [rla, "capture", "check", "--json", "--", sys.executable, "program.py"],
        cwd=tmp_path, capture_output=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout) == {"captured_in": [sys.executable]}
    assert not (tmp_path / "ran").exists()


RAY = """
import ray
from tensorboardX import SummaryWriter

@ray.remote
def work(number):
    from tensorboardX import SummaryWriter
    writer = SummaryWriter(f"runs/worker{number}")
    writer.add_scalar(f"worker{number}/loss", number, 1)
    writer.close()

SummaryWriter("runs/main").add_scalar("loss", 0.5, 1)
ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False)
ray.get([work.remote(number) for number in range(2)])
ray.shutdown()
"""


@pytest.mark.scale
def test_workers_of_ray_join_the_run(tmp_path: Path) -> None:
    needs("ray")
    environment = {"RAY_ADDRESS": "local", "RAY_worker_niceness": "0"}
    found = capture(tmp_path, RAY, environment=environment)
    assert found.code == 0, found.stderr
    assert len(found.run.rows) == 1
    tables = "".join(path.read_text() for path in found.run.folder.glob("progress.*.csv"))
    assert "worker0/loss" in tables
    assert "worker1/loss" in tables
