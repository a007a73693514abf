"""The module of wandb's shape: call patterns of public scripts, with their one line changed."""

from __future__ import annotations

import csv
import gzip
import json
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.beside import check_it_keeps_to_its_run
from support.user_scripts import COUNTER_ENV, RunFolder, Scripts, read_scalars
from support.waiting import wait_until

IMPORT = "import rla_client.integrations.wandb as wandb\n"
EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "cleanrl_ppo.py"


def plain(run: RunFolder) -> list[dict[str, str]]:
    return [{key: cell for key, cell in row.items() if key != "timestamp"} for row in run.rows()]


@pytest.mark.slow
def test_cleanrls_tracking(scripts: Scripts) -> None:
    """`--track`: wandb is told everything by TensorBoard."""
    pytest.importorskip("torch", reason="needs PyTorch")
    pytest.importorskip("gymnasium")
    ours = "from rla_client.integrations.tensorboard import SummaryWriter\n"
    source = EXAMPLE.read_text().replace(ours, "from torch.utils.tensorboard import SummaryWriter\n")
    made = "    writer = SummaryWriter("
    tracked = f"""
    import rla_client.integrations.wandb as wandb
    wandb.init(project="cleanRL", entity=None, sync_tensorboard=True, config=vars(args), name=run_name,
               monitor_gym=True, save_code=True)
{made}"""
    scripts.run(source.replace(made, tracked), "--total-timesteps", "2048", "--seed", "4")
    (run,) = scripts.runs()
    (folder,) = (scripts.folder / "runs").iterdir()
    theirs = read_scalars(folder)
    assert len(theirs) == 10
    assert run.scalars() == theirs
    assert run.table == "cleanRL"
    assert f"&name={folder.name}" in run.log.name
    assert run.parameters["seed"] == 4
    assert [int(row["time-step"]) for row in run.rows() if "losses/value_loss" in row] == [
        512,
        1024,
        1536,
        2048,
    ]
    assert run.state["state"] == "finished"


@pytest.mark.slow
@pytest.mark.parametrize(
    "writer",
    [
        "torch.utils.tensorboard",
        pytest.param("rla_client.integrations.tensorboard", marks=pytest.mark.further),
    ],
)
def test_rows_beside_tensorboards_are_at_its_step(scripts: Scripts, writer: str) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    scripts.run(
        IMPORT
        + f"""
from {writer} import SummaryWriter
wandb.init(project="both", tensorboard=True)
writer = SummaryWriter("runs/a")
for step in (100, 200):
    writer.add_scalar("loss", step / 10, step)
    wandb.log({{"eval": step}})
    wandb.log({{"again": step}})
""",
        WANDB_JOB_TYPE="train",
    )
    (run,) = scripts.runs()
    assert run.parameters["job_type"] == "train"
    assert plain(run) == [
        {"loss": "10.0", "time-step": "100"},
        {"eval": "100", "time-step": "100"},
        {"again": "100", "time-step": "101"},
        {"loss": "20.0", "time-step": "200"},
        {"eval": "200", "time-step": "200"},
        {"again": "200", "time-step": "201"},
    ]


@pytest.mark.slow
def test_a_language_models_loop(scripts: Scripts) -> None:
    """nanoGPT's pattern: a dict now and then with the iteration in it, no step."""
    scripts.run(
        IMPORT
        + """
config = {"learning_rate": 6e-4, "batch_size": 12, "compile": True}
wandb.init(project="owt", name="gpt2", config=config)
for iter_num in range(0, 6, 2):
    wandb.log({"iter": iter_num, "train/loss": 3.0 - iter_num / 8, "lr": 6e-4, "mfu": -1.0 * 100})
"""
    )
    (run,) = scripts.runs()
    assert [(row["time-step"], row["iter"], row["train/loss"]) for row in run.rows()] == [
        ("0", "0", "3.0"),
        ("1", "2", "2.75"),
        ("2", "4", "2.5"),
    ]
    assert run.parameters == {"learning_rate": 6e-4, "batch_size": 12, "compile": True, "name": "gpt2"}
    assert run.scalars()["train/loss"] == [(0, 3.0), (1, 2.75), (2, 2.5)]
    summary = json.loads((run.log / "summary.json").read_text())
    assert summary == {"iter": 4, "train/loss": 2.5, "lr": 6e-4, "mfu": -100.0}


