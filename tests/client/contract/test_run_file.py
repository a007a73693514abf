"""run.json of anybody: what is not what it should be counts as not there."""

from __future__ import annotations

import pytest

from rla_client.contract.run_file import run_duration_s


@pytest.mark.parametrize("state", [["finished"], {"finished": 1}, None, 5])
def test_a_state_that_is_no_text_ends_nothing(state: object) -> None:
    assert run_duration_s({"state": state, "opened": 10.0, "closed": 30.0, "last_row": 20.0}) == 10.0
    assert run_duration_s({"state": "finished", "opened": 10.0, "closed": 30.0, "last_row": 20.0}) == 20.0
