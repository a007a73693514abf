"""Hugging Face's Trainer with our callback; TRL's with a tiny model of random weights."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from support.beside import check_it_keeps_to_its_run
from support.example_pictures import GRPO as EXAMPLE
from support.user_scripts import RunFolder, Scripts

import rla_client.database

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


def test_completions_of_trl_become_samples(scripts: Scripts) -> None:
    pytest.importorskip("trl", reason="TRL is not installed: make test-integrations")
    scripts.run(
        """
import gzip
import json
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, set_seed
from trl import GRPOConfig, GRPOTrainer
from rla_client.integrations.transformers import RLACallback

set_seed(0)
words = ["<pad>", "<eos>", "<unk>", *(f"w{n}" for n in range(30))]
inner = Tokenizer(WordLevel({word: n for n, word in enumerate(words)}, unk_token="<unk>"))
inner.pre_tokenizer = Whitespace()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
)
model = GPT2LMHeadModel(GPT2Config(
    vocab_size=len(words), n_positions=64, n_embd=16, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=1,
    pad_token_id=0,
))
seen = []
def length(completions, **kwargs):
    seen.append(list(completions))
    return [float(len(text.split())) for text in completions]
def constant(completions, **kwargs):
    return [0.25] * len(completions)
config = GRPOConfig(
    output_dir="grpo", max_steps=3, per_device_train_batch_size=4, num_generations=2, max_completion_length=6,
    logging_steps=1, log_completions=True, report_to="none", use_cpu=True, bf16=False, disable_tqdm=True,
    save_strategy="no", beta=0.0, num_completions_to_print=0,
)
data = Dataset.from_dict({"prompt": [f"w{n} w{n + 1}" for n in range(12)]})
ours = [RLACallback()]
GRPOTrainer(
    model, [length, constant], args=config, train_dataset=data, processing_class=tokenizer, callbacks=ours
).train()
json.dump(seen, open("seen.json", "w"))
"""
    )
    (run,) = scripts.runs(1)
    seen = [text for step in json.loads((scripts.folder / "seen.json").read_text()) for text in step]
    found = samples_of(run)
    assert sorted(row["completion"] for row in found) == sorted(seen), "every sample exactly once"
    assert {row["step"] for row in found} == {1, 2, 3}
    for row in found:
        assert row["rewards"] == {"length": float(len(row["completion"].split())), "constant": 0.25}
        assert row["reward"] == row["rewards"]["length"] + 0.25
        assert "advantage" in row


def samples_of(run: RunFolder) -> list[dict[str, Any]]:
    """Lines of its samples, but for their times."""
    (path,) = run.folder("samples").iterdir()
    lines = map(json.loads, gzip.decompress(path.read_bytes()).splitlines())
    return [{name: value for name, value in line.items() if name != "timestamp"} for line in lines]


GRPO = """
import json
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