@pytest.mark.further
@pytest.mark.slow
def test_a_classifiers_script(scripts: Scripts) -> None:
    """The MNIST example's pattern: watch, config, images, a table, a model as artifact, a summary."""
    pytest.importorskip("torch", reason="needs PyTorch")
    scripts.run(
        IMPORT
        + """
import argparse, os
import numpy as np, torch
from PIL import Image as PilImage
from matplotlib import pyplot as plt
args = argparse.Namespace(lr=0.1, epochs=2, layers=(4, 2))
about = {"tags": ["first", "of many"], "notes": "a try", "job_type": "train"}
with wandb.init(project="mnist", config=args, **about) as run:
    assert dict(run.config) == {"lr": 0.1, "epochs": 2, "layers": (4, 2)}
    config = wandb.config
    config.dropout = 0.5
    config.update({"lr": 0.2}, allow_val_change=True)
    config.setdefaults({"lr": 9, "momentum": 0.9})
    assert config["momentum"] == 0.9 and config.lr == 0.2 and config.get("none", 3) == 3
    model = torch.nn.Linear(3, 2)
    wandb.watch(model, log="all", log_freq=2)
    wandb.define_metric("acc", summary="max")
    wandb.define_metric("val_*", summary="min,mean")
    for epoch in range(config.epochs):
        for _ in range(2):
            model(torch.ones(3)).sum().backward()
        loss = torch.tensor(2.0 + epoch)
        wandb.log({"acc": 0.9 - epoch / 10, "val_loss": loss, "nested": {"a": np.float32(epoch)}})
    zero = wandb.Image(np.zeros((8, 8), np.uint8), caption="zero")
    examples = [zero, wandb.Image(PilImage.new("RGB", (8, 8)))]
    wandb.log({"examples": examples, "sound": wandb.Audio(np.zeros(80), sample_rate=800)})
    wandb.log({"clip": wandb.Video(np.zeros((3, 3, 16, 16), np.uint8), fps=4, format="gif")}, step=7)
    plt.plot([1, 2])
    wandb.log({"chart": plt, "figure": plt.gcf(), "h": wandb.Histogram([1.0, 2.0, 2.0])}, step=7)
    counts = np.histogram([1, 2, 3])
    wandb.log({"h2": wandb.Histogram(np_histogram=counts), "w": torch.ones(40), "text": "words"})
    table = wandb.Table(columns=["id", "name"], data=[[1, "a"]])
    table.add_data(2, 'b "q", c')
    run.log({"predictions": table, "page": wandb.Html("<b>x</b>")})
    torch.save(model.state_dict(), "model.pt")
    artifact = wandb.Artifact("net", type="model", metadata={"acc": 0.9})
    artifact.add_file("model.pt")
    with artifact.new_file("notes.txt") as file:
        file.write("by hand")
    run.log_artifact(artifact).wait()
    assert os.path.exists(os.path.join(artifact.download(), "model.pt"))
    os.makedirs("out", exist_ok=True)
    open("out/log.txt", "w").write("early")
    assert len(wandb.save("out/*.txt")) == 1
    open("out/log.txt", "w").write("late and longer")
    wandb.run.summary["best"] = 0.9
    wandb.run.summary.update({"other": np.float64(2)})
    assert os.path.isdir(run.dir) and run.url.startswith("file:///") and run.name and run.id
assert wandb.run is None
"""
    )
    (run,) = scripts.runs()
    assert run.parameters == {
        "lr": 0.2,
        "epochs": 2,
        "layers": [4, 2],
        "job_type": "train",
        "dropout": 0.5,
        "momentum": 0.9,
    }
    rows = plain(run)
    assert rows[:2] == [
        {"acc": "0.9", "val_loss": "2.0", "nested.a": "0.0", "time-step": "0"},
        {"acc": "0.8", "val_loss": "3.0", "nested.a": "1.0", "time-step": "1"},
    ]
    assert rows[2] == {"text": "words", "time-step": "7"}
    summary = json.loads((run.log / "summary.json").read_text())
    assert summary == {
        "acc.max": 0.9,
        "val_loss.min": 2.0,
        "val_loss.mean": 2.5,
        "nested.a": 1.0,
        "text": "words",
        "best": 0.9,
        "other": 2.0,
    }
    drawn = {
        *("2-examples_0.png", "2-examples_1.png", "7-clip.gif", "7-chart.png", "7-figure.png"),
        *("8-predictions.csv", "8-page.html", "files/out/log.txt"),
    }
    folder = run.folder("results")
    wait_until(lambda: drawn <= {path.relative_to(folder).as_posix() for path in folder.rglob("*.*")}, 60)
    assert (run.folder("results") / "8-predictions.csv").read_text() == 'id,name\n1,a\n2,"b ""q"", c"\n'
    assert (run.folder("results") / "files" / "out" / "log.txt").read_text() == "late and longer"
    model = run.folder("checkpoint") / "artifacts" / "net" / "v0"
    assert {path.name for path in model.iterdir()} == {"model.pt", "notes.txt", "artifact.json"}
    assert json.loads((model / "artifact.json").read_text())["metadata"] == {"acc": 0.9}
    note = json.loads((run.log / "note.json").read_text())
    assert (note["tags"], note["note"]) == (["first", "of many"], "a try")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tags = EventAccumulator(str(run.log / "tb" / "events")).Reload().Tags()
    assert {"h", "h2", "w", "gradients/weight", "parameters/bias"} <= set(tags["histograms"])
    assert tags["audio"] == ["sound"]


@pytest.mark.slow
def test_steps_commits_and_step_metrics(scripts: Scripts) -> None:
    scripts.run(
        IMPORT
        + """
wandb.init(project="steps")
wandb.log({"a": 1}, commit=False)
wandb.log({"b": 2})
wandb.log({"c": 3}, step=10)
wandb.log({"d": 4}, step=10)
wandb.log({"e": 5}, step=11)
wandb.log({"late": 6}, step=3)
wandb.log({"f": 7}, step=12, commit=True)
wandb.define_metric("epoch")
wandb.define_metric("eval/*", step_metric="epoch")
wandb.log({"eval/acc": 0.5, "epoch": 100})
wandb.log({"eval/acc": 0.6})
wandb.log({"plain": 1})
wandb.log({})
assert wandb.run.step == 17, wandb.run.step
import numpy as np
for shade in (0, 200):
    wandb.log({"eval/image": wandb.Image(np.full((4, 4), shade, np.uint8))})
for wrong in ([1], {1: 2}, "text"):
    try:
        wandb.log(wrong)
    except TypeError as error:
        assert "must be" in str(error)
    else:
        raise AssertionError(wrong)
"""
    )
    (run,) = scripts.runs()
    assert plain(run) == [
        {"a": "1", "b": "2", "time-step": "0"},
        {"c": "3", "d": "4", "time-step": "10"},
        {"e": "5", "time-step": "11"},
        {"late": "6", "time-step": "3"},
        {"f": "7", "time-step": "12"},
        {"eval/acc": "0.5", "epoch": "100", "time-step": "100"},
        {"eval/acc": "0.6", "time-step": "100"},
        {"plain": "1", "time-step": "15"},
    ]
    images = {path.name for path in (run.folder("results") / "eval").iterdir()}
    assert images == {"100-image.png"}  # at the last epoch, which they do not name


@pytest.mark.further
@pytest.mark.slow
def test_what_is_said_of_a_name_itself_counts_before_a_glob(scripts: Scripts) -> None:
    scripts.run(
        IMPORT
        + """
for start in (1, 4):  # the second one opens while the first one's rows may still be on their way
    run = wandb.init(project="metrics", id="same", resume="allow")
    wandb.define_metric("val/acc", summary="max")
    wandb.define_metric("val/acc", step_metric="epoch")
    wandb.define_metric("*", step_metric="epoch")
    wandb.define_metric("gone", summary="min")
    wandb.define_metric("gone", summary="none", overwrite=True)
    for epoch in range(start, start + 3):
        acc = float("nan") if epoch == 1 else 1 / epoch
        wandb.log({"val/acc": acc, "gone": 1, "a": {"b": epoch}, "epoch": epoch})
    assert run.summary["val/acc"]["max"] == 0.5 and run.summary["a"]["b"] == start + 2
    assert "gone" not in run.summary and "gone.min" not in run.summary
    assert start == 1 or run.starting_step == 4
    run.finish()
"""
    )
    first, second = scripts.runs(2)
    assert [row["time-step"] for run in (first, second) for row in run.rows()] == list("123456")


@pytest.mark.further
@pytest.mark.slow
def test_films_of_record_video_are_part_of_the_run(scripts: Scripts) -> None:
    pytest.importorskip("gymnasium")
    scripts.run(
        COUNTER_ENV
        + IMPORT
        + """
import sys, types
wandb.init(project="films", monitor_gym=True, sync_tensorboard=False)
class Clip:
    def __init__(self, frames, fps):
        pass
    def write_videofile(self, path, **further):
        open(path, "wb").write(b"theirs")
moviepy = types.ModuleType("moviepy")
sys.modules["moviepy"] = sys.modules["moviepy.video"] = moviepy
sys.modules["moviepy.video.io"] = moviepy
sys.modules["moviepy.video.io.ImageSequenceClip"] = types.SimpleNamespace(ImageSequenceClip=Clip)
env = gymnasium.wrappers.RecordVideo(Counter(), "theirs", episode_trigger=lambda n: n == 1)
for _ in range(3):
    env.reset()
    while not env.step(0)[2]:
        pass
env.close()
"""
    )
    (run,) = scripts.runs()
    films = [path.name for path in run.folder("results").rglob("*.mp4")]
    assert len(films) == 1
    assert "episode-1" in films[0]
    assert len(list((scripts.folder / "theirs").iterdir())) == 1


