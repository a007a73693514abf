"""The SummaryWriter that takes the place of torch's: in real scripts, beside TensorBoard's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.beside import check_it_keeps_to_its_run
from support.user_scripts import Scripts, read_scalars

from rla_client.integrations.tensorboard import table_name
from rla_client.run.parameters.hyper_params import parameters_of_table

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "cleanrl_ppo.py"
IMPORT = "from rla_client.integrations.tensorboard import SummaryWriter\n"
BOTH = """
from rla_client.integrations.tensorboard import SummaryWriter as Ours
from torch.utils.tensorboard import SummaryWriter as Torch


class SummaryWriter:
    def __init__(self, folder):
        self._writers = Ours(folder), Torch("beside")

    def __getattr__(self, name):
        return lambda *given: [getattr(writer, name)(*given) for writer in self._writers]

"""


@pytest.mark.slow
def test_a_script_with_one_changed_line_has_tensorboards_own_scalars(scripts: Scripts) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    pytest.importorskip("gymnasium")

    source = EXAMPLE.read_text()
    assert source.count(IMPORT) == 1
    assert source.count("rla_client") == 1 + source[: source.index('"""', 3)].count("rla_client")
    scripts.run(source.replace(IMPORT, BOTH), "--total-timesteps", "4096", "--seed", "3")
    (run,) = scripts.runs()
    theirs = read_scalars(scripts.folder / "beside")
    assert len(theirs) == 10
    assert run.scalars() == theirs
    in_rows: dict[str, list[tuple[int, float]]] = {}
    for row in run.rows():
        for tag in row.keys() & theirs.keys():
            in_rows.setdefault(tag, []).append((int(row["time-step"]), float(np.float32(float(row[tag])))))
    assert in_rows == theirs
    assert len(run.rows()) < sum(map(len, theirs.values())) / 2  # scalars of one step share a row
    assert run.table == "CartPole-v1__cleanrl_ppo"
    assert run.parameters["seed"] == 3
    assert run.parameters["learning_rate"] == 2.5e-4
    assert run.parameters["env_id"] == "CartPole-v1"
    assert run.state["state"] == "finished"
    assert run.state["time_step"] == 4096
    assert list((scripts.folder / "runs").rglob("*.cleanrl_model"))


@pytest.mark.slow
def test_rows_steps_and_parameters(scripts: Scripts) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    scripts.run("""
from argparse import Namespace
import rla_client
args = Namespace(lr=0.1, api_key="s3cr3t-s3cr3t", layers=[8, 8])
with rla_client.SummaryWriter(comment="_walker_7", config=vars(args)) as writer:
    for step in range(3):
        writer.add_scalar("a b/c", step / 4, step)
        writer.add_scalars("both", {"x": step, "y": -step}, step)
    writer.add_scalar("late", 1, 0, None, True, True)
    writer.add_scalar("again", "5.0", 2)
    writer.add_scalar("again", 6.0, 2)
    from torch.utils.tensorboard.summary import scalar
    writer.file_writer.add_summary(scalar("of/torch", 2.0), 2)
    writer.add_scalar("flag", True, 7)
    writer.add_hparams({"gamma": 0.9}, {"best": 3.0}, None, "name", 2)
    assert rla_client.time_step_holder.get_time() == 7
    assert rla_client.exp_manager.hyper_param["gamma"] == 0.9
writer.add_scalar("after/close", 1.0, 9)
""")
    (run,) = scripts.runs()
    rows = [{key: float(cell) for key, cell in row.items() if key != "timestamp"} for row in run.rows()]
    assert rows == [
        *({"a b/c": step / 4, "both/x": step, "both/y": -step, "time-step": step} for step in range(3)),
        {"late": 1.0, "time-step": 0},
        {"again": 5.0, "time-step": 2},
        {"again": 6.0, "time-step": 2},
        {"flag": 1.0, "time-step": 7},
        {"best": 3.0, "time-step": 2},
        {"after/close": 1.0, "time-step": 9},
    ]
    assert run.scalars()["of/torch"] == [(2, 2.0)]
    assert run.scalars()["a b/c"] == [(0, 0.0), (1, 0.25), (2, 0.5)]
    assert run.table == "walker"
    assert run.parameters["layers"] == [8, 8]
    assert "s3cr3t" not in str(run.parameters)
    assert run.parameters["gamma"] == 0.9


