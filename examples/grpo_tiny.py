"""GRPO of a tiny language model with TRL: curves and every completion in one run, on a CPU, in minutes.

    pip install trl
    python examples/grpo_tiny.py
    rla samples -d data --step 150: --sort reward -n 10; rla web -d data

The model has random weights and a vocabulary of 24 words. It is asked for a colour ("say red") and rewarded
for each word that is that colour, and a little for variety. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

from rla_client.integrations.transformers import RLACallback

COLOURS = ("red", "green", "blue", "black")
WORDS = (
    "say",
    "a",
    "the",
    "sky",
    "sea",
    "grass",
    "night",
    "rose",
    "is",
    "and",
    "like",
    "my",
    "car",
    "hat",
    "was",
    "so",
)
COMPLETION_TOKENS = 8


def make_tokenizer() -> PreTrainedTokenizerFast:
    """One token a word."""
    words = ["<pad>", "<s>", "</s>", "<unk>", *COLOURS, *WORDS]
    numbers = {word: number for number, word in enumerate(words)}
    known = Tokenizer(models.WordLevel(numbers, unk_token=words[3]))
    known.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=known, **special)


def colour_reward(prompts: list[str], completions: list[str], **_: object) -> list[float]:
    """The share of words that are the colour asked for."""
    asked = [prompt.split()[-1] for prompt in prompts]
    return [
        text.split().count(colour) / COMPLETION_TOKENS
        for colour, text in zip(asked, completions, strict=True)
    ]


def variety_reward(completions: list[str], **_: object) -> list[float]:
    """A little for each word that is new."""
    return [0.1 * len({*text.split()}) / COMPLETION_TOKENS for text in completions]


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=180)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    tokenizer = make_tokenizer()
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    shape = LlamaConfig(vocab_size=len(tokenizer), **sizes, **special)
    arguments = GRPOConfig(
        "out/grpo_tiny",
        max_steps=options.steps,
        learning_rate=options.lr,
        seed=options.seed,
        per_device_train_batch_size=32,
        num_generations=8,
        max_completion_length=COMPLETION_TOKENS,
        logging_steps=1,
        log_completions=True,  # which become the run's samples
        num_completions_to_print=4,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        bf16=False,
    )
    prompts = [f"say {colour}" for colour in COLOURS] * 64
    trainer = GRPOTrainer(
        LlamaForCausalLM(shape),
        reward_funcs=[colour_reward, variety_reward],
        args=arguments,
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        processing_class=tokenizer,
        callbacks=[RLACallback(track=["seed", "learning_rate"])],
    )
    trainer.train()


if __name__ == "__main__":
    main()