@pytest.mark.further
@pytest.mark.slow
def test_which_keys_of_the_configuration_are_recorded(scripts: Scripts) -> None:
    scripts.run(
        IMPORT
        + """
config = {"lr": 0.1, "path": "/home/me", "seed": 1}
for name, keys in (("without", {"config_exclude_keys": ["path"]}), ("only", {"config_include_keys": ["lr"]})):
    run = wandb.init(project="keys", name=name, config=config, **keys)
    assert "path" not in run.config
    run.finish()
"""
    )
    only, without = sorted(({**run.parameters} for run in scripts.runs(2)), key=lambda found: found["name"])
    assert (only, without) == ({"name": "only", "lr": 0.1}, {"name": "without", "lr": 0.1, "seed": 1})


@pytest.mark.slow
def test_ends_modes_ids_and_what_is_unknown(scripts: Scripts) -> None:
    done = scripts.run(
        IMPORT
        + """
try:
    wandb.log({"a": 1})
except wandb.UsageError as error:
    assert "wandb.init()" in str(error)
run = wandb.init(project="a/b c", id="mine")
assert run.id == "mine" and wandb.init() is run
wandb.log({"a": 1})
wandb.log({"roc": wandb.plot.roc_curve([0, 1], [[0.2, 0.8], [0.6, 0.4]])})
assert not wandb.sdk.lib.telemetry.context() and not wandb.util.to_json(1)
assert wandb.log_artifact(__file__, "code", "script", ["best"]).aliases == ["latest", "best"]
assert not wandb.Api().runs("x") and list(wandb.Api().sweep("y").runs) == []
@wandb.something
def keeps(): return 3
assert keeps() == 3
wandb.run.mark_preempting()
wandb.alert("title", "text", level=wandb.AlertLevel.WARN)
wandb.alert("title", "again")
wandb.finish(exit_code=3)
second = wandb.init(project="second", reinit=True, made_up=1)
third = wandb.init(project="third", reinit=True)
assert wandb.run is third
try:
    second.log({"a": 1})
except wandb.UsageError:
    pass
"""
    )
    assert done.stdout.count("wandb.plot.roc_curve has no meaning here") == 1
    assert done.stdout.count("wandb.Api().runs") == 1
    assert "wandb.init(made_up=" in done.stdout
    first, second, third = scripts.runs(3)
    assert (first.table, second.table, third.table) == ("a/b c", "second", "third")
    assert (first.state["state"], first.state["reason"]) == ("failed", "exit code 3")
    assert [second.state["state"], third.state["state"]] == ["finished"] * 2
    assert (first.log / "warn.txt").read_text().count("title: text") == 1
    assert "again" not in (first.log / "warn.txt").read_text()


@pytest.mark.further
@pytest.mark.slow
def test_a_run_that_has_ended_changes_nothing_of_the_next(scripts: Scripts) -> None:
    scripts.run(
        IMPORT
        + """
from tensorboardX import SummaryWriter
first = wandb.init(project="p", name="first", sync_tensorboard=True, config={"lr": 1})
writer = SummaryWriter("runs")
writer.add_scalar("synced", 1.0, 0)
first.finish()
second = wandb.init(project="p", name="second", config={"lr": 2})
writer.add_scalar("not synced", 1.0, 1)
try:
    first.log({"loss": 1})
except wandb.UsageError:
    pass
second.log({"loss": 2})
second.summary["best"] = 2
first.summary["best"] = 1
first.config.update({"lr": 3, "late": True})
first.tags, first.notes = ("late",), "late"
open("w.bin", "w").write("x")
artifact = wandb.Artifact("weights", "model")
artifact.add_file("w.bin")
first.save("w.bin")
first.log_artifact(artifact)
first.alert("late", "late")
assert first.dir != second.dir and first.path != second.path and first.url != second.url
import os
os.kill(os.getpid(), 9)
""",
        fails=True,
    )
    first, second = scripts.runs(2)
    assert [first.state["state"], second.state["state"]] == ["finished", "killed"]
    assert [list(row) for row in plain(first)] == [["synced", "time-step"]]
    assert plain(second) == [{"loss": "2", "time-step": "0"}]
    assert second.parameters == {"lr": 2, "name": "second"}
    assert json.loads((second.log / "summary.json").read_text()) == {"loss": 2, "best": 2}
    assert not (second.log / "note.json").exists()
    assert not list((scripts.folder / "data").rglob("w.bin"))
    assert not any("late" in path.read_text() for path in second.log.glob("warn.txt"))


@pytest.mark.slow
def test_a_full_disk_does_not_stop_training(scripts: Scripts) -> None:
    done = scripts.run(
        IMPORT
        + """
import resource, signal
run = wandb.init(project="p")
with open("large.bin", "wb") as file: file.write(bytes(1 << 20))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, -1))  # EFBIG in place of ENOSPC
wandb.save("large.bin")
artifact = wandb.Artifact("weights", "model")
artifact.add_file("large.bin")
wandb.log_artifact(artifact)
resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
wandb.log({"loss": 1})
"""
    )
    (run,) = scripts.runs()
    assert not list((scripts.folder / "data").rglob("weights/v0"))
    assert len(list((scripts.folder / "data").rglob("files/large.bin"))) == 1  # at the end there was room
    assert "large.bin was not copied" in done.stdout + done.stderr
    assert "artifact weights was not copied" in done.stdout + done.stderr
    assert [row["loss"] for row in plain(run)] == ["1"]


@pytest.mark.slow
def test_disabled_stores_nothing(scripts: Scripts) -> None:
    scripts.run(
        IMPORT
        + """
import numpy as np
run = wandb.init(project="p", mode="disabled", config={"a": 1}, tags=["x"])
run.log({"a": 1, "i": wandb.Image(np.zeros((4, 4)))})
run.log_artifact(wandb.Artifact("a", "b"))
wandb.save("*.py")
wandb.config.b = 2
wandb.summary["c"] = 3
wandb.finish()
"""
    )
    assert not (scripts.folder / "data").exists()