@pytest.mark.slow
def test_writers_beside_each_other_share_a_run_and_one_after_another_do_not(scripts: Scripts) -> None:
    scripts.run("""
from rla_client.integrations.tensorboard import SummaryWriter
try:
    failed = SummaryWriter("runs/" + 300 * "x")
except OSError as error:  # which holds the writer: no run began with it
    failed = error
for seed in (1, 2):
    train, test = SummaryWriter(f"runs/hopper_{seed}"), SummaryWriter(f"runs/hopper_{seed}/test")
    same = SummaryWriter(f"./runs/hopper_{seed}/")
    train.add_scalar("loss", 1.0 * seed, 10)
    test.add_scalar("loss", 2.0 * seed, 10)
    same.add_scalar("more", 3.0 * seed, 10)
    test.add_histogram("weights", [1.0, 2.0], 10)
    for writer in (train, test, same):
        writer.close()
""")
    for seed, run in enumerate(scripts.runs(2), 1):
        assert run.table == "hopper"
        assert run.scalars() == {
            "loss": [(10, seed)],
            "test/loss": [(10, 2 * seed)],
            "more": [(10, 3 * seed)],
        }
        (row,) = run.rows()
        assert (row["loss"], row["test/loss"], row["more"]) == (f"{seed}.0", f"{2.0 * seed}", f"{3.0 * seed}")


@pytest.mark.further
@pytest.mark.slow
def test_the_last_row_of_a_worker_that_closes_nothing(scripts: Scripts) -> None:
    scripts.run("""
import multiprocessing, os, subprocess, sys
from rla_client.integrations.tensorboard import SummaryWriter
def work(writer, name):
    (writer or SummaryWriter("runs/a")).add_scalar(name, 1.0, 3)
if __name__ == "__main__":
    if sys.argv[1:]:
        work(None, "program")
    else:
        writer = SummaryWriter("runs/a")
        fork, spawn = map(multiprocessing.get_context, ("fork", "spawn"))
        forked = fork.Process(target=work, args=(writer, "fork"))
        for worker in (forked, spawn.Process(target=work, args=(None, "spawn"))):
            worker.start()
            worker.join()
        subprocess.run([sys.executable, __file__, "program"], check=True)
""")
    (run,) = scripts.runs()
    tables = [path.read_text().splitlines() for path in run.log.glob("progress.p*.csv")]
    assert sorted((table[0].split(",")[0], table[1].split(",")[0]) for table in tables) == [
        ("fork", "1.0"), ("program", "1.0"), ("spawn", "1.0"),
    ]  # fmt: skip


@pytest.mark.further
@pytest.mark.slow
def test_scripts_use_the_folder_of_a_writer(scripts: Scripts) -> None:
    scripts.run("""
import os
from rla_client.integrations.tensorboard import SummaryWriter
writer = SummaryWriter()
open(os.path.join(writer.log_dir, "training.log"), "w").write("words")
with SummaryWriter(writer.file_writer.get_logdir()) as beside:
    beside.add_scalar("accuracy", 0.5, 3)
""")
    (run,) = scripts.runs()
    assert run.scalars() == {"accuracy": [(3, 0.5)]}
    assert (run.log / "tb" / "events" / "training.log").read_text() == "words"


