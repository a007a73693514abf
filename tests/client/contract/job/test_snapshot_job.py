from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rla_client.contract.errors import RemoteProtocolError
from rla_client.contract.job.job_source import ArenaSource, BlobSource
from rla_client.contract.job.snapshot_footer import encode_footer, read_footer, saved_order
from rla_client.contract.job.snapshot_job import SnapshotJob
from rla_client.contract.spool.protocol import pack, unpack

ARENA = "rla-arena-0-" + "a" * 12 + "-" + "b" * 16 + "-" + "c" * 8


def job(**changes: Any) -> SnapshotJob:
    fields = {"token": "0" * 16, "order": 5, "kind": "log", "names": ("params.pkl",)}
    return SnapshotJob(**{**fields, "source": BlobSource("x.pkl", 10), **changes})


@pytest.mark.parametrize("source", [BlobSource("x.pkl", 10), ArenaSource(ARENA, 1, 3, 99, ())])
def test_what_a_frame_carries_comes_back(source: Any) -> None:
    sent = job(source=source, names=("itr_3.pkl", "params.pkl"), kind="checkpoint")
    assert SnapshotJob.decode(unpack(pack(sent.encode()))) == sent


@pytest.mark.parametrize(
    "changes",
    [
        {"v": 2},
        {"token": "../../../../../x"},
        {"order": -1},
        {"kind": "code"},
        {"names": []},
        {"names": ["params.pkl"] * 3},
        {"names": ["../params.pkl"]},
        {"names": ["params.pkl\n"]},
        {"names": [["params.pkl"]]},
        {"names": "params.pkl"},
        {"blob": "../x"},
        {"blob": ".x"},
        {"size": -1},
        {"size": True},
        {"size": 1 << 63},
    ],
)
def test_what_is_no_job(changes: Any) -> None:
    with pytest.raises(RemoteProtocolError):
        SnapshotJob.decode({**job().encode(), **changes})


@pytest.mark.parametrize("changes", [{"arena": "/etc/passwd"}, {"arena": None}, {"slot": 8}, {"number": "1"}])
def test_what_is_no_slot(changes: Any) -> None:
    fields = job(source=ArenaSource(ARENA, 1, 3, 99, ())).encode()
    with pytest.raises(RemoteProtocolError):
        SnapshotJob.decode({**fields, **changes})


def test_footers(tmp_path: Path) -> None:
    path = tmp_path / "params.pkl"
    footer = encode_footer({"itr": 3, "token": "t", "order": 7})
    path.write_bytes(b"pickle" + footer)
    assert read_footer(path)["itr"] == 3
    assert saved_order(path) == ("t", 7)
    broken = (
        b"",
        b"short",
        b"pickle" * 9,
        footer[10:],
        b"{" * 8 + footer[-8:],
        encode_footer({"order": "7"}),
    )
    for content in broken:
        path.write_bytes(content)
        assert saved_order(path) == ("", -1)
    assert saved_order(tmp_path / "missing") == ("", -1)
