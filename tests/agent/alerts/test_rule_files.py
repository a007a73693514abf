"""Configurations with alerts: what a file that others can write may not do."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from rla_agent.alerts import rule_files as rule_files_module
from rla_agent.alerts.rule_files import LOOK_AGAIN_S, RuleSet
from rla_agent.store.config_reader import WAIT_S, ConfigReader

TEXT = """AGENT:
  alerts:
    channels: {run: {kind: command, command: [touch, ran]}}
    rules: [{when: failed, send: run}]
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "rla_config.yaml"
    path.write_text(TEXT)
    path.chmod(0o600)
    return path


def refused(rule_set: RuleSet, config: Path) -> str:
    channel, why = rule_set.channel(str(config), "run")
    assert channel is not None
    return why


def test_faults_and_absence_do_not_make_a_foreign_command_ours(config: Path) -> None:
    """What a file of others said before stays theirs, until a whole file of ours is there."""
    config.chmod(0o666)
    rule_set = RuleSet(None, ConfigReader())
    assert "can be written by others" in refused(rule_set, config)
    config.write_text(TEXT + "  : : [")
    rule_set.look(now := 100.0)
    assert "is not YAML" in rule_set.problems()[str(config)]
    assert "can be written by others" in refused(rule_set, config)
    config.unlink()
    rule_set.look(now := now + LOOK_AGAIN_S)
    assert "can be written by others" in refused(rule_set, config)
    config.write_text(TEXT)
    config.chmod(0o666)
    rule_set.look(now := now + LOOK_AGAIN_S)
    assert "can be written by others" in refused(rule_set, config)
    config.chmod(0o600)
    rule_set.look(now + LOOK_AGAIN_S)
    assert refused(rule_set, config) == "", "what the message asks for is seen"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file to any group")
@pytest.mark.parametrize(("group", "mode", "ours"), [(0, 0o664, True), (7, 0o664, False), (7, 0o644, True)])
def test_a_group_that_may_write_counts_as_others(config: Path, group: int, mode: int, ours: bool) -> None:
    os.chown(config, -1, group)
    config.chmod(mode)
    assert (refused(RuleSet(None, ConfigReader()), config) == "") is ours


def test_a_folder_that_others_may_write_is_seen_without_a_change_of_the_file(config: Path) -> None:
    rule_set = RuleSet(None, ConfigReader())
    assert refused(rule_set, config) == ""
    config.parent.chmod(0o777)
    rule_set.look(now := 100.0)
    assert str(config.parent) in refused(rule_set, config)
    config.parent.chmod(0o755)
    rule_set.look(now + LOOK_AGAIN_S)
    assert refused(rule_set, config) == ""


def test_more_configurations_than_are_kept(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A volume thread names others while the dispatcher looks; the agent's own is never forgotten."""
    monkeypatch.setattr(rule_files_module, "MAX_CONFIGS", 2)
    paths = [tmp_path / f"{number}.yaml" for number in range(4)]
    looks: list[list[str]] = []

    class Watched(ConfigReader):
        """During a look at many, others are named."""

        def look(self, configs: Iterable[str], wait_s: float = WAIT_S) -> None:
            super().look(configs, wait_s)
            looks.append(list(configs))
            if len(looks[-1]) > 1:
                for other in paths[:-1]:
                    rule_set.rule_file(str(other))

    rule_set = RuleSet(config, Watched())
    for path in paths:
        path.write_text(TEXT)
        rule_set.rule_file(str(path))
    assert list(rule_set._rule_files) == [str(config), str(paths[-1])]
    rule_set.look(100.0)
    assert [str(config), str(paths[-1])] in looks
    assert rule_set.any_rules
    assert rule_set.problems() == {}
