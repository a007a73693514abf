from __future__ import annotations

from typing import Any

from rla_client.capture.captured_rows import CapturedRows, captured_rows
from rla_client.run.record.run_logger import Logger
from rla_client.stream.clock import TimeStepHolder


class _Log(Logger):
    """Keeps the rows that it is given."""

    def __init__(self) -> None:
        super().__init__(None, ("csv",), clock=TimeStepHolder())
        self.rows: list[tuple[float, dict[str, Any]]] = []

    def write_row(
        self, values: dict[str, Any], step: float, wall_time: float, exclude: tuple[str, ...]
    ) -> None:
        del wall_time, exclude
        self.rows.append((step, dict(values)))


def test_equal_values_of_two_sources_are_kept_once_and_others_are_named() -> None:
    log = _Log()
    rows = captured_rows(log)
    assert isinstance(rows, CapturedRows)
    rows.add_from("tensorboard", "loss", 1 / 3, 1, 0.0)
    rows.add_all({"loss": 0.3333333432674408, "other": 2}, 1, 0.0, (), complete=True)  # as float32
    rows.add_from("tensorboard", "loss", 0.5, 2, 0.0)
    rows.add_all({"loss": 0.75}, 2, 0.0, ())
    rows.add_from("tensorboard", "text", "a", 3, 0.0)
    rows.add_from("sb3", "text", "a", 3, 0.0)
    rows.add_from("sb3", "nan", float("nan"), 3, 0.0)
    rows.write()
    assert log.rows[:2] == [(1, {"loss": 1 / 3, "other": 2}), (2, {"loss": 0.5, "wandb/loss": 0.75})]
    assert log.rows[2][1].keys() == {"text", "nan"}


def test_a_row_ends_where_a_tag_or_an_output_comes_again() -> None:
    log = _Log()
    rows = captured_rows(log)
    assert rows is not None
    for tag, value in [("a", 1), ("b", 2), ("a", 3), ("c", 4)]:
        rows.add_from("tensorboard", tag, value, 1, 0.0)
    rows.add_all({"a": 5}, 1, 0.0, ())
    rows.add_from("tensorboard", "wandb/a", 6, 1, 0.0)  # the name that wandb's value has
    rows.write()
    rows.add_from("tensorboard", "d", 7, 1, 0.0)  # after a flush
    rows.add("e", 8, 1, 0.0, ("csv",))  # from a writer whose file has it
    rows.add_from("tensorboard", "f", 9, 1, 0.0)
    rows.write()
    assert log.rows == [
        (1, {"a": 1, "b": 2}),
        (1, {"a": 3, "c": 4, "wandb/a": 5, "tensorboard/wandb/a": 6}),
        (1, {"d": 7}),
        (1, {"e": 8}),
        (1, {"f": 9}),
    ]


def test_a_run_has_one_object_for_its_rows() -> None:
    log = _Log()
    assert captured_rows(log) is captured_rows(log) is log.scalar_rows
    assert captured_rows(Logger(None, ("stdout",), clock=TimeStepHolder())) is None