words = ["<pad>", "<s>", "</s>", "<unk>"] + [f"w{n}" for n in range(28)]
known = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="<unk>"))
known.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=known, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
)
torch.manual_seed(0)
shape = dict(vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
model = LlamaForCausalLM(LlamaConfig(**shape, pad_token_id=0, bos_token_id=1, eos_token_id=2))
arguments = GRPOConfig(
    "out/tiny", max_steps=3, logging_steps=1, save_strategy="no", num_generations=4, max_completion_length=8,
    per_device_train_batch_size=4, learning_rate=1e-3, report_to=REPORT_TO, use_cpu=True, bf16=False,
    disable_tqdm=True, log_completions=True, seed=3,
)
trainer = GRPOTrainer(
    model, reward_funcs=lambda completions, **_: [float(len(set(one.split()))) for one in completions],
    args=arguments, train_dataset=Dataset.from_dict({"prompt": [f"w{n} w{n + 1}" for n in range(8)]}),
    processing_class=tokenizer, callbacks=CALLBACKS,
)
trainer.train()
json.dump(trainer.state.log_history, open("history.json", "w"))
"""
CALLBACK = """from rla_client.integrations.transformers import RLACallback
REPORT_TO, CALLBACKS = "none", [RLACallback()]
"""
WANDB = """import sys
import rla_client.integrations.wandb
sys.modules["wandb"] = rla_client.integrations.wandb
REPORT_TO, CALLBACKS = "wandb", []
"""


def trained(run: RunFolder) -> dict[str, dict[int, float]]:
    """Metric → time-step → value; without what is timed and what only one of the two has."""
    found: dict[str, dict[int, float]] = {}
    for row in run.rows():
        for name in row.keys() - {"time-step", "timestamp", "train/global_step", "train/step_time"}:
            if name.startswith("train/") and not name.startswith(("train/train_", "train/total_flos")):
                found.setdefault(name, {})[int(row["time-step"])] = float(row[name])
    return found


def history(scripts: Scripts) -> dict[str, dict[int, Any]]:
    """The Trainer's own log in the same form."""
    found: dict[str, dict[int, Any]] = {}
    for entry in json.loads((scripts.folder / "history.json").read_text()):
        for name in entry.keys() - {"step", "step_time"}:
            if not name.startswith(("train_", "total_flos")):
                found.setdefault(f"train/{name}", {})[entry["step"]] = entry[name]
    return found


def test_trls_grpo_by_our_callback_and_by_report_to_wandb(scripts: Scripts) -> None:
    pytest.importorskip("trl", reason="TRL is not installed: make test-integrations")
    scripts.run(CALLBACK + GRPO, HF_HUB_OFFLINE="1")
    expected = history(scripts)
    scripts.run(WANDB + GRPO, HF_HUB_OFFLINE="1")
    theirs, ours = sorted(scripts.runs(2), key=lambda run: run.table)  # huggingface, tiny
    assert (theirs.table, ours.table) == ("huggingface", "tiny")
    assert len(expected) >= 20
    assert trained(ours) == expected
    assert trained(theirs) == history(scripts) == expected
    timed = {row["time-step"] for row in theirs.rows() for name in row if name.startswith("profiling/")}
    assert timed == {"1", "2"}  # those of the first step waited for it; later ones are at the last known
    assert (theirs.parameters["num_generations"], theirs.parameters["model_type"]) == (4, "llama")
    for step in (1, 2, 3):
        text = (theirs.folder("results") / f"{step}-completions.csv").read_text()
        table = list(csv.DictReader(text.splitlines()))
        assert [row["step"] for row in table] == [str(step)] * 4
        named = [name for name in table[0] if name not in {"step", "prompt", "completion", "advantage"}]
        mean = sum(float(row[named[0]]) for row in table) / 4
        assert mean == expected["train/reward"][step]
    assert "no meaning here" not in (theirs.log / "warn.txt").read_text()
    by_wandb, by_callback = map(samples_of, (theirs, ours))
    assert len(by_callback) == 12
    assert by_wandb == by_callback


def test_completions_in_a_folder_of_an_earlier_training_become_samples(scripts: Scripts) -> None:
    """A file that is written again does not change its folder; one that says the same is the same table."""
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    scripts.run(
        """
import os
from pathlib import Path
import pyarrow as pa, pyarrow.parquet as pq
from transformers import TrainerControl, TrainerState, TrainingArguments
from rla_client.integrations.transformers import RLACallback

def write(step, text):
    table = {"step": [step], "prompt": ["p"], "completion": [text], "length": [float("nan")]}
    path = Path(f"out/completions/completions_{step:05d}.parquet")
    before = path.stat().st_mtime_ns if path.exists() else 0
    pq.write_table(pa.table(table), path)
    os.utime(path, ns=(before + 10**9,) * 2)

os.makedirs("out/completions")
for step in (1, 2, 3):
    write(step, "of an earlier training")
at = os.stat("out/completions").st_mtime_ns
ours, state, control = RLACallback(), TrainerState(), TrainerControl()
arguments = TrainingArguments(output_dir="out", use_cpu=True, report_to=[])
ours.on_train_begin(arguments, state, control)
for step in (1, 2, 3):
    state.global_step = step
    ours.on_step_end(arguments, state, control)
    ours.on_log(arguments, state, control, logs={"loss": 1.0})
    write(step, f"new {step}")
    if step == 2:
        ours.on_log(arguments, state, control, logs={"eval_loss": 1.0})
        write(step, "evaluated")
write(3, "new 3")
assert os.stat("out/completions").st_mtime_ns == at
ours.on_log(arguments, state, control, logs={"train_runtime": 1.0})
write(3, "new 3")
ours.on_train_end(arguments, state, control)
"""
    )
    (run,) = scripts.runs()
    found = [(row["step"], row["completion"]) for row in samples_of(run)]
    assert found == [(1, "new 1"), (2, "new 2"), (2, "evaluated"), (3, "new 3")]


@pytest.mark.usefixtures("agent")
def test_the_example_of_grpo_has_its_curve_and_all_its_samples(tmp_path: Path) -> None:
    for module in EXAMPLE.modules:
        pytest.importorskip(module, reason=f"{module} is not installed: make test-integrations")
    assert EXAMPLE.play(tmp_path, short=True).read_bytes().startswith(b"\x89PNG")
    samples = rla_client.database.open(tmp_path / "data").samples()
    assert {row["step"] for row in samples} == {1, 2}
    assert len(samples) == 64
    assert {row["rewards"].keys() >= {"colour_reward", "variety_reward"} for row in samples} == {True}
