"""Programs that log to TensorBoard, captured without a change: their rows, parameters, ends and processes."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from support.capture_lab import capture, own_events, own_scalars, run_plain

further = pytest.mark.further
pytestmark = pytest.mark.usefixtures("places")

PPO = """
import argparse, random, sys
import numpy as np
import torch
from MODULE import SummaryWriter

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--learning-rate", type=float, default=2.5e-4)
parser.add_argument("--env-id", default="CartPole-v1")
parser.add_argument("--track", action="store_true")
args = parser.parse_args()
args.batch_size = 128  # as scripts go on to do
writer = SummaryWriter(f"runs/{args.env_id}__ppo__{args.seed}")
lines = [f"|{key}|{value}|" for key, value in vars(args).items()]
writer.add_text("hyperparameters", "|param|value|\\n|-|-|\\n" + "\\n".join(lines))
random.seed(args.seed)
np.random.seed(args.seed)
torch.manual_seed(args.seed)
for step in range(0, 80, 10):
    writer.add_scalar("charts/learning_rate", args.learning_rate * (1 - step / 80), step)
    writer.add_scalar("losses/value_loss", torch.rand(()), step)
    writer.add_scalar("losses/policy_loss", np.float32(random.random()), step)
    writer.add_scalar("charts/return", np.random.rand(1), step)
    writer.add_scalar("charts/solved", step > 40, step)
writer.add_histogram("weights", np.arange(100.0), 70)
writer.add_scalars("both", {"a": 1.5, "b": 2.5}, 70)
args.batch_size = 256  # and on
writer.close()
print("next", random.random(), np.random.rand(), torch.rand(1).item())
print("to stderr", file=sys.stderr)
"""


@pytest.mark.slow
@pytest.mark.parametrize("module", ["torch.utils.tensorboard", pytest.param("tensorboardX", marks=further)])
def test_values_parameters_and_the_programs_own_files(tmp_path: Path, module: str) -> None:
    script = PPO.replace("MODULE", module)
    words = ("--seed", "3", "--learning-rate=0.01")
    plain = run_plain(tmp_path / "plain", script, *words)
    found = capture(tmp_path / "captured", script, *words)

    assert (found.code, found.stdout, found.stderr) == (plain.code, plain.stdout, plain.stderr)
    theirs = own_scalars(tmp_path / "captured" / "runs")
    ours = {key: float(np.float32(value)) for key, value in found.run.values().items()}
    assert len(theirs) >= 41
    assert {key: value for key, value in ours.items() if not key[0].startswith("both/")} == {
        key: value for key, value in theirs.items() if not key[0].startswith("both")
    }
    assert ours["both/a", 70] == 1.5
    assert ours["both/b", 70] == 2.5
    assert found.run.values()["charts/learning_rate", 10] == 0.01 * (1 - 10 / 80)  # a double
    own = [[event.step, str(event.summary)] for event in own_events(tmp_path / "captured" / "runs")]
    assert own == [[event.step, str(event.summary)] for event in own_events(tmp_path / "plain" / "runs")]

    run = found.run
    assert run.table == "program"
    assert run.about["state"] == "finished"
    assert "seed=3&learning_rate=0.01" in run.folder.name
    wanted = {"seed": 3, "learning_rate": 0.01, "env_id": "CartPole-v1", "track": False, "batch_size": 256}
    assert run.parameters.items() >= wanted.items()
    assert run.parameters["log_dir"] == "runs/CartPole-v1__ppo__3"
    assert run.captured["sources"]["argparse"] == {"parameters": 5}
    assert run.captured["sources"]["tensorboard"]["values"] == 42
    assert run.captured["sources"]["tensorboard"]["histogram"] == 1
    assert not run.captured["errors"]
    assert "weights" in {
        value.tag for event in own_events(run.folder / "tb") for value in event.summary.value
    }


@pytest.mark.slow
@pytest.mark.parametrize("module", ["torch.utils.tensorboard", pytest.param("tensorboardX", marks=further)])
def test_pictures_are_files_of_the_results(tmp_path: Path, module: str) -> None:
    script = f"""
import numpy as np
from {module} import SummaryWriter
writer = SummaryWriter("runs/a")
writer.add_scalar("loss", 1.0, 0)
writer.add_image("made/digit", np.full((3, 8, 8), 0.5), 3)
writer.close()
"""
    run = capture(tmp_path, script).run
    place = Path(str(run.folder).replace("/log/", "/results/")) / "made" / "3-digit.png"
    (theirs,) = [
        value.image.encoded_image_string
        for event in own_events(tmp_path / "runs")
        for value in event.summary.value
        if value.HasField("image")
    ]
    assert place.read_bytes() == theirs


ENDINGS = {
    "pass": (0, "finished"),
    "raise ValueError('so')": (1, "failed"),
    "sys.exit(3)": (3, "failed"),
    "os.kill(os.getpid(), signal.SIGTERM)": (143, "killed"),
    "os.kill(os.getpid(), signal.SIGKILL)": (137, "killed"),
    "writer.flush(); os._exit(0)": (0, "finished"),
}


@pytest.mark.slow
@pytest.mark.parametrize("ending", [pytest.param(e, marks=() if "KILL" in e else further) for e in ENDINGS])
def test_the_end_of_a_program(tmp_path: Path, ending: str) -> None:
    script = f"""