@pytest.mark.slow
def test_it_writes_into_a_run_that_is_open(scripts: Scripts) -> None:
    scripts.run("""
import rla_client
from rla_client.integrations.tensorboard import SummaryWriter
manager = rla_client.init("mine", config={"lr": 0.5}, track=["lr"])
rla_client.time_step_holder.set_time(40)
writer = SummaryWriter("runs/other_3", config={"seed": 7})
writer.add_scalar("x", 1.0)
manager.writer.add_scalar("y", 2.0)
writer.close()
rla_client.log({"z": 3.0}, step=41)
""")
    (run,) = scripts.runs()
    assert run.table == "mine"
    assert run.parameters == {"lr": 0.5, "seed": 7}
    rows = run.rows()
    assert [{key: row[key] for key in row if key != "timestamp"} for row in rows] == [
        {"x": "1.0", "y": "2.0", "time-step": "40"},
        {"z": "3.0", "time-step": "41"},
    ]


@pytest.mark.further
@pytest.mark.slow
def test_what_was_configured_names_the_run(scripts: Scripts) -> None:
    scripts.run("""
from rla_client import exp_manager
from rla_client.integrations.tensorboard import SummaryWriter
exp_manager.configure("configured", {}, "data")
SummaryWriter("runs/other").add_scalar("x", 1.0, 2)
exp_manager.close()
SummaryWriter("runs/third").add_scalar("x", 1.0, 2)
""")
    assert [run.table for run in scripts.runs(2)] == ["configured", "configured"]


@pytest.mark.further
@pytest.mark.slow
def test_an_error_in_a_script_that_closes_its_writer_is_a_failed_run(scripts: Scripts) -> None:
    done = scripts.run(
        """
from rla_client.integrations.tensorboard import SummaryWriter
with SummaryWriter() as writer:
    writer.add_scalar("x", 1.0, 2)
    raise ZeroDivisionError("of the script")
""",
        fails=True,
    )
    assert "ZeroDivisionError" in done.stderr
    (run,) = scripts.runs()
    assert (run.state["state"], run.table) == ("failed", "script")
    assert "of the script" in run.state["reason"]
    assert [row["x"] for row in run.rows()] == ["1.0"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "environment", [{"RLA_MODE": "disabled"}, pytest.param({"RANK": "1"}, marks=pytest.mark.further)]
)
def test_where_nothing_is_stored_every_call_works(scripts: Scripts, environment: dict[str, Any]) -> None:
    scripts.run(
        """
import os
from rla_client.integrations.tensorboard import SummaryWriter
with SummaryWriter("runs/a_1") as writer:
    writer.add_scalar("x", 1.0, 2)
    writer.add_hparams({"a": 1}, {"b": 2})
    writer.add_text("hyperparameters", "|param|value|\\n|-|-|\\n|a|1|")
    assert os.path.isdir(writer.log_dir)
assert os.path.isdir(SummaryWriter().log_dir)
dropped = SummaryWriter("nowhere", write_to_disk=False)
dropped.add_scalar("x", 1.0, 2)
assert dropped.get_logdir() == "nowhere"
dropped.close()
assert not os.path.exists("nowhere")
""",
        **environment,
    )
    assert not list((scripts.folder / "data").rglob("progress.csv"))


