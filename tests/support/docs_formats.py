"""The examples in docs/reference/formats.md, from a run of a real agent.

`PYTHONPATH=tests python -m support.docs_formats` renews them. Each stands in the page behind a line
`<!-- made: NAME -->`. What differs from run to run (dates, ids, the machine, measured values) is replaced
by fixed words, so that the page equals what is made.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from support.docs_lab import DOCS, Page, write_programs

PAGE = DOCS / "reference" / "formats.md"
MADE = re.compile(r"(<!-- made: (\w+) -->\n```\w*\n).*?(^```$)", re.MULTILINE | re.DOTALL)
CONFIG = """
LOG_USED: [csv, json, tensorboard, log]
BACKUP_CONFIG: {backup_code_dir: [train.py]}
AGENT: {sample_interval_s: 0.1}
"""
TRAIN = """
import os
import subprocess
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from rla_client import MatplotlibRecorder, exp_manager, logger, time_step_holder

exp_manager.configure("cartpole", "rla_config.yaml", "data")
exp_manager.set_hyper_param(lr=0.001, seed=1, net={"width": 64, "layers": [64, 64]})
exp_manager.add_record_param(["seed", "lr"])
exp_manager.log_files_gen()
exp_manager.new_saver(max_to_keep=2)
exp_manager.add_custom_data("best", 82.0, dtype=float)
exp_manager.add_custom_data("mean", np.zeros(4), dtype=np.ndarray)
for step in range(1, 5):
    time_step_holder.set_time(step * 100)
    logger.record_tabular("perf/return", 20.5 * step)
    logger.record_tabular("loss/policy", 1 / step)
    if step > 2:
        logger.record_tabular("eval/return", 21.0 * step)
    logger.dump_tabular()
    exp_manager.save_checkpoint({"weights": np.arange(4.0)})
logger.warn("the entropy is low")
logger.backup("kept for later")
MatplotlibRecorder.pretty_plot_wrapper("fit", lambda: plt.plot([1, 2, 3]), xlabel="x", ylabel="y")
(Path(exp_manager.tmp_data_dir) / "scratch.txt").write_text("yours")
assert logger.flush(60)
system = Path(exp_manager.log_dir) / "system.csv"
while not system.exists():
    os.sched_yield()
Path("state.txt").write_text(subprocess.check_output(["find", os.environ["RLA_STATE_DIR"]], text=True))
exp_manager.close()
"""
STREAM = "18ea0c3f5d2b7a41-4711-0a1b2c3d"


def with_host(name: re.Match[str]) -> str:
    return f"{name[1]}.1795253401{'.gpu1' if name[2] else ''}.4711.0a1b2c3d"


REPLACED: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"\b20\d\d/\d\d/\d\d\b", "2026/11/21"),
    (r"\d\d-\d\d-\d\d-\d{6}_[^_/]+_", "09-30-01-123456_10.0.0.5_"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+", "2026-11-21T09:30:01.123456"),
    (r"[0-9a-f]{16}-\d+-[0-9a-f]{8}", STREAM),
    (r"(tfevents)\.\d+(\.[\w.-]+?)?\.\d+\.[0-9a-f]{8}", with_host),
    (r"\.objects/[0-9a-f]{2}", ".objects/04"),
    (r"\b[0-9a-f]{62}\b", "60e640eec343dff9…"),
    (r'"(run_id|launch|saved_by)": "[0-9a-f]+"', r'"\1": "f1cefcbe6d1d5f8a…"'),
    (r'"(user|host)": "[^"]*"', lambda match: f'"{match[1]}": "{"ada" if match[1] == "user" else "gpu1"}"'),
    (r'"pid": \d+', '"pid": 4711'),
    (r"(?<!tfevents\.)\b1[78]\d{8}\.\d+", "1795253401.5"),
    (r'"epoch": \d+', '"epoch": 1795253401500000000'),
    (r'("taken": \{\s+"[^"]+": \[\s+1,\s+)\d+', r"\g<1>2816"),
    (r'"client": "[^"]+"', '"client": "0.1.0"'),
)


def made(folder: Path) -> dict[str, str]:
    """Name → text of each example, from a new run in `folder`."""
    programs, project, state = folder / "bin", folder / "project", folder / "state"
    write_programs(programs)
    project.mkdir()
    for name, text in (("train.py", TRAIN), ("rla_config.yaml", CONFIG)):
        (project / name).write_text(text.lstrip())
    with tempfile.TemporaryDirectory(prefix="rla-", dir="/tmp") as runtime:
        page = Page(project, programs)
        page.environment |= {"RLA_STATE_DIR": str(state), "RLA_RUNTIME_DIR": runtime}
        page.shell("rla-agent run -- python train.py")
    data = project / "data"
    log = next(data.rglob("run.json")).parent
    archive = json.loads(next((data / "archive_tester").rglob("*.json")).read_text())
    archive["dirs"] = {kind: archive["dirs"][kind] for kind in ("log",)}
    found = {
        "tree": "\n".join(tree(data)),
        "csv": (log / "progress.csv").read_text(),
        "json": first_lines(log / "progress.json", 1),
        "log": table_of(log / "log.txt"),
        "warn": (log / "warn.txt").read_text(),
        "parameters": (log / "parameter.yaml").read_text(),
        "run": (log / "run.json").read_text(),
        "system": first_lines(log / "system.csv", 1),
        "environment": "\n".join(json.loads((log / "environment.json").read_text())),
        "archive": json.dumps(archive, indent=1),
        "state": "\n".join(sorted(relative((project / "state.txt").read_text(), state))),
    }
    return {name: fixed(text, project).strip("\n") for name, text in found.items()}


def tree(data: Path) -> Iterator[str]:
    """Each file, folders before their files, what lies in one folder below its name."""
    for place, folders, files in os.walk(data):
        folders.sort()
        here = Path(place).relative_to(data.parent)
        if files:
            yield f"{here}/"
            yield from (f"    {name}" for name in sorted(files))


def first_lines(path: Path, count: int) -> str:
    return "\n".join(path.read_text().splitlines()[:count])


def table_of(path: Path) -> str:
    """The last table in log.txt and what follows."""
    lines = path.read_text().splitlines()
    rules = [number for number, line in enumerate(lines) if line.startswith("---")]
    return "\n".join(lines[rules[-2] :])


def relative(listing: str, state: Path) -> Iterator[str]:
    """Paths in the state folder, without those of folders."""
    for line in listing.splitlines():
        path = line.removeprefix(f"{state}/")
        if "." in path or path.endswith("lock"):
            yield path


def fixed(text: str, project: Path) -> str:
    """The same with fixed words for what differs from run to run."""
    text = text.replace(str(project), "/home/ada/project")
    for pattern, word in REPLACED:
        text = re.sub(pattern, word, text)
    return text


def renewed(page: str, examples: dict[str, str]) -> str:
    """The page with these examples."""
    names = {match[2] for match in MADE.finditer(page)}
    if names != examples.keys():
        raise ValueError(f"the page shows {sorted(names)}, made are {sorted(examples)}")
    return MADE.sub(lambda match: f"{match[1]}{examples[match[2]]}\n{match[3]}", page)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8"), made(Path(place))), encoding="utf-8")
