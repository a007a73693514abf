"""What the agent's process does before it serves."""

from __future__ import annotations

import logging

from rla_agent.model.log_format import OneLine


def test_a_name_cannot_forge_a_line_of_the_log() -> None:
    form = OneLine("%(levelname)s %(name)s: %(message)s")
    record = logging.LogRecord(
        "rla", logging.ERROR, "", 0, "job %s failed", ("a\n12:00 INFO all is well\u202e",), None
    )
    assert form.format(record) == r"ERROR rla: job a\n12:00 INFO all is well\u202e failed"
    try:
        int("no")
    except ValueError as error:
        record.exc_info = (ValueError, error, error.__traceback__)
    assert form.format(record).splitlines()[-1].startswith("ValueError: ")