import os, signal, sys
from tensorboardX import SummaryWriter
writer = SummaryWriter("runs/a")
for step in range(5):
    writer.add_scalar("loss", 1 / (step + 1), step)
writer.flush()
{ending}
"""
    found = capture(tmp_path, script)
    code, state = ENDINGS[ending]
    assert (found.code, found.run.about["state"]) == (code, state)
    assert len(found.run.rows) == 5
    assert "tensorboard" in found.run.captured["sources"]


WORKERS = """
import multiprocessing, os, sys
import torch
from torch.utils.tensorboard import SummaryWriter

def work(number):
    writer = SummaryWriter(f"runs/worker{number}")
    writer.add_scalar(f"worker{number}/loss", number, 1)
    writer.close()

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return index

if __name__ == "__main__":
    if "first" in sys.argv:
        writer = SummaryWriter("runs/main")
        writer.add_scalar("loss", 0.5, 1)
    context = multiprocessing.get_context(sys.argv[1])
    processes = [context.Process(target=work, args=(number,)) for number in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    print([process.exitcode for process in processes])
    for batch in torch.utils.data.DataLoader(Data(), num_workers=2, batch_size=2):
        pass
"""


@pytest.mark.parametrize(
    "method", ["spawn", *(pytest.param(method, marks=further) for method in ("fork", "forkserver"))]
)
@pytest.mark.further
def test_workers_join_the_run_of_their_parent(tmp_path: Path, method: str) -> None:
    found = capture(tmp_path, WORKERS, method, "first")
    assert found.stdout == b"[0, 0]\n", found.stderr
    assert len(found.run.rows) == 1
    tables = sorted(path.read_text() for path in found.run.folder.glob("progress.*.csv"))
    assert [f"worker{number}/loss" in text for number, text in enumerate(tables)] == [True, True]


@pytest.mark.slow
def test_workers_without_a_run_open_none(tmp_path: Path) -> None:
    found = capture(tmp_path, WORKERS, "spawn")
    assert (found.stdout, found.runs) == (b"[0, 0]\n", [])
    assert "nothing was captured: only worker processes logged (2 values)" in found.stderr


@pytest.mark.further
def test_a_writer_after_all_were_closed_begins_a_run(tmp_path: Path) -> None:
    script = """
import argparse
from torch.utils.tensorboard import SummaryWriter
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
for seed in range(3):
    args.seed = seed
    writer = SummaryWriter(f"runs/seed{seed}")
    beside = SummaryWriter(f"runs/seed{seed}/eval")
    for step in range(4):
        writer.add_scalar("loss", seed + step, step)
        beside.add_scalar("loss", -step, step)
    writer.close()
    beside.close()
"""
    found = capture(tmp_path, script)
    assert [run.parameters["log_dir"] for run in found.runs] == [f"runs/seed{seed}" for seed in range(3)]
    assert [run.about["state"] for run in found.runs] == ["finished"] * 3
    for seed, run in enumerate(found.runs):
        assert run.parameters["seed"] == seed
        assert not list(run.folder.glob("parameter.resumed*"))
        assert run.values()["loss", 2] == seed + 2
        assert run.values()["eval/loss", 2] == -2


@pytest.mark.slow
def test_the_programs_own_run_wins(tmp_path: Path) -> None:
    script = """
import rla_client
from torch.utils.tensorboard import SummaryWriter
run = rla_client.init("own", data_root="data")
writer = SummaryWriter("runs/a")
for step in range(1, 4):
    run.log({"x": step}, step=step)
    writer.add_scalar("y", step, step)
"""
    found = capture(tmp_path, script)
    assert found.run.table == "own"
    assert {tag for tag, _ in found.run.values()} == {"x"}


BROKEN = """
import random, sys
from torch.utils.tensorboard import SummaryWriter
writer = SummaryWriter("runs/a")
writer.add_scalar("loss", 1.0, 0)
module = sys.modules["_rla_capture.capture.hooks.HOOK"]

def fail(*args, **kwargs):
    raise RuntimeError("broken for the test")

module.NAME = fail
for step in range(1, 9):
    writer.add_scalar("loss", 1.0, step)
    writer.add_text("text", "words", step)
print("done", random.seed(1), random.random())
"""


@pytest.mark.parametrize(
    "where", ["recorder.scalar", "recorder.event", "recorder.session", "summary_writers._see_event"]
)
@pytest.mark.further
def test_an_error_of_ours_switches_a_part_off(tmp_path: Path, where: str) -> None:
    hook, _, name = where.partition(".")
    script = BROKEN.replace("HOOK", hook).replace("NAME", name)
    found = capture(tmp_path, script)
    assert (found.code, found.stderr) == (0, "")
    assert (
        found.stdout
        == run_plain(
            tmp_path / "plain", "import random\nprint('done', random.seed(1), random.random())"
        ).stdout
    )
    if name == "session":  # asked for once only, by what makes it
        return
    assert found.run.captured["off"] == {"tensorboard": "RuntimeError: broken for the test"}
    assert len(found.run.captured["errors"]["tensorboard"]) == 3
    assert "capture: tensorboard is off" in (found.run.folder / "warn.txt").read_text()


@pytest.mark.slow
def test_a_data_root_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    script = (
        "from tensorboardX import SummaryWriter\nSummaryWriter('runs').add_scalar('a', 1, 1)\nprint('done')"
    )
    found = capture(tmp_path, script)
    assert (found.code, found.stdout) == (0, b"done\n")
    assert "nothing was captured: no run could be opened" in found.stderr


@pytest.mark.further
def test_warnings_that_are_errors(tmp_path: Path) -> None:
    script = PPO.replace("MODULE", "tensorboardX")
    found = capture(tmp_path, script, flags=["-W", "error"])
    assert found.code == 0, found.stderr
    assert found.run.values()
    assert not found.run.captured["errors"]


@pytest.mark.slow
def test_wrapped_names_are_pickled_by_reference_and_keep_their_signature(tmp_path: Path) -> None:
    """Each name that a hook wraps, of all libraries that are installed here."""
    script = """
import importlib, importlib.util, inspect, pickle, sys
hooks = "_rla_capture.capture.hooks."
finder = sys.modules[hooks + "finder"]
found = {}
for name in finder.HOOKS:
    top = name.partition(".")[0]
    if top in ("gym", "pytorch_lightning") or importlib.util.find_spec(top) is None:
        continue  # the same as gymnasium, lightning
    try:
        module = importlib.import_module(name)
    except ImportError:
        continue
    ours = sys.modules[hooks + "wrapping"]._ours
    owners = [module, *(one for one in vars(module).values() if isinstance(one, type))]
    for owner in owners:
        for key, value in vars(owner).items():
            function = getattr(value, "__func__", value)
            if id(function) in ours:
                found[function.__module__ + "." + function.__qualname__] = function
for name, function in found.items():
    if "<locals>" not in name:  # else it cannot be pickled without capture either
        assert pickle.loads(pickle.dumps(function)) is function, name
    original = function.__wrapped__
    assert inspect.signature(function) == inspect.signature(original), name
    if not hasattr(original, "__wrapped__"):  # of a decorator it shows the inside
        assert inspect.getfullargspec(function) == inspect.getfullargspec(original), name
print(*found, "rla_client" in sys.modules)
"""
    found = capture(tmp_path, script)
    assert found.code == 0, found.stderr
    *names, imported = found.stdout.decode().splitlines()[-1].split()
    assert imported == "False"
    assert set(names) >= {
        "argparse.ArgumentParser.parse_known_args", "torch.utils.tensorboard.writer.SummaryWriter.add_scalar",
        "tensorboardX.writer.SummaryWriter.__init__", "tensorboardX.writer.FileWriter.add_event",
        "gymnasium.envs.registration.make", "stable_baselines3.common.logger.Logger.dump",
        "torch.serialization.save",
    }  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="torchrun is asked for its ranks' variables")
@pytest.mark.further
def test_ranks_of_torchrun_make_one_run(tmp_path: Path) -> None:
    from support.capture_lab import capture_command

    (tmp_path / "ranks.py").write_text(
        "import os\nfrom tensorboardX import SummaryWriter\n"
        "writer = SummaryWriter('runs/' + os.environ['RANK'])\n"
        "for step in range(3):\n    writer.add_scalar('rank', int(os.environ['RANK']), step)\n"
    )
    found = capture_command(
        tmp_path, sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "ranks.py"
    )
    assert found.code == 0, found.stderr
    assert found.run.table == "ranks"
    assert {value for (tag, _), value in found.run.values().items() if tag == "rank"} == {0.0}


@pytest.mark.slow
def test_many_threads_at_the_first_metric(tmp_path: Path) -> None:
    script = """
import threading
from tensorboardX import SummaryWriter
writer = SummaryWriter("runs/a")
barrier = threading.Barrier(8)

def work(number):
    barrier.wait()
    for step in range(20):
        writer.add_scalar(f"t{number}", step, step)

threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""
    found = capture(tmp_path, script)
    assert found.run.values() == {(f"t{number}", step): step for number in range(8) for step in range(20)}


@pytest.mark.further
def test_an_exception_of_a_signal_handler_is_the_programs(tmp_path: Path) -> None:
    script = """
import signal, sys
from tensorboardX import SummaryWriter
writer = SummaryWriter("runs/a")
writer.add_scalar("loss", 1.0, 0)
module = sys.modules["_rla_capture.capture.hooks.recorder"]

def stop(number, frame):
    raise TimeoutError("of the program")

def slow(*args):
    signal.raise_signal(signal.SIGALRM)

signal.signal(signal.SIGALRM, stop)
module.scalar = slow
try:
    writer.add_scalar("loss", 1.0, 1)
except TimeoutError as error:
    print(error)
"""
    found = capture(tmp_path, script)
    assert (found.code, found.stdout) == (0, b"of the program\n"), found.stderr
    assert not found.run.captured["errors"]
