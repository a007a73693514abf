"""Hugging Face's Trainer with our callback."""

from __future__ import annotations

import json

import pytest
from support.beside import check_it_keeps_to_its_run
from support.user_scripts import Scripts

pytest.importorskip("transformers", reason="transformers is not installed: make test-integrations")
pytest.importorskip("accelerate", reason="accelerate is not installed: make test-integrations")
pytestmark = pytest.mark.slow


def test_rows_parameters_and_checkpoints(scripts: Scripts) -> None:
    scripts.run(
        """
import json, os
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
from rla_client import exp_manager
from rla_client.integrations.transformers import RLACallback

torch.manual_seed(0)
shape = dict(vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
model = BertForSequenceClassification(BertConfig(**shape))
data = [{"input_ids": torch.tensor([1, 2, n]), "labels": torch.tensor(n % 2)} for n in range(8)]
arguments = TrainingArguments(
    "out/tiny-bert", max_steps=6, logging_steps=2, save_steps=3, eval_steps=3, eval_strategy="steps",
    learning_rate=1e-3, per_device_train_batch_size=2, report_to="none", use_cpu=True, disable_tqdm=True,
)
ours = RLACallback(track=["seed"])
trainer = Trainer(model, arguments, train_dataset=data, eval_dataset=data, callbacks=[ours])
trainer.train()
trainer.evaluate()
json.dump(trainer.state.log_history, open("history.json", "w"))
trainer.train(resume_from_checkpoint="out/tiny-bert/checkpoint-6")  # goes on in the run
arguments.max_steps = 2
Trainer(model, arguments, train_dataset=data, eval_dataset=data, callbacks=[ours]).train()  # has its own
"""
    )
    run, second = scripts.runs(2)
    assert {row["time-step"] for row in second.rows()} == {"2"}
    assert (second.table, second.state["state"]) == ("tiny-bert", "finished")
    history = json.loads((scripts.folder / "history.json").read_text())
    logged: list[tuple[int, dict[str, float]]] = []
    for entry in history:
        step = entry.pop("step")
        names = {key: f"eval/{key[5:]}" if key.startswith("eval_") else f"train/{key}" for key in entry}
        logged.append((step, {names[key]: float(value) for key, value in entry.items()}))
    ours = [
        (int(row["time-step"]), {key: float(cell) for key, cell in row.items() if "/" in key})
        for row in run.rows()
    ]
    assert ours[: len(logged)] == logged
    assert {step for step, _ in ours[len(logged) :]} == {7}  # of the resumed one
    assert {"train/loss", "train/grad_norm", "eval/loss"} <= {key for _, row in ours for key in row}
    assert (run.table, run.state["state"]) == ("tiny-bert", "finished")
    assert "&seed=42" in run.log.name
    assert (run.parameters["learning_rate"], run.parameters["model"]["hidden_size"]) == (1e-3, 8)
    index = run.log.relative_to(run.data / "log")
    archive = json.loads((run.data / "archive_tester" / f"{index}.json").read_text())
    folders = archive["custom_data"]["hf_checkpoints"]
    assert [folder.rpartition("/")[2] for folder in folders[:2]] == ["checkpoint-3", "checkpoint-6"]
    assert (scripts.folder / "out" / "tiny-bert" / "checkpoint-6").is_dir()


def test_it_keeps_to_the_run_that_it_joined(scripts: Scripts) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    check_it_keeps_to_its_run(
        scripts,
        """from transformers import TrainerControl, TrainerState, TrainingArguments
from rla_client.integrations.transformers import RLACallback
ours, state, control = RLACallback(), TrainerState(), TrainerControl()
arguments = TrainingArguments(output_dir="out", use_cpu=True, report_to=[])
ours.on_train_begin(arguments, state, control)""",
        """state.global_step = step
ours.on_step_end(arguments, state, control)
ours.on_log(arguments, state, control, logs={"loss": step})""",
        "train/loss",
    )