@pytest.mark.parametrize(
    ("folder", "table"),
    [
        ("runs/CartPole-v1__ppo__1__1697040000", "CartPole-v1__ppo"),
        ("runs/PPO_3", "PPO"),
        ("logs/sac-seed_4", "sac"),
        ("runs/Walker2d-v4_seed3", "Walker2d-v4"),
        ("runs/20231012-101530", "script"),
        ("runs/hopper/2023-10-12_10:15:30/tb", "hopper"),
        ("/abs/where/exp12", "exp12"),
        ("out/tiny-bert/runs/Nov29_12-50-00_node-7", "tiny-bert"),
        ("runs/Jul4_01-02-03_vm", "script"),
        ("runs", "script"),
        ("./", "script"),
        ("", "script"),
    ],
)
def test_a_table_is_named_after_the_folder(folder: str, table: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("rla_client.integrations.tensorboard.script_name", lambda: "script")
    assert table_name(folder) == table


def test_parameters_of_a_markdown_table() -> None:
    text = (
        "|param|value|\n|-|-|\n|lr|0.00025|\n|env|CartPole-v1|\n|a|None|\n|b|True|\n|c|(1, 2)|\n|d|x|y|\n|e||"
    )
    expected = {"lr": 0.00025, "env": "CartPole-v1", "a": None, "b": True, "c": (1, 2), "d": "x|y", "e": ""}
    assert parameters_of_table(text) == expected
    assert parameters_of_table("| Parameter | Value |\n| :- | -: |\n| n | 3 |\n") == {"n": 3}
    for other in ("", "some words", "|a|b|\n|-|-|\n|1|2|", "|param|value|"):
        assert parameters_of_table(other) == {}


@pytest.mark.further
@pytest.mark.slow
def test_signatures_of_torch_and_secrets_in_texts(scripts: Scripts) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    scripts.run("""
import numpy as np, torch
from rla_client.integrations.tensorboard import SummaryWriter
class Net(torch.nn.Module):
    def forward(self, x):
        return {"out": x * 2}
writer = SummaryWriter("runs/a", "", None, 10, 120, "")
writer.add_text("hyperparameters", "|param|value|\\n|-|-|\\n|api_key|sk-abcdef-123|\\n|lr|0.1|")
writer.add_audio("a", torch.rand(1, 1000), 0)
writer.add_tensor("t", torch.ones(3), 6)
writer.add_graph(Net(), torch.ones(2), use_strict_trace=False)
writer.add_image_with_boxes("b", np.zeros((3, 8, 8)), np.array([[1, 1, 5, 5]]), 0, None, 1, "CHW", ["x"])
from torch.utils.tensorboard.summary import hparams
for summary in hparams({"lr": 0.1}, {"acc": 1.0}):
    writer.file_writer.add_summary(summary)
""")
    (run,) = scripts.runs()
    assert run.parameters["lr"] == 0.1
    for path in run.log.rglob("*"):
        assert path.is_dir() or b"sk-abcdef" not in path.read_bytes(), path
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tags = EventAccumulator(str(run.log / "tb" / "events")).Reload().Tags()
    assert tags["graph"]
    assert "t" in tags["tensors"]
    assert tags["audio"] == ["a"]
    assert tags["images"] == ["b"]


CLOCK = """
import os, sys
import numpy as np
import rla_client
from rla_client import ImgRecorder, exp_manager, logger
from rla_client.integrations.tensorboard import SummaryWriter

rla_client.init("t", config={"seed": 1}, run_id="one", resume="allow")
begin = exp_manager.load_checkpoint()[0] if exp_manager.resumed_from is not None else 0
writer = MAKE
for step in range(begin + 1, begin + 31):
    writer.add_scalar("loss", 1.0 / step, step)
    if step % 10 == 0:
        exp_manager.save_checkpoint({"w": step})
        ImgRecorder.save("img", np.zeros((4, 4, 3), np.uint8))
logger.flush(60)
if sys.argv[1:]:
    os.kill(os.getpid(), 9)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    ['SummaryWriter("runs/x")', pytest.param("logger.get_tbx_writer()", marks=pytest.mark.further)],
)
def test_it_moves_the_clock_of_a_run_that_the_script_opened(scripts: Scripts, make: str) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    script = CLOCK.replace("MAKE", make)
    scripts.run(script, "killed", fails=True)
    scripts.run(script)
    (run,) = scripts.runs(1)
    names = {
        kind: sorted(path.name for path in run.folder(kind).iterdir()) for kind in ("results", "checkpoint")
    }
    steps = range(10, 61, 10)
    assert names["results"] == sorted(f"{step}-img.png" for step in steps)
    assert {f"checkpoint_{step}.pt" for step in steps} <= set(names["checkpoint"])
    assert [int(row["time-step"]) for row in run.rows()] == list(range(1, 61)), "each once, in order"


STAGES = """
import os, sys
import numpy as np
import rla_client
from rla_client import ImgRecorder, exp_manager, logger
from rla_client.integrations.tensorboard import SummaryWriter

rla_client.init("t", run_id="one", resume="allow")
done = exp_manager.load_checkpoint() if exp_manager.resumed_from is not None else (0, {"stage": 0, "step": 0})
print("at", done, flush=True)
writer = SummaryWriter("runs/x")
for stage in range(3):
    for step in range(1, 41):
        if (stage, step) <= (done[1]["stage"], done[1]["step"]):
            continue
        WRITE
        if step % 20 == 0:
            exp_manager.save_checkpoint({"stage": stage, "step": step})
            ImgRecorder.save(f"img{stage}", np.zeros((4, 4, 3), np.uint8))
        if [str(stage), str(step)] == sys.argv[1:]:
            logger.flush(60)
            os.kill(os.getpid(), 9)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "write",
    [
        'writer.add_scalar("loss", stage, step)',
        pytest.param('writer.add_histogram("h", np.ones(3), step)', marks=pytest.mark.further),
    ],
)
def test_the_clock_begins_anew_where_the_steps_of_the_next_stage_do(scripts: Scripts, write: str) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    script = STAGES.replace("WRITE", write)
    assert "at (0, " in scripts.run(script, "0", "40", fails=True).stdout
    assert "at (40, {'stage': 0, 'step': 40})" in scripts.run(script, "1", "25", fails=True).stdout
    assert "at (20, {'stage': 1, 'step': 20})" in scripts.run(script).stdout
    (run,) = scripts.runs(1)
    pictures = sorted(path.name for path in run.folder("results").glob("*.png"))
    assert pictures == sorted(f"{step}-img{stage}.png" for step in (20, 40) for stage in range(3))
    if "scalar" in write:
        steps = [(float(row["loss"]), int(row["time-step"])) for row in run.rows()]
        assert steps == [(stage, step) for stage in range(3) for step in range(1, 41)]


