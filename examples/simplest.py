"""The simplest experiment: fit y = x w by gradient descent, with rows, figures and checkpoints.

python examples/simplest.py --data-root /tmp/rla_simplest --lr 0.05
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from rla_client import MatplotlibRecorder, exp_manager, logger, time_step_holder

CONFIG = Path(__file__).resolve().parent.parent / "rla_config.yaml"


def main() -> None:
    """Train, and keep everything as one item of the database."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data-root", default="rla_data")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--input-size", type=int, default=16)
    args = parser.parse_args()

    exp_manager.configure("simplest", str(CONFIG), args.data_root, code_root=Path(__file__).parent)
    exp_manager.set_hyper_param(**{key: value for key, value in vars(args).items() if key != "data_root"})
    exp_manager.add_record_param(["lr", "input_size"])
    exp_manager.log_files_gen()
    exp_manager.print_args()
    exp_manager.new_saver(max_to_keep=2)

    torch.manual_seed(0)
    target = torch.randn(args.input_size, 1)
    weights = torch.zeros(args.input_size, 1, requires_grad=True)
    for step in range(1, args.steps + 1):
        time_step_holder.set_time(step)
        x = torch.randn(64, args.input_size)
        y, wanted = x @ weights, x @ target
        loss = ((y - wanted) ** 2).mean()
        loss.backward()
        with torch.no_grad():
            weights -= args.lr * weights.grad  # type: ignore[operator]
            weights.grad = None
        logger.record_tabular("perf/mse", loss)
        logger.record_tabular("y/mean", y.mean(), exclude="stdout")
        logger.ma_record_tabular("perf/mse_20", loss, 20)
        if step % 50 == 0:
            logger.dump_tabular()
            plot_prediction(wanted.detach(), y.detach())
            exp_manager.save_checkpoint({"weights": weights.detach()}, related_variable={"loss": loss.item()})
    logger.info(f"final mse {loss.item():.4g}")


def plot_prediction(wanted: torch.Tensor, got: torch.Tensor) -> None:
    """Draw the prediction against the target; the agent renders and stores the figure."""

    def draw() -> None:
        import matplotlib.pyplot as plt  # noqa: PLC0415 - drawing only

        plt.scatter(wanted.numpy(), got.numpy(), s=8, label="prediction")
        plt.plot(wanted.numpy(), wanted.numpy(), color="gray", linewidth=1, label="target")

    MatplotlibRecorder.pretty_plot_wrapper(
        "prediction", draw, xlabel="target", ylabel="prediction", title="fit", pretty_plot=True
    )


if __name__ == "__main__":
    main()
