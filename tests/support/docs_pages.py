"""What each page of the documentation assumes of its readers: names, files, placeholders; what it leaves."""

from __future__ import annotations

import csv
import re
from pathlib import Path

from support.docs_lab import DOCS, ROOT, Assumed

MANAGER = "from rla_client import exp_manager, logger, time_step_holder\n"
EXAMPLES = f"cp -r {ROOT}/examples .\n"
COPIED = """
mkdir -p copied/master; cp train.py copied; cd copied
echo "SEND_LOG_FILE: true
REMOTE_SETTING: {file_transfer_protocol: folder, remote_data_root: $PWD/master}" > rla_config.yaml
rla-agent run -- python train.py --seed 9
"""  # a database that goes to a master


def pictures_are_made(folder: Path) -> None:
    """Each picture that the gallery shows; plot_func has a folder of its own."""
    shown = set(re.findall(r"\(gallery/(\w+\.png)\)", (DOCS / "gallery.md").read_text(encoding="utf-8")))
    made = {path.name for path in (folder / "gallery").iterdir()}
    if (folder / "demo_data" / "data" / "results" / "easy_plot" / "gallery.png").exists():
        made.add("plot_func.png")
    assert shown <= made


def launcher_files_are_there(folder: Path) -> None:
    """Each file that the page says a launcher leaves."""
    page = (DOCS / "how-to" / "launchers.md").read_text(encoding="utf-8")
    run = folder / "data" / "local" / "experiment" / "search_seed=3"
    rows = page[page.index("This leaves") : page.index("\n## ")]
    shown = {name for name in re.findall(r"`([^`/]+)`", rows) if "." in name and "N" not in name}
    there = {path.name for path in run.iterdir()}
    assert shown - {"params.pkl"} <= there
    assert {"itr_0.pkl", "itr_5.pkl", "itr_10.pkl"} <= there


def each_run_was_resumed(folder: Path) -> None:
    """Each killed run has its rows once; those after its checkpoint were moved aside and came again equal."""
    for table, name in (("walk", "x"), *([("fit", "loss")] if (folder / "fit.py").exists() else [])):
        (log,) = (path for path in (folder / "data" / "log" / table).glob("*/*/*/*") if path.is_dir())
        with (log / "progress.csv").open(newline="") as file:
            rows = {int(row["time-step"]): row[name] for row in csv.DictReader(file)}
        assert list(rows) == list(range(1, 201))
        with (log / "abandoned-1" / "progress.csv").open(newline="") as file:
            again = [(row[name], rows[int(row["time-step"])]) for row in csv.DictReader(file)]
        assert again
        assert all(first == second for first, second in again)


def each_seed_ran_once(folder: Path) -> None:
    """The runs that the page's lists show: four seeds of two rates; and their picture."""
    names = [path.name.partition("_&")[2] for path in (folder / "data" / "log" / "bandit").glob("*/*/*/*")]
    wanted = [f"epsilon={rate}&seed={seed}" for rate in ("0.01", "0.1") for seed in (1, 2, 3, 4)]
    assert sorted(names) == wanted
    check_picture(folder / "plot.png")


def check_picture(path: Path) -> None:
    """It is a PNG."""
    assert path.read_bytes().startswith(b"\x89PNG")


PAGES: dict[str, Assumed] = {
    "README.md": Assumed(
        setup="rm rla_config.yaml",
        prelude="import argparse\nargs = argparse.Namespace(seed=1, lr=0.1, steps=3)\n"
        "def train_one_step():\n    return 0.5\n",
    ),
    "docs/gallery.md": Assumed(
        setup=EXAMPLES + "mkdir gallery",
        replaced={
            "--timesteps 61440": "--timesteps 6144 --epochs 1",
            "in 1 2 3 4 5": "in 1 2 3",
            "rla plot": "rla plot -d demo_data/data",
            "rla show": "rla show -d demo_data/data",
        },
        after=pictures_are_made,
    ),
    "docs/how-to/clusters.md": Assumed(
        prelude=MANAGER + 'exp_manager.configure("t", "rla_config.yaml", "data")'
    ),
    "docs/how-to/integrations.md": Assumed(
        prelude="import gymnasium\nrun_name, global_step, train_cfg = 'CartPole__1', 7, {}\n",
        replaced={"100_000": "300", "20_000": "200", "PPO(": "__import__('stable_baselines3').PPO("},
    ),
    "docs/how-to/lake.md": Assumed(
        setup="echo 'SELECT * FROM runs' > best.sql\n"
        "until rla lake build | grep -q '^4 run'; do sleep 0.2; done",  # just copied: too young
        replaced={"'return'": "'perf/return'", '"return"': '"perf/return"'},
    ),
    "docs/how-to/launchers.md": Assumed(
        setup="rm rla_config.yaml; git init -q .", alone=True, after=launcher_files_are_there
    ),
    "docs/how-to/retention.md": Assumed(prelude=MANAGER, setup=COPIED),
    "docs/examples.md": Assumed(elsewhere="tests/e2e/test_example_pictures.py"),
    "docs/how-to/from-garage.md": Assumed(
        setup="mkdir -p data/local/experiment/old && cd data/local/experiment/old\n"
        "printf 'TotalEnvSteps,perf/return\\n200,20\\n' > progress.csv; echo '{\"seed\": 1}' > variant.json"
    ),
    "docs/how-to/resume.md": Assumed(
        replaced={
            "    optimizer.step()\n": "    optimizer.step()\n    if step == 70 and start == 0:\n"
            "        __import__('os').kill(__import__('os').getpid(), 9)\n",
            "python fit.py\n": "python fit.py || python fit.py\n",
        },
        after=each_run_was_resumed,
    ),
    "docs/start.md": Assumed(
        setup="rm -r rla_config.yaml train.py data",
        after=each_seed_ran_once,
    ),
}
