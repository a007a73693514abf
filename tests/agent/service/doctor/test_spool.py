"""Findings of `rla-agent doctor` about the spool."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rla_agent.model.problem import Finding
from rla_client.contract.agent.places import Places, machine_key


@pytest.mark.parametrize("kind", ["link", "foreign"])
def test_a_stream_that_is_not_ours(
    look: Callable[..., dict[str, Finding]], places: Places, kind: str
) -> None:
    stream = places.spool / "0123456789abcdef-1-00000000"
    if kind == "link":
        stream.symlink_to(places.state)
    elif os.geteuid() == 0:
        stream.mkdir()
        os.chown(stream, 12345, 12345)
    else:
        pytest.skip("needs root to give a folder away")
    found = look()["spool-foreign"]
    assert str(stream) in found.what
    subprocess.run(shlex.split(found.fix)[1:], check=True)  # without sudo
    assert look() == {}


def test_rows_in_the_state_folder_of_another_host_name(
    look: Callable[..., dict[str, Finding]], tmp_path: Path
) -> None:
    states = tmp_path / "states"
    own, former = (Places(states / name, tmp_path / "r") for name in (machine_key(), "former-00000000"))
    own.create()
    former.create()
    assert "spool-elsewhere" not in look(places=own)
    (former.spool / "0123456789abcdef-1-00000000").mkdir(mode=0o700)
    found = look(places=own)["spool-elsewhere"]
    assert str(former.spool) in found.what
    assert found.fix == f"rla-agent drain --spool {former.state}"


def test_spool_damaged_and_full(
    fix: Callable[[Finding], None],
    places: Places,
    look: Callable[..., dict[str, Finding]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    stream = places.spool / "0123456789abcdef-1-00000000"
    stream.mkdir()
    (stream / "000001.seg").write_bytes(bytes(14 << 20))
    (tmp_path / "rla_config.yaml").write_text("AGENT:\n  spool_max_bytes: 16777216\n")
    found = look()
    assert {"spool-damaged", "spool-full"} <= set(found)
    fix(found["spool-damaged"])
    assert look() == {}
