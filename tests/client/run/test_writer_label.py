"""Labels of writers on several machines."""

from __future__ import annotations

import json
from pathlib import Path

from support.spooled import bare_opening

from rla_client.contract.run_part import run_file_name
from rla_client.contract.spool.opening import Continuation, Opening
from rla_client.run.writer_label import label_of_rank, with_machine


def test_a_label_with_a_machine_stays_short_enough() -> None:
    assert with_machine("actor", "") == "actor"
    assert with_machine("actor", "node-b-0a1b2c") == "actor-node-b-0a1b2c"
    assert len(with_machine("a" * 64, "node-b-0a1b2c")) == 64


def tell_part(opening: Opening, machine: str, *labels: str) -> None:
    """What the agent of a machine says of the processes in its part."""
    content: dict[str, dict[str, object]] = {"ranks": {label: {} for label in labels}}
    (Path(opening.log_folder) / run_file_name(machine)).write_text(json.dumps(content))


def opening_in(root: Path, **changes: object) -> Opening:
    opening = bare_opening(
        str(root), folders={"log": "log/r", "hyperparameter": "hyperparameter/r"}, **changes
    )
    Path(opening.log_folder).mkdir(parents=True, exist_ok=True)
    return opening


def test_a_resumed_rank_goes_on_in_its_own_files_only(tmp_path: Path) -> None:
    opening = opening_in(tmp_path, part="b-1")
    folder = Path(opening.log_folder)
    assert label_of_rank(opening, "rank1", "b-1") == "rank1-b-1", "another machine may have had it"
    (folder / "warn.rank1.txt").touch()
    assert label_of_rank(opening, "rank1", "b-1") == "rank1"
    tell_part(opening, "c-2", "rank1")
    assert label_of_rank(opening, "rank1", "b-1") == "rank1-b-1", "it is another machine's"
    tell_part(opening, "b-1", "rank1")
    assert label_of_rank(opening, "rank1", "b-1") == "rank1"


def test_a_rank_that_moves_to_the_main_machine_gets_a_name_of_its_own(tmp_path: Path) -> None:
    opening = opening_in(tmp_path)
    (tmp_path / "hyperparameter/r").mkdir(parents=True)
    folder = Path(opening.log_folder)
    assert label_of_rank(opening, "rank1", "a-0") == "rank1-a-0", "its files lie on the machine that had it"
    (folder / "warn.rank1.txt").touch()
    assert label_of_rank(opening, "rank1", "a-0") == "rank1", "it was here"
    tell_part(opening, "b-1", "rank1")
    assert label_of_rank(opening, "rank1", "a-0") == "rank1-a-0", (
        "it was on another machine, which shares the root"
    )


def test_a_rank_that_leaves_the_main_machine_for_one_that_shares_its_root(tmp_path: Path) -> None:
    opening = opening_in(tmp_path, part="b-1")
    (tmp_path / "hyperparameter/r").mkdir(parents=True)
    (Path(opening.log_folder) / "warn.rank1.txt").touch()
    assert label_of_rank(opening, "rank1", "b-1") == "rank1-b-1"
    tell_part(opening, "b-1", "rank1")
    assert label_of_rank(opening, "rank1", "b-1") == "rank1"


def test_a_fork_is_nobody_elses(tmp_path: Path) -> None:
    opening = opening_in(tmp_path, continues=Continuation(staged=".rla-fork"))
    assert label_of_rank(opening, "rank1", "a-0") == "rank1"
