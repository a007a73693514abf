"""What a command's end says of its runs."""

from __future__ import annotations

import pytest

from rla_agent.command.wrapped_command.ending import CommandLaunch
from rla_agent.command.wrapped_command.runs import ended_record
from rla_agent.model.process_ending import Ending
from rla_agent.model.run_record import RunRecord
from rla_agent.model.run_states import RunState


@pytest.mark.parametrize(
    ("state", "pid", "reason"),
    [
        (RunState.KILLED, 5, "killed by SIGKILL"),
        (RunState.KILLED, 6, "gone; the command that started it: killed by SIGKILL"),
        (RunState.FAILED, 5, "gone"),
    ],
)
def test_the_reason_of_a_run(state: RunState, pid: int, reason: str) -> None:
    record = RunRecord(
        run="a",
        root="/",
        table="",
        index="",
        log_folder="/",
        host="",
        user="",
        pid=pid,
        opened=0.0,
        client="",
        state=state,
        reason="gone",
    )
    changed = ended_record(record, CommandLaunch("x", 5, Ending(None, 9)))
    assert changed is not None
    assert (changed.reason, changed.signal) == (reason, 9)


@pytest.mark.parametrize(
    ("pid", "last", "code", "state"),
    [
        (5, True, 3, RunState.FAILED),
        (5, True, 0, RunState.FINISHED),
        (5, False, 3, RunState.FINISHED),  # a sweep in one process: its later run failed
        (6, True, 3, RunState.FINISHED),  # a script around it failed afterwards
    ],
)
def test_a_process_that_fails_after_it_closed_its_run(
    pid: int, last: bool, code: int, state: RunState
) -> None:
    record = RunRecord(
        run="a", root="/", table="", index="", log_folder="/", host="", user="", pid=pid, opened=0.0,
        client="", state=RunState.FINISHED,
    )  # fmt: skip
    changed = ended_record(record, CommandLaunch("x", 5, Ending(code, None)), last=last)
    assert changed is not None
    assert (changed.state, changed.exit_code) == (state, code)
    assert changed.reason == ("exit code 3" if state is RunState.FAILED else "")


def test_a_live_run_is_left_alone() -> None:
    record = RunRecord(
        run="a", root="/", table="", index="", log_folder="/", host="", user="", pid=1, opened=0.0, client=""
    )
    assert ended_record(record, CommandLaunch("x", 1, Ending(0, None))) is None
