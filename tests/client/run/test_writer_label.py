"""Labels of writers on several machines."""

from __future__ import annotations

import json
from pathlib import Path

from support.spooled import bare_opening

from rla_client.contract.run_part import run_file_name
from rla_client.run.writer_label import label_of_rank, with_machine


def test_a_label_with_a_machine_stays_short_enough() -> None:
    assert with_machine("actor", "") == "actor"
    assert with_machine("actor", "node-b-0a1b2c") == "actor-node-b-0a1b2c"
    assert len(with_machine("a" * 64, "node-b-0a1b2c")) == 64


def test_a_resumed_rank_goes_on_in_its_own_files_only(tmp_path: Path) -> None:
    opening = bare_opening(str(tmp_path), part="b-1")
    folder = Path(opening.log_folder)
    folder.mkdir(parents=True, exist_ok=True)
    assert label_of_rank(opening, "rank1") == "rank1-b-1", "another machine may have had it"
    (folder / "warn.rank1.txt").touch()
    assert label_of_rank(opening, "rank1") == "rank1"
    (folder / run_file_name("c-2")).write_text(json.dumps({"ranks": {"rank1": {}}}))
    assert label_of_rank(opening, "rank1") == "rank1-b-1", "it is another machine's"
    (folder / run_file_name("b-1")).write_text(json.dumps({"ranks": {"rank1": {}}}))
    assert label_of_rank(opening, "rank1") == "rank1"
