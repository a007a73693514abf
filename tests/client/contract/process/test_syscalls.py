"""Calls that Python lacks on some machines: the same with and without Python's own."""

from __future__ import annotations

import os
import select
import signal
import subprocess

import pytest

from rla_client.contract.process.syscalls import memory_file, process_descriptor, signal_process

OWN = [(os, "memfd_create"), (os, "pidfd_open"), (signal, "pidfd_send_signal")]


@pytest.fixture(params=["own", "lacking"], autouse=True)
def python(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "lacking":
        for module, name in OWN:
            monkeypatch.delattr(module, name, raising=False)


def test_a_file_in_memory() -> None:
    descriptor = memory_file("rla-test")
    try:
        assert os.write(descriptor, b"text") == os.fstat(descriptor).st_size == 4
        assert not os.get_inheritable(descriptor)
        assert "rla-test" in os.readlink(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def test_a_process_is_signalled_and_its_end_seen() -> None:
    process = subprocess.Popen(["sleep", "600"])
    descriptor = process_descriptor(process.pid)
    try:
        assert not os.get_inheritable(descriptor)
        assert not select.select([descriptor], [], [], 0)[0]
        signal_process(descriptor, signal.SIGTERM)
        assert select.select([descriptor], [], [], 60)[0]
        assert process.wait() == -signal.SIGTERM
        with pytest.raises(ProcessLookupError):
            signal_process(descriptor, signal.SIGTERM)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("pid", [-1, 0, 1 << 22, 1 << 40])
def test_what_is_no_process(pid: int) -> None:
    with pytest.raises((OSError, OverflowError)):
        process_descriptor(pid)
