from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.sampled import write_samples

from rla_client.contract.errors import BrokenFileError
from rla_client.database.samples.sample_index import SampleIndex
from rla_client.database.tree.chains import ChainLink

RUN = "2026/11/21/09-30-01-123456_10.0.0.5"


def _index(root: Path) -> SampleIndex:
    return SampleIndex(root, "t", [ChainLink(RUN)])


def test_a_run_without_samples_has_none(tmp_path: Path) -> None:
    index = _index(tmp_path)
    assert not index.refresh()
    assert len(index) == 0


def test_columns_are_over_all_files_and_a_look_reads_what_is_new(tmp_path: Path) -> None:
    path = write_samples(tmp_path, "t", RUN, [(1, [{"reward": 1}, {"reward": 2}])])
    write_samples(tmp_path, "t", RUN, [(1, [{"score": 5}])], label="rollout-3", left_out=2)
    index = _index(tmp_path)
    assert index.refresh()
    assert index.columns["reward"] == [1, 2, None]
    assert index.columns["score"] == [None, None, 5]
    assert index.columns["role"] == ["", "", "rollout-3"]
    assert index.left_out == {1: 2}
    assert not index.refresh()
    write_samples(tmp_path, "t", RUN, [(2, [{"reward": 3}])])
    assert index.refresh()
    assert index.columns["reward"] == [1, 2, None, 3]
    assert index.columns["step"] == [1, 1, 1, 2]
    assert [row for row, _ in index.texts([3, 0])] == [3, 0]
    os.truncate(path, 0)
    assert index.refresh()
    assert index.columns["score"] == [5]


def test_what_is_still_being_written_comes_with_the_next_look(tmp_path: Path) -> None:
    path = write_samples(tmp_path, "t", RUN, [(1, [{"reward": 1}])])
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        index = _index(tmp_path)
        assert not index.refresh(), size
        path.write_bytes(whole)
        assert index.refresh()
        assert len(index) == 1
    path.write_bytes(whole + bytes(500))
    assert _index(tmp_path).refresh()


def test_a_damaged_or_foreign_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = write_samples(tmp_path, "t", RUN, [(1, [{"reward": 1}])])
    path.write_bytes(b"x" * 100)
    with pytest.raises(BrokenFileError, match=r"samples\.jsonl\.gz"):
        _index(tmp_path).refresh()
    path.unlink()
    path.symlink_to("/etc/passwd")
    with pytest.raises(BrokenFileError, match="link"):
        _index(tmp_path).refresh()


def test_of_a_continued_run_what_was_done_again_does_not_count(tmp_path: Path) -> None:
    later = RUN.replace("09-30", "10-30")
    write_samples(tmp_path, "t", RUN, [(1, [{"reward": 1}]), (2, [{"reward": 2}])])
    write_samples(tmp_path, "t", later, [(2, [{"reward": 20}])])
    index = SampleIndex(tmp_path, "t", [ChainLink(RUN, 1, 1.0), ChainLink(later)])
    assert index.refresh()
    assert index.columns["reward"] == [1, 20]
    assert not index.refresh()
