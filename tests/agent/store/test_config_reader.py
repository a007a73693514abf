"""Configurations on a server that hangs hold up nobody, and are taken up when they come."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.hung_folder import HungFolder, hung, needs_hung_folder

from rla_agent.store import config_reader, settings
from rla_agent.store.config_reader import ConfigReader
from rla_agent.store.settings import agent_settings, settings_in_force
from rla_client.config.schema import AgentConfig
from rla_client.contract.errors import ConfigError

UNTIL_READ_S = 3600.0  # returns as soon as a file is read; who waits for one that hangs, hangs with it


def config_in(folder: Path, text: str = "SEND_LOG_FILE: true\n") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "rla_config.yaml"
    path.write_text(text)
    return path


def retried(reader: ConfigReader) -> bool:
    """Let it try again; for conditions that are asked time and again."""
    reader.retry()
    return True


def readers() -> int:
    return sum(thread.name == "config-reader" for thread in threading.enumerate())


@pytest.fixture
def reader(wait_until: Callable[..., Any]) -> Iterator[ConfigReader]:
    yield ConfigReader()
    wait_until(lambda: readers() == 0, what="the end of the readers")


def test_a_file_its_change_and_its_end(reader: ConfigReader, tmp_path: Path) -> None:
    path = config_in(tmp_path / "p")
    (tmp_path / "link").symlink_to(path)
    found = reader.reading(str(tmp_path / "link"), UNTIL_READ_S)
    assert found is not None
    assert found.config is not None
    assert found.config.send_log_file
    assert found.real == str(path)
    assert reader.reading(str(tmp_path / "link"), UNTIL_READ_S) is found, "not read again"
    path.write_text("SEND_LOG_FILE: 7\nTYPO: 1\n")
    broken = reader.reading(str(path), UNTIL_READ_S)
    assert broken is not None
    assert broken.config is None
    assert any("TYPO" in fault for fault in broken.faults)
    path.unlink()
    gone = reader.reading(str(path), UNTIL_READ_S)
    assert gone is not None
    assert (gone.changed, gone.config) == (None, None)
    assert reader.problems() == []


def test_more_files_than_are_kept(
    reader: ConfigReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_reader, "MOST_KEPT", 2)
    paths = [str(config_in(tmp_path / str(number))) for number in range(3)]
    reader.look(paths, UNTIL_READ_S)
    assert [reader.known(path) is not None for path in paths] == [False, True, True]


def test_what_nobody_expected_is_told_once_and_holds_up_no_other(
    reader: ConfigReader,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    wait_until: Callable[..., Any],
) -> None:
    monkeypatch.setattr(config_reader, "RETRY_S", 0.02)
    tries, read = [], config_reader._read

    def counted(config: str, former: Any) -> Any:
        tries.append(config)
        return read(config, former)

    monkeypatch.setattr(config_reader, "_read", counted)
    assert reader.reading("/no\0file") is None
    wait_until(lambda: retried(reader) and tries.count("/no\0file") >= 3, what="further tries")
    assert reader.reading(str(config_in(tmp_path / "p")), UNTIL_READ_S) is not None
    assert caplog.text.count("cannot read") == 1


@needs_hung_folder
def test_one_that_hangs_costs_one_short_wait_and_is_read_when_it_is_back(
    reader: ConfigReader, tmp_path: Path, wait_until: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_reader, "RETRY_S", 0.05)
    far, near = config_in(tmp_path / "far"), config_in(tmp_path / "near")
    with hung(far.parent) as server:
        began = time.monotonic()
        assert reader.reading(str(far)) is None
        assert time.monotonic() - began >= config_reader.WAIT_S
        assert reader.reading(str(near), UNTIL_READ_S) is not None, "by another reader"
        reader._asked[str(far)].since -= UNTIL_READ_S
        assert reader.reading(str(far), UNTIL_READ_S) is None, "not waited for again"
        (problem,) = reader.problems()
        assert str(far) in problem["what"]
        assert "does not answer" in problem["what"]
        server.come_back()
        wait_until(lambda: retried(reader) and reader.known(str(far)), what="the late reading")
    assert reader.problems() == []


@needs_hung_folder
def test_what_was_read_before_stays(
    reader: ConfigReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., Any]
) -> None:
    monkeypatch.setattr(config_reader, "RETRY_S", 0.05)
    path = config_in(tmp_path / "far")
    found = reader.reading(str(path), UNTIL_READ_S)
    assert found is not None
    with hung(path.parent):
        assert reader.reading(str(path)) is found
        (problem,) = wait_until(reader.problems)
        assert "with the settings it had before" in problem["what"]
    wait_until(lambda: retried(reader) and not reader.problems(), what="an answer")


@pytest.mark.slow
@needs_hung_folder
def test_more_mounts_that_hang_than_readers(
    reader: ConfigReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., Any]
) -> None:
    """The number of threads is bounded, and nobody waits once all of them hang."""
    monkeypatch.setattr(config_reader, "RETRY_S", 0.05)
    most = config_reader.MOST_READERS
    paths = [config_in(tmp_path / str(number)) for number in range(most + 2)]
    servers = [HungFolder(path.parent) for path in paths[:-1]]
    try:
        for server, path in zip(servers, paths[:-1], strict=True):
            server.hang()
            assert reader.reading(str(path)) is None
        wait_until(
            lambda: retried(reader) and reader._stuck(time.monotonic()) == most, what="all of them hang"
        )
        assert reader.reading(str(paths[-1]), UNTIL_READ_S) is None, "nobody is left to read it"
        assert readers() == most
    finally:
        for server in servers:
            server.come_back()
    places = [str(path) for path in paths]
    wait_until(lambda: retried(reader) and all(map(reader.known, places)), what="all readings")


@needs_hung_folder
def test_an_agent_starts_whose_own_configuration_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., Any]
) -> None:
    """With the defaults."""
    monkeypatch.setattr(settings, "START_WAIT_S", UNTIL_READ_S)
    path = config_in(tmp_path / "own", "AGENT: {commit_interval_s: 0.1}\n")
    assert agent_settings(path).commit_interval_s == 0.1
    assert agent_settings(None) == AgentConfig()
    with hung(path.parent), monkeypatch.context() as patch:
        patch.setattr(settings, "START_WAIT_S", 0.1)
        assert agent_settings(path) == AgentConfig()
    wait_until(lambda: readers() == 0, what="the end of the reader")
    path.write_text("TYPO: 1\n")
    with pytest.raises(ConfigError, match="TYPO"):
        agent_settings(path)


def test_one_file_for_the_machine_whatever_project_starts_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    machine = tmp_path / "rla-agent" / "agent.yaml"
    project = config_in(tmp_path / "project", "AGENT: {idle_exit_s: 1, stall_s: 2, console_max_bytes: 3}\n")

    by_client = settings_in_force(project, autostarted=True)
    assert (by_client.agent.idle_exit_s, by_client.agent.stall_s) == (600.0, 1800.0)
    assert by_client.agent.console_max_bytes == AgentConfig().console_max_bytes
    assert set(by_client.sources.values()) == {"default"}

    machine.parent.mkdir()
    machine.write_text("AGENT: {idle_exit_s: 60, open_files_max: 100}\n")
    by_client = settings_in_force(project, autostarted=True)
    assert by_client.to_plain()["idle_exit_s"] == {"value": 60.0, "source": str(machine)}
    named = settings_in_force(project, autostarted=False).to_plain()
    assert named["idle_exit_s"] == {"value": 1.0, "source": str(project)}
    assert named["open_files_max"] == {"value": 100, "source": str(machine)}
    assert named["commit_interval_s"] == {"value": 0.5, "source": "default"}

    machine.write_text("AGENT: {idle_exit_s: soon}\n")
    (fault,) = settings_in_force(None, autostarted=False).faults
    assert "idle_exit_s" in fault
