"""TRL's GRPOTrainer with a tiny model of random weights: by our callback, by `report_to="wandb"`."""

from __future__ import annotations

import csv
import json
from typing import Any

import pytest
from support.user_scripts import RunFolder, Scripts

pytest.importorskip("trl", reason="TRL is not installed: make test-integrations")
pytestmark = pytest.mark.slow

TRAINING = """
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


def metrics(run: RunFolder) -> dict[str, dict[int, float]]:
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


def test_the_callback_and_report_to_wandb_give_the_same_metrics(scripts: Scripts) -> None:
    scripts.run(CALLBACK + TRAINING, HF_HUB_OFFLINE="1")
    expected = history(scripts)
    scripts.run(WANDB + TRAINING, HF_HUB_OFFLINE="1")
    theirs, ours = sorted(scripts.runs(2), key=lambda run: run.table)  # huggingface, tiny
    assert (theirs.table, ours.table) == ("huggingface", "tiny")
    assert len(expected) >= 20
    assert metrics(ours) == expected
    assert metrics(theirs) == history(scripts) == expected
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