@pytest.mark.further
@pytest.mark.slow
def test_no_value_stops_training(scripts: Scripts) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    scripts.run(
        IMPORT
        + """
import datetime, io
import numpy as np, pandas as pd, torch
torch.manual_seed(0)
run = wandb.init(project="odd", tags=["two words", "a, b", "-"])
model = torch.nn.Linear(2, 2)
wandb.watch(model, log="all", log_freq=1)
for wrong in (None, [model, None]):
    try:
        wandb.watch(wrong)
    except ValueError as error:
        assert "takes a torch.nn.Module, or a list of them, got NoneType" in str(error)
    else:
        raise AssertionError(wrong)
open("cube.obj", "w").write("v 0 0 0")
(model(torch.ones(1, 2)).sum() * float("nan")).backward()
frame = pd.DataFrame({"a": [1, 2]})
wandb.log({
    "empty": np.array([]), "nan": np.full(50, np.nan), "text": np.array(["a", "b"]),
    "objects": np.array([None, 1], dtype=object), "frame": frame, "series": pd.Series([1.0, 2.0]),
    "nothing": wandb.Histogram([]), "list": [np.float32(1), torch.tensor(2.0), None], "words": ["a", "b"],
    "nested": [[1, 2], [3, 4]], "when": datetime.date(2026, 1, 2), "small": np.arange(3), "timestamp": 7,
    "eval/bar": wandb.plot.bar(wandb.Table(columns=["a"], data=[[1]]), "a"), "o": wandb.Object3D(frame),
    "wrong": wandb.Image("there/is/none.png"), "big": np.arange(100.0), "page": wandb.Html("page.html"),
    "batch": wandb.Image(torch.rand(4, 3, 8, 8)), "dark": wandb.Image(torch.randn(3, 8, 8)),
    "sound": wandb.Audio((8000 * np.sin(np.arange(400) / 9)).astype(np.int16), sample_rate=800),
    "mono": wandb.Audio(torch.rand(1, 300)), "film": wandb.Video(io.BytesIO(b"content"), format="mp4"),
    "cloud": wandb.Object3D(np.array([[0, 0, 0, 1], [1, 2, 3, 2.0]])), "cube": wandb.Object3D("cube.obj"),
    "lidar": wandb.Object3D({"type": "lidar/beta", "points": np.zeros((4, 6)), "boxes": np.array([{}])}),
    "gltf": wandb.Object3D.from_file(io.StringIO("{}"), "gltf"),
    "confusion": wandb.plot.confusion_matrix(y_true=["b", "a", "b"], preds=["b", "b", "b"], title="t"),
    "scores": wandb.plot.confusion_matrix(np.array([[0.9, 0.1], [0.2, 0.8]]), [1, 1], class_names=["x", "y"]),
    "unequal": wandb.plot.confusion_matrix(y_true=[1], preds=[1, 2]),
    "pictures": wandb.Table(columns=["i"], data=[[wandb.Image(np.zeros((4, 4), np.uint8))]]),
})
assert isinstance(run, wandb.sdk.wandb_run.Run) and not isinstance(3, wandb.data_types.Image)
try:
    raise ValueError
except (wandb.errors.AuthenticationError, ValueError):
    pass
artifact = wandb.Artifact("a", "b")
artifact.add_reference("s3://x")
try:
    artifact.add_dir("missing")
except ValueError as error:
    assert "not a directory" in str(error)
"""
    )
    (run,) = scripts.runs()
    (row,) = run.rows()
    expected = {
        "list": "[1.0, 2.0, None]",
        "small": "[0, 1, 2]",
        "nested": "[[1, 2], [3, 4]]",
        "_timestamp": "7",
    }
    assert {key: row[key] for key in expected} == expected
    assert "eval/bar" not in row
    assert "o" not in row
    assert json.loads((run.log / "note.json").read_text())["tags"] == ["two words", "a  b", "-"]
    warned = (run.log / "warn.txt").read_text()
    assert "No such file or directory: 'there/is/none.png'" in warned
    results = run.folder("results")
    assert {"0-frame.csv", "0-page.html", "0-batch.png", "0-dark.png", "0-film.mp4", "0-pictures.csv"} <= {
        path.name for path in results.iterdir()
    }
    assert (results / "eval" / "0-bar.csv").read_text() == "a\n1\n"
    assert (results / "0-confusion.csv").read_text() == "actual,predicted a,predicted b\na,0,1\nb,0,2\n"
    assert (results / "0-scores.csv").read_text() == "actual,predicted x,predicted y\nx,0,0\ny,1,1\n"
    assert "the confusion matrix was not kept: a confusion matrix has a prediction for each label" in warned
    assert (results / "0-cube.obj").read_text() == "v 0 0 0"
    assert (results / "0-gltf.gltf").read_text() == "{}"
    assert b"element vertex 4" in (results / "0-lidar.ply").read_bytes()
    cloud = (results / "0-cloud.ply").read_bytes()
    assert cloud.endswith(struct.pack("<fffBBB", 1, 2, 3, 44, 160, 44))
    (picture,) = (results / "0-pictures.csv").read_text().splitlines()[1:]
    assert (results / picture).exists()
    from PIL import Image
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    extrema: Any = Image.open(results / "0-dark.png").convert("L").getextrema()  # of one band: two numbers
    assert extrema[1] - extrema[0] > 100
    assert Image.open(results / "0-batch.png").size == (32, 8)
    tags = EventAccumulator(str(run.log / "tb" / "events")).Reload().Tags()
    assert {"sound", "mono"} <= set(tags["audio"])
    assert "big" in tags["histograms"]


def test_images_as_wandb_takes_them() -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    import numpy as np

    from rla_client.integrations.wandb.values import pixels

    assert pixels(torch.zeros(3, 5, 4)).shape == (5, 4, 3)  # a tensor's channels come first, also beside 4
    assert pixels(torch.zeros(2, 3, 5, 4)).shape == (5, 8, 3)
    assert pixels(np.zeros((3, 5, 4))).shape == (3, 5, 4)
    for kind in (np.int64, np.int8, np.uint16):
        assert pixels(np.array([[0, 1]], kind)).tolist() == [[0, 255]]  # a mask
    assert pixels(np.array([[0, 2]])).tolist() == [[0, 2]]


@pytest.mark.slow
def test_going_on_by_id_loses_no_row(scripts: Scripts) -> None:
    source = (
        IMPORT
        + """
import os, sys
wanted, resume = sys.argv[1:3]
try:
    run = wandb.init(project="p", id=wanted, resume=resume, config={"a": 1} if resume == "allow" else None)
except wandb.Error as error:
    print("refused", error)
    run = wandb.init(project="other", id="new", config={"b": 2})
print("at", run.resumed, run.step, dict(run.config), flush=True)
assert run.starting_step == run.step
if run.resumed:
    saved = wandb.restore("state.txt")
    print("restored", saved and saved.read(), run.summary.get("best"), flush=True)
else:
    with open(os.path.join(run.dir, "state.txt"), "w") as file:
        file.write("state")
    assert wandb.save(file.name) == [file.name]
    run.summary["best"] = 7
for number in range(3):
    wandb.log({"x": number})
if "kill" in sys.argv:
    os.kill(os.getpid(), 9)
"""
    )
    assert "at False 0 {'a': 1}" in scripts.run(source, "abc", "allow", "kill", fails=True).stdout
    assert "at True 3 {'a': 1}\nrestored state 7" in scripts.run(source, "abc", "must").stdout
    assert "at True 6 {'a': 1}\nrestored state 7" in scripts.run(source, "abc", "allow").stdout
    done = scripts.run(source, "none", "must")
    assert "has no run 'none'" in done.stdout
    assert "at False 0 {'b': 2}" in done.stdout
    first, second, third, other = scripts.runs(4)
    assert [[row["time-step"] for row in run.rows()] for run in (first, second, third)] == [
        ["0", "1", "2"],
        ["3", "4", "5"],
        ["6", "7", "8"],
    ]
    assert other.table == "other"
    assert second.log.name in third.parameters["resumed_from"]


