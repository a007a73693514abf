"""Parts of the capture that can be chosen.

all                      each part (the default)
tensorboard,args         these alone
-wandb,-args             each but these
replace                  each, and a `wandb` that is not installed is replaced for whoever imports it
+checkpoints             what `torch.save` writes is copied to the run as well
off                      none
"""

from __future__ import annotations

CAPTURE_VARIABLE = "RLA_CAPTURE"
TABLE_VARIABLE = "RLA_CAPTURE_TABLE"
TRACK_VARIABLE = "RLA_CAPTURE_TRACK"  # names, separated by commas
PARTS = (
    "tensorboard", "wandb", "args", "sb3", "transformers", "lightning", "accelerate", "rsl_rl", "mlflow",
    "trackio", "swanlab", "gymnasium", "torch_save",
)  # fmt: skip
REPLACE, CHECKPOINTS = "replace", "checkpoints"
_OFF = frozenset({"", "0", "off", "none", "false", "no"})
_ALL = frozenset({"all", "1", "on", "true", "yes"})


def parse_parts(text: str) -> frozenset[str]:
    """Names of the parts that a text chooses, REPLACE and CHECKPOINTS among them where it says so.

    Raises:
        ValueError: it names something else.
    """
    words = [word.strip().lower() for word in text.split(",")]
    if len(words) == 1 and words[0] in _OFF:
        return frozenset()
    named: set[str] = set()
    added: set[str] = set()
    removed: set[str] = set()
    for word in filter(None, words):
        sign, name = (word[0], word[1:]) if word[0] in "+-" else ("", word)
        if name in _ALL and not sign:
            named.update(PARTS)
        elif name in {REPLACE, CHECKPOINTS} and sign != "-":
            added.add(name)
        elif name in PARTS:
            {"": named, "+": added, "-": removed}[sign].add(name)
        else:
            raise ValueError(f"there is no part {word!r}; choose from all, {REPLACE}, {', '.join(PARTS)}")
    return frozenset(((named or set(PARTS)) | added) - removed)
