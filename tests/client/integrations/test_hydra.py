"""Programs of Hydra: each job is a run of its configuration."""

from __future__ import annotations

import pytest
from support.user_scripts import Scripts

pytest.importorskip("hydra", reason="hydra-core is not installed: make test-integrations")
pytestmark = pytest.mark.slow

CONFIG = """
defaults: [model: small, _self_]
optimizer: {lr: 0.5, betas: [0.9, 0.999]}
half: ${optimizer.lr}
later: ???
seed: 1
"""


def write_config(scripts: Scripts, further: str = "") -> None:
    (scripts.folder / "conf" / "model").mkdir(parents=True)
    (scripts.folder / "conf" / "config.yaml").write_text(CONFIG + further)
    for name, width in (("small", 4), ("big", 64)):
        (scripts.folder / "conf" / "model" / f"{name}.yaml").write_text(f"width: {width}\n")


MAIN = """
import hydra, rla_client

@hydra.main(config_path="conf", config_name="config", version_base=None)
def train(cfg):
    OPEN
    rla_client.log({"lr": cfg.optimizer.lr}, step=cfg.seed)
    if cfg.seed == 13:
        raise ValueError("bad luck")

train()
"""


def test_what_is_overridden_is_the_index(scripts: Scripts) -> None:
    write_config(scripts)
    source = MAIN.replace("OPEN", "from rla_client.integrations.hydra import open_run; open_run(cfg)")
    scripts.run(source, "-m", "optimizer.lr=0.1,0.2", "model=big", "+extra=x", "seed=2")
    first, second = scripts.runs(2)
    assert first.log.name.partition("_&")[2] == "optimizer.lr=0.1&extra=x&seed=2&hydra.model=big"
    assert "optimizer.lr=0.2" in second.log.name
    assert [run.rows()[0]["lr"] for run in (first, second)] == ["0.1", "0.2"]
    assert (first.table, first.state["state"], second.state["state"]) == ("script", "finished", "finished")
    parameters = first.parameters
    about = parameters.pop("hydra")
    assert parameters == {
        "model": {"width": 64}, "optimizer": {"lr": 0.1, "betas": [0.9, 0.999]}, "half": 0.1, "later": "???",
        "seed": 2, "extra": "x",
    }  # fmt: skip
    assert about["overrides"] == ["optimizer.lr=0.1", "model=big", "+extra=x", "seed=2"]
    assert about["output_dir"].endswith("/0")
    from rla_client import database

    found = database.open(scripts.folder / "data").runs(where="optimizer.lr == 0.1")
    assert list(found["optimizer.lr"]) == [0.1]


def test_the_callback_needs_no_line_in_the_program(scripts: Scripts) -> None:
    callback = "{_target_: rla_client.integrations.hydra.RLACallback, task_table_name: jobs}"
    write_config(scripts, f"hydra: {{callbacks: {{rla: {callback}}}}}\n")
    scripts.run(MAIN.replace("OPEN", ""), "seed=3")
    scripts.run(MAIN.replace("OPEN", ""), "seed=13", fails=True)
    good, bad = scripts.runs(2)
    assert (good.table, good.state["state"]) == ("jobs", "finished")
    assert good.log.name.endswith("&seed=3")
    assert (bad.state["state"], bad.state["reason"]) == ("failed", "ValueError: bad luck")


def test_a_job_that_raises_has_failed(scripts: Scripts) -> None:
    write_config(scripts)
    source = MAIN.replace("OPEN", "from rla_client.integrations.hydra import open_run; open_run(cfg)")
    scripts.run(source, "seed=13", fails=True)
    scripts.run(source, "-m", "seed=13,14", fails=True)
    states = [(run.state["state"], run.state["reason"]) for run in scripts.runs(3)]
    assert states == [("failed", "ValueError: bad luck")] * 2 + [("finished", "")]