@pytest.mark.further
@pytest.mark.slow
def test_processes_modes_names_and_ends(scripts: Scripts) -> None:
    source = (
        IMPORT
        + """
import os, subprocess, sys
if len(sys.argv) > 1:
    wandb.init(project="child", name="kid", config={"k": 1})
    wandb.log({"c": 1})
    sys.exit()
wandb.init(project="parent", config={"name": "resnet"}, name="run-7")
wandb.log({"p": 1})
subprocess.run([sys.executable, __file__, "x"], check=True)
wandb.run.name = "late"
wandb.run.tags += ("more",)
wandb.run.notes = "a note"
os.makedirs("../up", exist_ok=True)
open("../up/x.txt", "w").write("x")
(copy,) = wandb.save("../up/x.txt")
assert copy.startswith(wandb.run.dir), copy
wandb.finish()
wandb.init(project="off", mode="disabled")
wandb.finish()
assert not wandb.init(project="on", config={"api_key": "s3cr3t-value"}).disabled
wandb.run.tags = ["with s3cr3t-value"]
wandb.run.notes = "s3cr3t-value, password=open-sesame"
wandb.finish()
os.environ["WANDB_DISABLED"] = "true"
assert wandb.init(project="off").disabled
wandb.finish()
del os.environ["WANDB_DISABLED"]
for error in (SystemExit(3), SystemExit(0), KeyboardInterrupt(), ValueError("words")):
    try:
        with wandb.init(project="ends"):
            raise error
    except BaseException as caught:
        assert caught is error
"""
    )
    scripts.run(source)
    runs = scripts.runs(7)
    parent, child, on, *ends = runs
    assert [run.table for run in runs] == ["parent", "child", "on", *["ends"] * 4]
    assert child.parameters == {"k": 1, "name": "kid"}
    assert [row["c"] for row in child.rows()] == ["1"]
    assert "&run_name=run-7" in parent.log.name
    assert parent.parameters == {"name": "resnet", "run_name": "late"}
    note = json.loads((parent.log / "note.json").read_text())
    assert (note["tags"], note["note"]) == (["more"], "a note")
    assert on.state["state"] == "finished"
    note = json.loads((on.log / "note.json").read_text())
    assert (note["tags"], note["note"]) == (["with <hidden>"], "<hidden>, password=<hidden>")
    assert [(run.state["state"], run.state["reason"]) for run in ends] == [
        ("failed", "exit code 3"),
        ("finished", ""),
        ("interrupted", "KeyboardInterrupt"),
        ("failed", "ValueError: words"),
    ]


@pytest.mark.further
@pytest.mark.slow
def test_runs_beside_each_other(scripts: Scripts) -> None:
    scripts.run(
        IMPORT
        + """
first = wandb.init(project="p", name="first", config={"lr": 1})
second = wandb.init(project="p", name="second", config={"lr": 2}, reinit="create_new")
assert wandb.run is first
for step in range(3):
    first.log({"loss": step})
    second.log({"loss": 10 + step})
    wandb.log({"also": step})
second.config.update({"lr": 3})
second.summary["best"] = 2
first.finish()
second.log({"loss": 13})
second.finish()
"""
    )
    first, second = scripts.runs(2)
    assert [row["loss"] for row in plain(first) if "loss" in row] == ["0", "1", "2"]
    assert [row["also"] for row in plain(first) if "also" in row] == ["0", "1", "2"]
    assert [row["loss"] for row in plain(second)] == ["10", "11", "12", "13"]
    assert (first.parameters["lr"], second.parameters["lr"]) == (1, 3)
    (change,) = second.log.glob("parameter.resumed-*.json")
    assert json.loads(change.read_text())["changed"] == {"lr": [2, 3]}


@pytest.mark.further
@pytest.mark.slow
def test_a_key_that_comes_twice_in_a_step(scripts: Scripts) -> None:
    done = scripts.run(
        IMPORT
        + """
wandb.init(project="p")
for step in range(2):
    wandb.log({"a": 1, "b": 5}, step=step)
    wandb.log({"a": 2}, step=step)
wandb.log({"a": 3}, step=2, commit=False)
wandb.log({"a": 4}, commit=True)  # of the step that is not written yet
"""
    )
    (run,) = scripts.runs(1)
    assert [(row["time-step"], row["a"], row.get("b")) for row in run.rows()] == [
        ("0", "2", "5"), ("1", "2", "5"), ("2", "4", None),
    ]  # fmt: skip
    assert done.stdout.count("a came twice in step 0") == 1


@pytest.mark.parametrize("name", ["sweep", "agent"])
def test_sweeps_name_our_own(name: str) -> None:
    from rla_client.integrations import wandb

    with pytest.raises(wandb.UsageError, match="rla sweep"):
        getattr(wandb, name)({"method": "grid"}, function=print)


def test_join_is_the_former_name_of_finish() -> None:
    from rla_client.integrations import wandb

    assert wandb.join is wandb.finish


@pytest.mark.slow
def test_it_keeps_to_the_run_that_it_joined(scripts: Scripts) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    check_it_keeps_to_its_run(
        scripts,
        """import rla_client.integrations.wandb as wandb
ours = wandb.init(project="x")""",
        """ours.log({"loss": step}, step=step)""",
    )


@pytest.mark.further
@pytest.mark.slow
def test_nothing_holds_a_run_that_was_finished(scripts: Scripts) -> None:
    scripts.run(
        IMPORT
        + """
import gc, weakref
run = wandb.init(project="p")
handle, kept = weakref.ref(run._handle), weakref.ref(run)
wandb.finish()
gc.collect()
assert handle() is None
del run
gc.collect()
assert kept() is None
"""
    )


