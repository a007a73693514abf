"""Exact resume: kill this script at any moment, run the same command again, get the same curve.

    python examples/resume.py --data-root /tmp/rla_resume --kill-at 350   # ends by SIGKILL
    python examples/resume.py --data-root /tmp/rla_resume                 # goes on, to the end

It fits a small network with dropout and random batches, so every step depends on torch's and
numpy's random generators. `progress.csv` of the two processes together equals that of one
uninterrupted run, the timestamp column aside.
"""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path

import numpy as np
import torch

from rla_client import exp_manager, logger, time_step_holder

CONFIG = Path(__file__).resolve().parent.parent / "rla_config.yaml"


def batch(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points of a noisy sine: float32 tensors of shape (size, 1)."""
    x = np.random.uniform(-3, 3, size=(size, 1)).astype(np.float32)  # noqa: NPY002 - the global generator
    return torch.from_numpy(x), torch.from_numpy(np.sin(x)) + 0.05 * torch.randn(size, 1)


def main() -> None:
    """Train, saving a checkpoint every 50 steps."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data-root", default="rla_data")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--run-id", default="resume-example")
    parser.add_argument("--kill-at", type=int, default=None, help="end by SIGKILL at this step")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    np.random.seed(args.seed)  # noqa: NPY002 - the global generator is what resume restores
    net = torch.nn.Sequential(
        torch.nn.Linear(1, 64), torch.nn.Tanh(), torch.nn.Dropout(0.1), torch.nn.Linear(64, 1)
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)

    exp_manager.configure(
        "resume_example",
        str(CONFIG),
        args.data_root,
        run_id=args.run_id,
        resume="allow",
        code_root=Path(__file__).parent,
    )
    exp_manager.set_hyper_param(steps=args.steps, seed=args.seed)
    exp_manager.add_record_param(["seed"])
    exp_manager.log_files_gen()
    exp_manager.new_saver(max_to_keep=2)
    start = 0
    if exp_manager.resumed_from is not None:
        start, content = exp_manager.load_checkpoint()
        net.load_state_dict(content["net"])
        optimizer.load_state_dict(content["optimizer"])

    for step in range(start + 1, args.steps + 1):
        time_step_holder.set_time(step)
        x, y = batch(32)
        loss = torch.nn.functional.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        logger.record_tabular("loss/mse", loss)
        logger.ma_record_tabular("loss/mean_20", loss, 20)
        logger.dump_tabular()
        if step % 50 == 0:
            exp_manager.save_checkpoint({"net": net.state_dict(), "optimizer": optimizer.state_dict()})
        if step == args.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