@pytest.mark.further
@pytest.mark.slow
def test_it_leaves_the_clock_to_a_script_that_sets_it(scripts: Scripts) -> None:
    scripts.run("""
import rla_client
from rla_client import logger, time_step_holder
from rla_client.integrations.tensorboard import SummaryWriter
rla_client.init("t")
writer = SummaryWriter("runs/x")
for epoch in range(3):
    time_step_holder.set_time(epoch)
    for batch in range(10):
        writer.add_scalar("loss", 0.5, epoch * 10 + batch)
    logger.record_tabular("epoch", epoch)
    logger.dump_tabular()
""")
    (run,) = scripts.runs(1)
    epochs = [(row["epoch"], row["time-step"]) for row in run.rows() if "epoch" in row]
    assert epochs[1:] == [("1", "1"), ("2", "2")]


@pytest.mark.further
@pytest.mark.slow
def test_further_hyper_parameters_make_runs_of_their_own(scripts: Scripts) -> None:
    scripts.run("""
from rla_client.integrations.tensorboard import SummaryWriter
writer = SummaryWriter("runs/x", config={"seed": 5})
for number in range(4):
    writer.add_hparams({"lr": 0.1 * number, "bsize": number}, {"hparam/accuracy": 10.0 * number})
writer.add_scalar("after", 1.0, 7)
""")
    runs = scripts.runs(4)
    assert [run.parameters["bsize"] for run in runs] == [0, 1, 2, 3]
    assert [run.parameters["seed"] for run in runs] == [5] * 4
    values = [[row["hparam/accuracy"] for row in run.rows() if "hparam/accuracy" in row] for run in runs]
    assert values == [["0.0"], ["10.0"], ["20.0"], ["30.0"]]
    assert "&bsize=2" in runs[2].log.name.replace("&lr=0.2", "")
    assert runs[0].rows()[-1]["after"] == "1.0"
    assert {run.state["state"] for run in runs} == {"finished"}