@pytest.mark.further
@pytest.mark.slow
def test_its_steps_go_on_in_a_run_that_the_script_has_resumed(scripts: Scripts) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    script = """
import os, sys
import rla_client
import rla_client.integrations.wandb as wandb
from rla_client import exp_manager, logger

rla_client.init("t", run_id="one", resume="allow")
begin = exp_manager.load_checkpoint()[1] if exp_manager.resumed_from is not None else 0
run = wandb.init(project="p")
print("at", run.resumed, run.step, dict(run.summary), flush=True)
for number in range(begin, begin + 20):
    wandb.log({"x": number})
    if number % 10 == 9:
        run.summary["best"] = number
        exp_manager.save_checkpoint(number + 1)
wandb.log({"x": -1}) if sys.argv[1:] else None
logger.flush(60)
if sys.argv[1:]:
    os.kill(os.getpid(), 9)
"""
    assert "at False 0 {}" in scripts.run(script, "killed", fails=True).stdout
    assert "at True 20 {'x': 19, 'best': 19}" in scripts.run(script).stdout
    (run,) = scripts.runs(1)
    assert [(row["x"], row["time-step"]) for row in run.rows()] == [(str(n), str(n)) for n in range(40)]
    assert (run.folder("checkpoint") / "checkpoint_39.pt").is_file()


@pytest.mark.slow
def test_a_job_that_is_started_again_continues_by_our_variables(scripts: Scripts) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    script = """
import os, sys
import rla_client.integrations.wandb as wandb
from rla_client import exp_manager, logger

run = wandb.init(project="p", name="n", config={"lr": 1})
begin = exp_manager.load_checkpoint()[1] if exp_manager.resumed_from is not None else 0
print("at", run.resumed, run.step, begin, flush=True)
for number in range(begin, 40):
    wandb.log({"x": number})
    if number % 10 == 9:
        exp_manager.save_checkpoint(number + 1)
    if number == 24 and sys.argv[1:]:
        logger.flush(60)
        os.kill(os.getpid(), 9)
"""
    first = scripts.run(script, "killed", fails=True, RLA_RUN_ID="job", RLA_RESUME="allow")
    assert "at False 0 0" in first.stdout
    assert "at True 20 20" in scripts.run(script, RLA_RUN_ID="job", RLA_RESUME="allow").stdout
    (run,) = scripts.runs(1)
    assert [(row["x"], row["time-step"]) for row in run.rows()] == [(str(n), str(n)) for n in range(40)]


@pytest.mark.slow
def test_frameworks_find_its_parts_in_the_place_of_wandb(scripts: Scripts) -> None:
    """Imports of transformers, prime-rl, ART, lightning; each of `import a.b.c`, too."""
    scripts.run(
        """
import sys
import rla_client.integrations.wandb
sys.modules["wandb"] = rla_client.integrations.wandb
import importlib.util
import wandb
assert importlib.util.find_spec("wandb") is not None and hasattr(wandb, "run")
from wandb.sdk.lib.config_util import ConfigError
from wandb.sdk.lib import RunDisabled, runid, telemetry
from wandb.sdk.wandb_run import Run
from wandb.wandb_run import Run as Former
from wandb.errors import CommError, UsageError, AuthenticationError
from wandb.util import generate_id
from wandb.data_types import Image, Table
from wandb.sdk.data_types import Video
from wandb.apis.public import Api
from wandb_gql import gql
from wandb import Settings, AlertLevel, Artifact
import wandb.env, wandb.plot, wandb.sdk.lib.runid, wandb.sdk.wandb_settings
assert Run is Former is wandb.sdk.wandb_run.Run and Image is wandb.Image is wandb.data_types.Image
assert issubclass(ConfigError, wandb.Error) and wandb.errors.UsageError is UsageError
assert len(generate_id()) == len(wandb.sdk.lib.runid.generate_id()) == 8 and wandb.env.get_project() is None
run = wandb.init(project="parts", settings=Settings(mode="offline"), dir="there")
assert isinstance(run, Run) and isinstance(wandb.Image, type)
run._label(code="a framework")
run._settings.anything
assert run._backend.interface.publish_tbdata("x") is not None
wandb.log({"loss": 1.0})
import copy, pickle
for wrong in (copy, pickle):
    assert not hasattr(run, "__nothing__")
"""
    )
    (run,) = scripts.runs()
    assert plain(run) == [{"loss": "1.0", "time-step": "0"}]
    assert "no meaning" not in (run.log / "warn.txt").read_text()


@pytest.mark.slow
def test_rows_before_the_first_value_of_their_step_metric_wait_for_it(scripts: Scripts) -> None:
    """TRL's pattern: timings of each part of a step, then its row, then a table alone."""
    scripts.run(
        IMPORT
        + """
wandb.init(project="late")
wandb.define_metric("train/global_step")
wandb.define_metric("*", step_metric="train/global_step", step_sync=True)
for step in (9, 10):
    wandb.log({"profiling/generate": step / 10})
    wandb.log({"profiling/reward": step / 100})
    wandb.log({"train/loss": 1 / step, "train/global_step": step})
    wandb.log({"completions": wandb.Table(columns=["prompt"], data=[["two"]])})
wandb.finish()
run = wandb.init(project="never")
wandb.define_metric("*", step_metric="epoch")
for value in (1, 2):
    wandb.log({"loss": value})  # nobody logs the epoch
wandb.finish()
run = wandb.init(project="times")
wandb.define_metric("*", step_metric="step")
wandb.define_metric("inference/*", step_metric="_timestamp")
for step in (70, 80):
    wandb.log({"loss": 1.0, "step": step})
    wandb.log({"inference/busy": 1.0, "_timestamp": 1e9 + step})
"""
    )
    late, never, times = sorted(scripts.runs(3), key=lambda run: run.table)
    busy = [row for row in times.rows() if row.get("inference/busy")]
    assert [(row["time-step"], row["timestamp"]) for row in busy] == [
        ("70", "1000000070.0"),
        ("80", "1000000080.0"),
    ]
    assert [(row["time-step"], next(iter(set(row) - {"time-step", "timestamp"}))) for row in late.rows()][
        :2
    ] == [
        ("9", "profiling/generate"),
        ("9", "profiling/reward"),
    ]
    assert [row["time-step"] for row in late.rows()] == ["9", "9", "9", "9", "9", "10"]
    assert {path.name for path in late.folder("results").iterdir()} == {
        "9-completions.csv",
        "10-completions.csv",
    }
    assert [row["time-step"] for row in never.rows()] == ["0", "1"]


