"""A training process that uses hostile names wherever the client takes a name.

    python hostile_training.py DATA_ROOT NAMES RESULT

NAMES is JSON; RESULT (JSON) says for each use and name what came of it: `refused` with the error, or the
path or key that the client said. Only the client's own errors count as a refusal; any other ends this
process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

CONFIG = {"LOG_USED": ["csv", "json", "log", "tensorboard"], "BACKUP_CONFIG": {"backup_code_dir": []}}
RENDERED_SHARE = 4  # a process is started for each figure and video: not for all names


def main() -> None:
    """Use each name."""
    root, result = sys.argv[1], sys.argv[3]
    with open(sys.argv[2], encoding="utf-8") as file:
        names: list[str] = json.load(file)
    told: dict[str, dict[str, Any]] = {"table": {}, "checkpoint": {}, "image": {}, "video": {}, "data": {}}
    for number, name in enumerate(names):
        told["table"][name] = attempt(open_run, root, name, number)
    use_names(root, names, told)
    with open(result, "w", encoding="utf-8") as file:
        json.dump(told, file)


def attempt(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Its result, or how it was refused."""
    from rla_client.contract.errors import RlaError

    try:
        return call(*arguments, **options)
    except RlaError as error:
        return {"refused": f"{type(error).__name__}: {error}"[:300]}


def open_run(root: str, name: str, number: int) -> dict[str, str]:
    """A run in a table of that name, whose index and parameters hold it too."""
    from rla_client import exp_manager, logger

    exp_manager.configure(name, CONFIG, root, code_root=".")
    exp_manager.set_hyper_param(value=name, number=number)
    exp_manager.add_record_param(["value"])
    exp_manager.log_files_gen()
    logger.record_tabular("number", number)
    logger.dump_tabular()
    logger.info(name)
    told = {"log": str(exp_manager.log_dir)}
    exp_manager.close()
    return told


def use_names(root: str, names: list[str], told: dict[str, dict[str, Any]]) -> None:
    """One run in which everything has such a name."""
    import numpy as np

    from rla_client import exp_manager, logger
    from rla_client.media.image_recorder import ImgRecorder
    from rla_client.media.video_recorder import VideoRecorder

    picture, frames = np.zeros((4, 4, 3), np.uint8), np.zeros((2, 4, 4, 3), np.uint8)
    exp_manager.configure("names", CONFIG, root, code_root=".")
    exp_manager.set_hyper_param(**{f"p{n}": name for n, name in enumerate(names)})
    exp_manager.log_files_gen()
    exp_manager.new_saver(max_to_keep=None)
    for number, name in enumerate(names):
        logger.record_tabular(name, float(number))
        told["data"][name] = attempt(exp_manager.add_custom_data, name, 1.0)
        told["checkpoint"][name] = attempt(
            exp_manager.save_checkpoint, {"x": np.arange(3)}, checkpoint_name=name
        )
    logger.dump_tabular()
    for name in names[::RENDERED_SHARE]:
        told["image"][name] = attempt(ImgRecorder.save, name, picture, add_timestamp=False)
        told["video"][name] = attempt(VideoRecorder.save, name + ".gif", frames, add_timestamp=False)
    told["run"] = {
        "log": exp_manager.log_dir,
        "results": exp_manager.results_dir,
        "checkpoint": exp_manager.checkpoint_dir,
    }
    exp_manager.close()


if __name__ == "__main__":
    main()
