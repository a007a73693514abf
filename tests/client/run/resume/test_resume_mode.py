"""`allow` or `must` without an agent."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from support.spooled import stop_autostart

from rla_client import exp_manager, logger
from rla_client.contract.agent.places import Places
from rla_client.contract.errors import RlaError
from rla_client.contract.layout import LOG
from rla_client.stream.segment_writer import SegmentWriter

CONFIG = {"LOG_USED": ["csv"], "BACKUP_CONFIG": {"backup_code_dir": ["nothing"]}}


def run_file(root: Path, index: str, **fields: Any) -> None:
    folder = root / LOG / "t" / index
    folder.mkdir(parents=True)
    content = {"run_id": index, "run_key": "r", "state": "killed", "streams": [], **fields}
    (folder / "run.json").write_text(json.dumps(content))


def test_allow_begins_anew_where_no_agent_is_to_be_had_and_must_says_so(
    tmp_path: Path, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_autostart(places)
    warned: list[str] = []
    monkeypatch.setattr("rla_client.run.resume.resume_mode.warn", warned.append)
    waiting = SegmentWriter(places.spool, lambda _number, _rows: b"")
    waiting.close()
    run_file(tmp_path, "2026/01/02/03-04-05-000006_noip_&", streams=[waiting.name])
    began = time.monotonic()
    exp_manager.configure("t", CONFIG, tmp_path, code_root=tmp_path, run_id="r", resume="must")
    with pytest.raises(RlaError, match="rla-agent start"):
        exp_manager.log_files_gen()
    exp_manager.configure("t", CONFIG, tmp_path, code_root=tmp_path, run_id="r", resume="allow")
    exp_manager.log_files_gen()
    logger.record_tabular("x", 1)
    logger.dump_tabular()
    assert exp_manager.resumed_from is None
    assert sum("A new run begins" in text for text in warned) == 1
    assert time.monotonic() - began < 30, "it waits for nobody"