@pytest.mark.slow
@pytest.mark.further
def test_several_processes_write_one_run_by_its_id(scripts: Scripts) -> None:
    """prime-rl's and wandb's own pattern: one primary, others by `mode="shared"` and the id alone."""
    scripts.run(
        IMPORT
        + """
import os, subprocess, sys
WORKER = '''
import sys
import rla_client.integrations.wandb as wandb
shared = wandb.Settings(mode="shared", x_label=sys.argv[1], x_primary=False, x_update_finish_state=False)
given = {"settings": shared} if sys.argv[1] == "rollout_1" else {"mode": "shared"}
with wandb.init(project="many", id="one", resume="allow", config={"seed": 7}, **given) as run:
    assert run.id == "one" and run.config["seed"] == 7
    wandb.define_metric("*", step_metric="step")
    for step in range(20):
        wandb.log({"reward": step * 2.0, "step": step})
    run.summary["mine"] = 1
'''
settings = wandb.Settings(mode="shared", x_label="main", x_primary=True)
run = wandb.init(project="many", id="one", settings=settings, config={"lr": 0.1})
run.log({"loss": 1.0}, step=3)
free = {name: value for name, value in os.environ.items() if name != "RLA_RUN"}
workers = [subprocess.Popen([sys.executable, "-c", WORKER, label], env=free) for label in ("rollout_1", "?")]
assert [worker.wait(100) for worker in workers] == [0, 0]
run.log({"loss": 2.0}, step=4)
"""
    )
    (run,) = scripts.runs()
    assert plain(run) == [{"loss": "1.0", "time-step": "3"}, {"loss": "2.0", "time-step": "4"}]
    assert run.parameters == {"lr": 0.1}
    assert json.loads((run.log / "summary.json").read_text()) == {"loss": 2.0}
    tables = sorted(path.name for path in run.log.glob("progress.*.csv"))
    assert len(tables) == 2
    assert "progress.rollout_1.csv" in tables
    for name in tables:
        lines = (run.log / name).read_text().splitlines()[1:]
        assert len(lines) == 20
        assert lines[-1].startswith("38.0,19,19,")


@pytest.mark.slow
def test_who_should_join_a_run_that_nobody_writes_is_told(scripts: Scripts) -> None:
    done = scripts.run(
        IMPORT
        + """
settings = wandb.Settings(mode="shared", x_label="rollout-3", x_primary=False)
wandb.init(project="many", id="gone", settings=settings).log({"reward": 1.0})
"""
    )
    assert "no other process of this machine writes the run 'gone' of 'many'" in done.stdout
    (run,) = scripts.runs()
    assert [row["reward"] for row in run.rows()] == ["1.0"]


@pytest.mark.slow
def test_processes_of_one_id_that_start_at_once_write_one_run(scripts: Scripts) -> None:
    """prime-rl's trainer and orchestrator, whichever comes first."""
    scripts.run(
        """
import os, subprocess, sys, time
WORKER = '''
import sys
import rla_client.integrations.wandb as wandb
label = sys.argv[1]
settings = wandb.Settings(mode="shared", x_label=label, x_primary=label == "main")
print("ready", flush=True)
sys.stdin.readline()
run = wandb.init(project="at_once", resume="allow", settings=settings)
wandb.define_metric("*", step_metric="step")
wandb.log({label: 1.0, "step": 3})
print("logged", flush=True)
sys.stdin.readline()
'''
for number in range(3):
    chosen = {**os.environ, "WANDB_RUN_ID": f"run{number}"}
    command = [sys.executable, "-c", WORKER]
    both = [
        subprocess.Popen([*command, label], env=chosen, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for label in ("main", "trainer")
    ]
    for word in (b"ready", b"logged"):
        for one in both:
            while word not in (line := one.stdout.readline()):
                assert line
        for one in both:
            one.stdin.write(b"go on\\n")
            one.stdin.flush()
    assert [one.wait(100) for one in both] == [0, 0]
"""
    )
    runs = scripts.runs(3)
    names = [sorted(path.name for path in run.log.glob("progress*.csv")) for run in runs]
    assert all(len(found) == 2 for found in names), names


@pytest.mark.slow
def test_a_table_that_grows_costs_its_new_rows_alone(scripts: Scripts) -> None:
    """verl's and OpenRLHF's pattern: a new table of all rows so far, each time; and `log_mode`."""
    scripts.run(
        IMPORT
        + """
run = wandb.init(project="samples")
table, grows = wandb.Table(columns=["step", "text"]), wandb.Table(columns=["n"], log_mode="INCREMENTAL")
for step in range(1, 5):
    table = wandb.Table(columns=table.columns, data=table.data)
    table.add_data(step, "x" * 1000)
    grows.add_data(step)
    wandb.log({"val/generations": table, "grows": grows}, step=step)
wandb.log({"val/generations": table}, step=9)
odd = {"big": 2**80, "text": "für", "all": {3}, "tuple": (1, None)}
wandb.log({"nested": wandb.Table(columns=["a"], data=[[odd], [[odd]], [{1: 2}]])}, step=10)
"""
    )
    (run,) = scripts.runs()
    results = run.folder("results")
    for step in range(1, 5):
        assert (
            results / "val" / f"{step}-generations.csv"
        ).read_text() == f"step,text\n{step},{'x' * 1000}\n"
        assert (results / f"{step}-grows.csv").read_text() == f"n\n{step}\n"
    assert not (results / "val" / "9-generations.csv").exists()
    with (results / "10-nested.csv").open(newline="") as file:
        cells = [json.loads(row["a"]) for row in csv.DictReader(file)]
    odd = {"big": 2**80, "text": "für", "all": "{3}", "tuple": [1, None]}
    assert cells == [odd, [odd], {"1": 2}]


def samples_of(run: RunFolder) -> list[dict[str, Any]]:
    paths = run.folder("samples").glob("*.gz")
    return [json.loads(line) for path in paths for line in gzip.decompress(path.read_bytes()).splitlines()]


@pytest.mark.slow
def test_a_table_that_holds_earlier_rows_anywhere_gives_each_sample_once(scripts: Scripts) -> None:
    scripts.run(
        IMPORT
        + """
run = wandb.init(project="samples")
columns = ["step", "prompt", "completion", "reward"]
rows = []
for step in range(6):
    rows += [[step, "p", f"c{step}", float("nan")], [step, "p", "same", 1.0], [step, "p", "same", 1.0]]
    newest, last = wandb.Table(columns=columns, data=rows[::-1]), wandb.Table(columns=columns, data=rows[-7:])
    again = wandb.Table(columns=columns[1:], data=[["p", "same", 1.0]] * 2)  # which says no step: new ones
    wandb.log({"newest": newest, "last": last, "again": again}, step=step)
"""
    )
    (run,) = scripts.runs()
    counts = Counter((row["step"], row["completion"]) for row in samples_of(run))
    own = {(step, f"c{step}"): 2 for step in range(6)}
    assert counts == Counter(own | {(step, "same"): 6 for step in range(6)})


