"""A training process that keeps evil pickles wherever data can be kept: what loads them makes a file.

    python evil_training.py DATA_ROOT CONFIG MARK [--figures]

Prints the log folder. Checkpoints are the client's own; files and figures go past its checks, as frames.
"""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path
from typing import Any


class Evil:
    """Its pickle makes a file where it is loaded."""

    def __init__(self, call: Any, *arguments: Any) -> None:
        self.made = (call, arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.made


def evils(mark: str) -> list[Evil]:
    """Some of the ways to run code from a pickle."""
    return [
        Evil(os.system, f"touch {mark}-system"),
        Evil(exec, f"open({mark + '-exec'!r}, 'w')"),
        Evil(eval, f"open({mark + '-eval'!r}, 'w')"),
        Evil(os.mkdir, f"{mark}-mkdir"),
        Evil(open, f"{mark}-open", "w"),
        Evil(__import__, "antigravity"),
    ]


def main() -> None:
    """Keep them all."""
    from rla_client import exp_manager, logger
    from rla_client.contract.job.media_job import FORMATS, JOB_FIGURE
    from rla_client.contract.layout import CHECKPOINT, OTHER_RESULTS
    from rla_client.media import job_sender, recording_place

    root, config, mark, *figures = sys.argv[1:]
    exp_manager.configure("table", config, root)
    exp_manager.set_hyper_param(lr=0.1)
    exp_manager.log_files_gen()
    print(exp_manager.log_dir, flush=True)
    exp_manager.new_saver(max_to_keep=None)
    assert exp_manager.run is not None
    for number, evil in enumerate(evils(mark)):
        exp_manager.set_timestep(number)
        exp_manager.save_checkpoint({"evil": evil})
        data = pickle.dumps(evil)
        for protocol in (0, 2, 4) if figures else ():
            figure = pickle.dumps({"figure": evil, "options": {}, "rc": {}, "fonts": []}, protocol)
            place = recording_place.find_place(
                f"figure-{number}-{protocol}",
                FORMATS[JOB_FIGURE],
                cover=True,
                add_timestamp=False,
                results_dir=None,
            )
            assert job_sender.send_blob(place, JOB_FIGURE, (figure,), {})
        exp_manager.run.file(CHECKPOINT, f".resume/evil_{number}.state", data)
        exp_manager.run.file(OTHER_RESULTS, f"evil-{number}.pkl", data)
        logger.record_tabular("evil", str(data))
        logger.dump_tabular()
        assert exp_manager.log_dir is not None
        index = Path(exp_manager.log_dir).relative_to(Path(root).resolve() / "log")
        Path(root, "archive_tester", f"{index}.pkl").write_bytes(data)
    exp_manager.close()


if __name__ == "__main__":
    main()