@pytest.mark.slow
def test_a_writer_of_the_same_folder_continues_the_run(scripts: Scripts) -> None:
    scripts.run("""
from rla_client.integrations.tensorboard import SummaryWriter
for part in range(2):
    with SummaryWriter("runs/x") as writer:
        for step in range(part * 3, part * 3 + 3):
            writer.add_scalar("loss", step, step)
with SummaryWriter("runs/y") as writer:
    writer.add_scalar("loss", 9, 9)
""")
    first, second = scripts.runs(2)
    assert [row["time-step"] for row in first.rows()] == list("012345")
    assert [row["time-step"] for row in second.rows()] == ["9"]


BETWEEN = {
    "closed": """with SummaryWriter("runs/b") as other:
        other.add_scalar("loss", 100 + part, part)""",
    "open": """other = SummaryWriter("runs/b")
    other.add_scalar("loss", 100 + part, part)
    others.append(other)""",
    "ended": """exp_manager.close()
    SummaryWriter("runs/b").add_scalar("loss", 100 + part, part)
    exp_manager.close()""",
    "in another thread": """def write():
        with SummaryWriter("runs/b") as other:
            other.add_scalar("loss", 100 + part, part)
    thread = threading.Thread(target=write)
    thread.start()
    thread.join()""",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "between", [pytest.param(one, marks=() if one == "closed" else pytest.mark.further) for one in BETWEEN]
)
def test_a_writer_of_the_same_folder_continues_the_run_after_another_one(
    scripts: Scripts, between: str
) -> None:
    scripts.run(f"""
import threading
import rla_client
from rla_client import exp_manager
from rla_client.integrations.tensorboard import SummaryWriter
others = []
for part in range(3):
    with SummaryWriter("runs/a") as writer:
        for step in range(part * 3, part * 3 + 3):
            writer.add_scalar("loss", step, step)
        exp_manager.add_custom_data("parts", part)
        exp_manager.save_checkpoint({{"part": part}})
    {BETWEEN[between]}
""")
    first, second = scripts.runs(2)
    assert (first.table, second.table) == ("a", "b")
    assert [(row["time-step"], row["loss"]) for row in first.rows()] == [(str(n), str(n)) for n in range(9)]
    assert first.scalars()["loss"] == [(n, float(n)) for n in range(9)]
    assert [(row["time-step"], row["loss"]) for row in second.rows()] == [
        (str(n), str(100 + n)) for n in range(3)
    ]
    assert {first.state["state"], second.state["state"]} == {"finished"}
    assert (first.state["rows"], first.state["lost"]) == (9, 0)
    names = {path.name for path in first.folder("checkpoint").glob("*.pt")}
    assert names == {"checkpoint_2.pt", "checkpoint_5.pt", "checkpoint_8.pt"}
    assert not list(first.log.glob("abandoned*"))
    from rla_client.manager import ExpManager

    loaded = ExpManager.load_tester("/".join(first.log.parts[-4:]), "a", scripts.folder / "data")
    assert loaded.get_custom_data("parts") == [0, 1, 2]


@pytest.mark.further
@pytest.mark.slow
def test_the_folder_of_a_writer_tells_its_run_also_within_one_of_the_script(scripts: Scripts) -> None:
    scripts.run("""
import rla_client
from rla_client.integrations.tensorboard import SummaryWriter
with SummaryWriter("runs/a") as writer:
    writer.add_scalar("loss", 1, 1)
with rla_client.init("b") as run:
    with SummaryWriter("runs/a") as writer:
        writer.add_scalar("loss", 2, 2)
    with SummaryWriter("runs/c") as writer:
        writer.add_scalar("loss", 3, 3)
    rla_client.log({"own": 4}, step=4)
    run.log({"own": 5}, step=5)
""")
    first, second = sorted(scripts.runs(2), key=lambda run: run.table)
    assert [row["loss"] for row in first.rows()] == ["1", "2"]
    assert [row.get("own", row.get("loss")) for row in second.rows()] == ["3", "4", "5"]


