"""Stamps in checkpoint files."""

from __future__ import annotations

import random
import zipfile
from pathlib import Path

import pytest
from support.stamped import stamped

from rla_client.contract.checkpoint.stamp import STAMP_RECORD, read_stamp


@pytest.mark.parametrize("tensors", [0, 1, 3000])
def test_a_stamp_is_found_by_two_reads_of_any_file(tmp_path: Path, tensors: int) -> None:
    path = stamped(tmp_path, 7, 41, sizes=[4] * tensors)
    stamp = read_stamp(path)
    assert stamp is not None
    assert (stamp.time_step, stamp.order, stamp.metrics) == (7, 41, {"loss": 0.5})


def test_a_stamp_is_found_in_a_zip_that_somebody_added_to(tmp_path: Path) -> None:
    path = stamped(tmp_path, 7, 41)
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("archive/more", b"x")
        file.comment = b"PK\x01\x02 is not an entry"
    stamp = read_stamp(path)
    assert stamp is not None
    assert stamp.order == 41


def test_a_file_cut_or_damaged_anywhere_has_no_stamp_or_its_own(tmp_path: Path) -> None:
    whole = stamped(tmp_path, 7, 41).read_bytes()
    own, path = read_stamp(tmp_path / "checkpoint_7.pt"), tmp_path / "checkpoint_8.pt"
    for cut in range(0, len(whole), 7):
        path.write_bytes(whole[:cut])
        stamp = read_stamp(path)
        assert stamp is None or stamp == own
    draws = random.Random(5)
    for _ in range(500):
        at = draws.randrange(len(whole))
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << draws.randrange(8)]) + whole[at + 1 :])
        stamp = read_stamp(path)
        assert stamp is None or stamp == own
    assert read_stamp(tmp_path) is None
    assert STAMP_RECORD.encode() in whole
