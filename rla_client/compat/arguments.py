"""Arguments that RLA adds to a script's parser."""

from __future__ import annotations

import argparse


def boolean_flag(
    parser: argparse.ArgumentParser,
    name: str,
    default: bool = False,
    help: str | None = None,  # noqa: A002
) -> None:
    """Add `--name` and `--no-name`, which set `name` (with underscores for dashes) to True and False."""
    target = name.replace("-", "_")
    parser.add_argument(f"--{name}", action="store_true", default=default, dest=target, help=help)
    parser.add_argument(f"--no-{name}", action="store_false", dest=target)


def arg_parser_postprocess(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add `--loaded_task_name`, `--loaded_date` (an earlier run to load) and `--info` (a text)."""
    parser.add_argument("--loaded_task_name", default="", type=str, help="table of a run to load")
    parser.add_argument("--loaded_date", default="", type=str, help="YYYY/MM/DD/HH-MM-SS-ffffff of that run")
    parser.add_argument("--info", default="default exp info", type=str, help="a text that distinguishes runs")
    return parser