@pytest.mark.further
@pytest.mark.slow
def test_writers_of_two_threads_have_runs_of_their_own(scripts: Scripts) -> None:
    scripts.run("""
import threading
from rla_client.integrations.tensorboard import SummaryWriter
both = threading.Barrier(2)
def train(name):
    writer = SummaryWriter(f"runs/{name}")
    for step in range(20):
        both.wait(60)
        writer.add_scalar("loss", step, step)
threads = [threading.Thread(target=train, args=(name,)) for name in "ab"]
for thread in threads: thread.start()
for thread in threads: thread.join()
""")
    runs = scripts.runs(2)
    assert sorted(run.parameters["log_dir"] for run in runs) == ["a", "b"]
    for run in runs:
        assert [(row["time-step"], row["loss"]) for row in run.rows()] == [
            (str(n), str(n)) for n in range(20)
        ]


@pytest.mark.further
@pytest.mark.slow
def test_it_keeps_to_the_run_that_it_joined(scripts: Scripts) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    check_it_keeps_to_its_run(
        scripts,
        """from rla_client.integrations.tensorboard import SummaryWriter
ours = SummaryWriter("runs/x")""",
        """ours.add_scalar("loss", step, step)""",
    )


@pytest.mark.slow
def test_pictures_films_and_sounds_are_files_of_the_results(scripts: Scripts) -> None:
    scripts.run(
        """
import io
import numpy as np
import rla_client
from PIL import Image
from rla_client.integrations.tensorboard import SummaryWriter
writer = SummaryWriter("runs/x")
for step in (0, 5):
    writer.add_image("made/digit", np.full((3, 8, 8), step * 0.1), step)
writer.add_video("film", np.zeros((1, 2, 3, 8, 8), np.uint8), 5)
writer.add_audio("sound", np.zeros(100), 5)
writer.add_histogram("weights", np.zeros(3), 5)
writer.add_image("large", np.random.default_rng(0).random((3, 900, 900)), 6)  # in the event alone
SummaryWriter("runs/x/eval").add_image("digit", np.zeros((3, 8, 8)), 7)
other = rla_client.init("beside")
writer.add_image("not", np.zeros((3, 8, 8)), 9)  # of x, but another run is open
"""
    )
    run, other = sorted(scripts.runs(2), key=lambda one: one.table == "beside")
    results = run.folder("results")
    found = {path.relative_to(results).as_posix(): path.read_bytes() for path in results.rglob("*.*")}
    assert sorted(found) == [
        "5-film.gif",
        "5-sound.wav",
        "eval/7-digit.png",
        "made/0-digit.png",
        "made/5-digit.png",
    ]
    assert found["made/5-digit.png"].startswith(b"\x89PNG")
    assert not list(other.folder("results").rglob("*.*"))


@pytest.mark.slow
def test_texts_of_the_trainer_become_hyper_parameters(scripts: Scripts) -> None:
    scripts.run(
        """
import json
from rla_client.integrations.tensorboard import SummaryWriter
with SummaryWriter("out/tiny/runs/Nov29_12-50-00_node-7") as writer:
    writer.add_text("args", json.dumps({"learning_rate": 0.001, "hub_token": "<HUB_TOKEN>", "seed": 3}))
    writer.add_text("model_config", json.dumps({"hidden_size": 8, "architectures": ["Bert"]}))
    writer.add_text("args", "no JSON")
    writer.add_text("model_config", "[1]")
    writer.add_scalar("train/loss", 0.5, 1)
"""
    )
    (run,) = scripts.runs()
    assert run.table == "tiny"
    assert (run.parameters["learning_rate"], run.parameters["seed"]) == (0.001, 3)
    assert run.parameters["model"] == {"hidden_size": 8, "architectures": ["Bert"]}