FRAMEWORKS = """
import os, subprocess, sys
SECONDARY = '''
import wandb
settings = wandb.Settings(mode="shared", x_primary=False, x_update_finish_state=False, x_label="rollout-0")
wandb.init(id={0!r}, project="slime", config=dict(a=1), resume="allow", reinit=True, settings=settings)
wandb.define_metric("rollout/step")
wandb.define_metric("rollout/*", step_metric="rollout/step")
wandb.log(dict([("rollout/length", 7), ("rollout/step", 1)]))
'''
os.mkdir("in_its_place")
with open("in_its_place/wandb.py", "w") as file:
    file.write("import sys, rla_client.integrations.wandb as ours; sys.modules['wandb'] = ours")
sys.path.insert(0, "in_its_place")  # as by PYTHONPATH
import wandb

def verl():
    config = {"trainer": {"n_gpus": 8}, "data": {"seed": 1}}
    wandb.init(project="verl", name="ppo", config=config, settings=None, id="verl--ppo")
    table = wandb.Table(columns=["step", "input_1", "output_1", "score_1"])
    for step in (1, 2):
        wandb.log(data={"actor/loss": step / 4, "perf/throughput": 7}, step=step)
        table = wandb.Table(columns=table.columns, data=table.data)
        table.add_data(step, "p", f"c{step}", 0.5)
        wandb.log({"val/generations": table}, step=step)
    wandb.finish(exit_code=0)

def openrlhf():
    if not wandb.api.api_key:
        wandb.login(key=None)
    wandb.init(entity=None, project="openrlhf", group="g", name="ppo", config={"seed": 1}, reinit=True)
    wandb.define_metric("train/global_step")
    wandb.define_metric("train/*", step_metric="train/global_step", step_sync=True)
    wandb.define_metric("eval/epoch")
    wandb.define_metric("eval/*", step_metric="eval/epoch", step_sync=True)
    table = wandb.Table(columns=["global_step", "text", "reward"])
    for step in (1, 2):
        table = wandb.Table(columns=table.columns, data=table.data)
        table.add_data(step, "p c", 0.5)
        wandb.log({"train/generated_samples": table})
        wandb.log({"train/loss": step / 4, "train/global_step": step})
    wandb.finish()

def prime_rl():
    from wandb.errors import CommError
    from wandb.sdk.mailbox.mailbox_handle import ServerResponseError
    try:
        run = wandb.init(
            id=None, resume=None, project="prime", entity=None, name="n", group=None, tags=["a b"],
            dir="out", config={"seed": 1}, settings=wandb.Settings(mode="online"),
        )
    except (CommError, ServerResponseError):
        wandb.teardown()
    wandb.define_metric("*", step_metric="step")
    table = wandb.Table(columns=["step", "messages", "reward"], log_mode="INCREMENTAL")
    for step in (1, 2):
        table.add_data(step, "p c", 0.5)
        wandb.log({"samples": table, "step": step})
        wandb.log({"loss": step / 4, "step": step})
    assert wandb.summary._as_dict()["loss"] == 0.5
    run.finish()

def nemo_rl():
    run = wandb.init(project="nemo", name="grpo", dir="logs")
    artifact = wandb.Artifact(name=f"source-code-{run.project}", type="code")
    artifact.add_file(__file__, name="train.py")
    run.log_artifact(artifact)
    run.config.update({"seed": 1}, allow_val_change=True)
    run.define_metric("ray/*", step_metric="ray/step")
    for step in (1, 2):
        run.log({"train/loss": step / 4}, step=step)
        run.log({"train/ratio": wandb.Histogram([0.5] * 50)}, step=step)
        run.log({"ray/used": 3, "ray/step": step * 10}, commit=False)
        run.log({"timing/total": 1.0}, step=step, commit=True)
    run.finish()

def skyrl():
    wandb.init(project="skyrl", name="n", config={"seed": 1})
    for step in (1, 2):
        wandb.log(data={"loss": step / 4}, step=step, commit=False)
        wandb.log(data={"reward": 1.0}, step=step, commit=True)
    wandb.finish(exit_code=0)

def areal():
    wandb.login()
    wandb.init(
        mode="online", entity=None, project="areal", name="t",
        job_type=None, group="e_t", notes=None, tags=None,
        config={"seed": 1}, dir="logs", force=True, id="e_t_train", resume="allow",
    )
    for step in (1, 2):
        wandb.log({"loss": step / 4}, step=step)
    wandb.finish()

def slime():
    def common():
        for part in ("train", "rollout"):
            wandb.define_metric(f"{part}/step")
            wandb.define_metric(f"{part}/*", step_metric=f"{part}/step")
    shared = wandb.Settings(mode="shared", x_primary=True)
    group = "g_" + wandb.util.generate_id()
    wandb.init(entity=None, project="slime", group=group, name=group, config={"seed": 1}, settings=shared)
    common()
    number = wandb.run.id
    wandb.log({"rollout/reward": 1.0, "rollout/step": 1})
    code = SECONDARY.format(number)
    free = {name: value for name, value in os.environ.items() if name != "RLA_RUN"}
    subprocess.run([sys.executable, "-c", code], env={**free, "PYTHONPATH": "in_its_place"}, check=True)
    wandb.finish()
    wandb.init(id=number, entity=None, project="slime", resume="allow", reinit=True, settings=shared)
    common()
    wandb.log({"train/loss": 0.25, "train/step": 1})
    wandb.log({"train/loss": 0.5, "train/step": 2})
    wandb.finish()

for framework in (verl, openrlhf, prime_rl, nemo_rl, skyrl, areal, slime):
    framework()
"""


@pytest.mark.slow
def test_frameworks_of_language_models_log_as_they_are(scripts: Scripts) -> None:
    scripts.run(FRAMEWORKS)
    runs = {run.table: run for run in scripts.runs(8) if run.table != "slime"}
    assert sorted(runs) == ["areal", "nemo", "openrlhf", "prime", "skyrl", "verl"]
    loss = {"verl": "actor/loss", "openrlhf": "train/loss", "nemo": "train/loss"}
    for table, run in runs.items():
        name = loss.get(table, "loss")
        found = [(row["time-step"], row[name]) for row in run.rows() if row.get(name)]
        assert found == [("1", "0.25"), ("2", "0.5")], table
        assert run.state["state"] == "finished"
        warned = run.log / "warn.txt"
        assert not warned.exists() or "no meaning" not in warned.read_text(), (table, warned.read_text())
    kept = {path.name for run in runs.values() for path in run.folder("results").rglob("*.csv")}
    assert {"1-generations.csv", "2-generations.csv", "1-generated_samples.csv", "2-samples.csv"} <= kept
    sampled = [
        (table, row["name"], row["step"], row.get("prompt"), row["completion"], row["reward"])
        for table, run in runs.items()
        for row in samples_of(run)
    ]
    assert Counter(sampled) == Counter([
        ("verl", "eval", 1, "p", "c1", 0.5),
        ("verl", "eval", 2, "p", "c2", 0.5),
        *((table, "train", step, None, "p c", 0.5) for table in ("openrlhf", "prime") for step in (1, 2)),
    ])  # fmt: skip
    slime = [run for run in scripts.runs(8) if run.table == "slime"]
    rows = [row for run in slime for row in run.rows() if row.get("train/loss")]
    assert [(row["time-step"], row["train/loss"]) for row in rows] == [("1", "0.25"), ("2", "0.5")]
    assert [run.parameters["seed"] for run in slime] == [1, 1]
    (rollout,) = [path for run in slime for path in run.log.glob("progress.*.csv")]
    assert (rollout.name, rollout.read_text().splitlines()[1][:4]) == ("progress.rollout-0.csv", "7,1,")
