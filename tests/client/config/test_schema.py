"""rla_config.yaml: defaults, the original's files, every fault at once, and the template in step."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from rla_client.config.schema import Config, load_config, template_text
from rla_client.config.yaml_nodes import MAX_CONFIG_BYTES
from rla_client.contract.errors import ConfigError
from rla_client.contract.layout import DEFAULT_LOG_TYPES


def write(folder: Path, text: str) -> Path:
    path = folder / "rla_config.yaml"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def faults_of(source: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_config(source)
    return caught.value.faults


def keys_of_schema(kind: type[Any], *, capitals: bool = False, prefix: str = "") -> Iterator[str]:
    for item in dataclasses.fields(kind):
        if item.metadata.get("internal"):
            continue
        name = prefix + (item.name.upper() if capitals else item.name)
        yield name
        if "rule" not in item.metadata:
            section: Any = item.default_factory
            assert isinstance(section, type)
            yield from keys_of_schema(section, prefix=name + ".")


def keys_of_yaml(found: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in found.items():
        yield prefix + name
        if isinstance(value, dict):
            yield from keys_of_yaml(value, prefix + name + ".")


def test_template_has_every_key_at_its_default(tmp_path: Path) -> None:
    path = write(tmp_path, template_text())
    assert load_config(path) == dataclasses.replace(Config(), path=path)
    in_template = list(keys_of_yaml(yaml.safe_load(template_text())))
    assert sorted(in_template) == sorted(keys_of_schema(Config, capitals=True))


def test_template_explains_each_key() -> None:
    lines = template_text().splitlines()
    explained = 0
    for number, line in enumerate(lines):
        key = line.split("#")[0].strip()
        if not key.endswith(":") and ": " not in key:
            continue
        if key in ("PROJECT_TYPE:", "BACKUP_CONFIG:", "AGENT:"):
            continue
        assert lines[number - 1].strip().startswith("#"), f"line {number + 1} has no comment above: {line}"
        explained += 1
    sections = ("PROJECT_TYPE", "BACKUP_CONFIG", "AGENT")
    assert explained == len([key for key in keys_of_schema(Config, capitals=True) if key not in sections])
    assert all(len(line) <= 110 for line in lines)


def choices(kind: type[Any], *, capitals: bool = False) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Keys whose values are words, with these."""
    for item in dataclasses.fields(kind):
        section: Any = item.default_factory
        if isinstance(section, type):
            yield from choices(section)
        elif words := getattr(item.metadata.get("rule"), "words", ()):
            yield item.name.upper() if capitals else item.name, words


def test_template_names_each_choice() -> None:
    found = dict(choices(Config, capitals=True))
    assert found.keys() >= {"LOG_USED", "file_transfer_protocol", "retention_kinds"}
    for key, words in found.items():
        above = re.search(rf"((?:^ *#.*\n)+)^ *{key}:", template_text(), re.MULTILINE)
        assert above is not None, key
        assert [word for word in words if not re.search(rf"\b{word}\b", above[1])] == [], key


def test_an_empty_file_and_an_empty_dict_are_the_defaults(tmp_path: Path) -> None:
    path = write(tmp_path, "# nothing\n")
    assert load_config(path) == dataclasses.replace(Config(), path=path)
    assert load_config({}) == Config()


@pytest.mark.parametrize("port", ["''", "", "22", "'22'"])
@pytest.mark.parametrize("root_name", ["remote_log_root", "remote_data_root"])
def test_configs_of_the_original_load(tmp_path: Path, port: str, root_name: str) -> None:
    config = load_config(
        write(
            tmp_path,
            f"""
            PROJECT_TYPE:
              backup_code_by: 'lib'
            BACKUP_CONFIG:
              backup_code_dir:
                # - 'ppo'
              lib_dir: './build/lib/'
            LOG_USED:
              - 'stdout'
              - 'csv'
            DL_FRAMEWORK: 'tensorflow'
            SEND_LOG_FILE: True
            REMOTE_SETTING:
              ftp_server: '192.0.2.7'
              username: 'me'
              password: 0123
              port: {port}
              {root_name}: 'Project/data'
            """,
        )
    )
    assert config.project_type.backup_code_by == "lib"
    assert config.backup_config.backup_code_dir == (".",)
    assert config.log_used == ("stdout", "csv")
    assert config.dl_framework == "tensorflow"
    assert config.send_log_file is True
    assert config.remote_setting.port == (22 if "22" in port else None)
    assert config.remote_setting.remote_data_root == "Project/data"
    assert config.remote_setting.file_transfer_protocol == "sftp"
    assert config.remote_setting.password == "0123", "as written, not as the octal number 83"


def test_all_faults_come_at_once_with_line_and_key(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """\
        PROJECT_TYPE:
          backup_code_by: sources
        LOG_USD: [csv]
        LOG_USED: [csv, tensorbord]
        DL_FRAMEWORK: torch
        DL_FRAMEWORK: tensorflow
        REMOTE_SETTING:
          port: '70000'
          pasword: x
          remote_log_root: a
          remote_data_root: b
        AGENT:
          autostart: 'yes'
          commit_interval_s: .nan
          idle_exit_s: !!python/object/apply:os.abort []
          replicate: [log, cod]
          sample_interval_s: often
          open_files_max: 12.5
        """,
    )
    wanted = [
        ("line 2: PROJECT_TYPE.backup_code_by: ", "did you mean 'source'"),
        ("line 3: LOG_USD: ", "did you mean 'LOG_USED'"),
        ("line 4: LOG_USED: ", "did you mean 'tensorboard'"),
        ("line 6: DL_FRAMEWORK: ", "twice"),
        ("line 8: REMOTE_SETTING.port: ", "from 1 to 65535, not '70000'"),
        ("line 9: REMOTE_SETTING.pasword: ", "did you mean 'password'"),
        ("line 11: REMOTE_SETTING.remote_data_root: ", "twice"),
        ("line 13: AGENT.autostart: ", "true or false"),
        ("line 14: AGENT.commit_interval_s: ", "from 0.01 to 60"),
        ("line 15: AGENT.idle_exit_s: ", "a number of seconds"),
        ("line 16: AGENT.replicate: ", "did you mean 'code'"),
        ("line 17: AGENT.sample_interval_s: ", "often"),
        ("line 18: AGENT.open_files_max: ", "whole number"),
    ]
    faults = faults_of(path)
    assert len(faults) == len(wanted), faults
    for fault, (start, part) in zip(faults, wanted, strict=True):
        assert fault.startswith(start), fault
        assert part in fault, fault


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a: [", "line 1: is not YAML"),
        ("LOG_USED: [csv]\na: b: c\n", "line 2: is not YAML"),
        ("[1, 2]", "line 1: the file must hold keys and values"),
        ("&a [*a]", "written out, it has more than"),
        ("AGENT: {<<: [1]}", "AGENT: has a `<<` that cannot be merged"),
        ("AGENT: {? [1, 2] : 3}", "AGENT: a key must be a name, not a list"),
        ("? {a: b}\n: c", "a key must be a name, not keys and values"),
        ("AGENT: {spool_max_bytes: 1_0}", "a whole number of bytes, at least 16777216, not '1_0'"),
        ("--- {}\n--- {}\n", "is not YAML"),
        ("[" * 20_000, "is not YAML"),
        ("a\x00b", "is not YAML"),
        ("#" * (MAX_CONFIG_BYTES + 1), "is larger than"),
    ],
)
def test_broken_files_are_one_clear_fault(tmp_path: Path, text: str, part: str) -> None:
    path = write(tmp_path, text)
    (fault,) = faults_of(path)
    assert part in fault


def test_bytes_that_are_no_text_and_files_that_are_no_file(tmp_path: Path) -> None:
    path = tmp_path / "rla_config.yaml"
    path.write_bytes(b"LOG_USED: \xff\xfe\n")
    assert "is not YAML" in faults_of(path)[0]
    assert "cannot be read" in faults_of(tmp_path)[0]
    assert "rla init" in faults_of(tmp_path / "missing.yaml")[0]
    os.mkfifo(tmp_path / "pipe.yaml")  # nobody writes into it: who reads must not wait
    assert "it is not a file" in faults_of(tmp_path / "pipe.yaml")[0]


def test_merges_and_anchors_work(tmp_path: Path) -> None:
    path = write(tmp_path, "AGENT:\n  <<: {stall_s: 7, exit_wait_s: 1}\n  exit_wait_s: 2\n")
    assert (load_config(path).agent.stall_s, load_config(path).agent.exit_wait_s) == (7.0, 2.0)


def test_a_dict_may_hold_tuples_paths_and_mappings_but_no_password() -> None:
    omegaconf = pytest.importorskip("omegaconf")
    assert load_config({"LOG_USED": ("csv",), "BACKUP_CONFIG": {"lib_dir": Path("/x")}}).log_used == ("csv",)
    assert load_config(omegaconf.OmegaConf.create({"AGENT": {"stall_s": 9}})).agent.stall_s == 9
    (fault,) = faults_of({"REMOTE_SETTING": {"password": "hunter2", "port": 22}})
    assert "REMOTE_SETTING.password" in fault
    assert "password_env" in fault
    assert "credentials_file" in fault
    (fault,) = faults_of({"AGENT": {"stall_s": object()}})
    assert "not plain data" in fault


def test_a_password_is_in_no_message_and_no_repr(tmp_path: Path) -> None:
    text = "REMOTE_SETTING: {{password: {0}, ftp_server: [x]}}"
    for secret in ("hunter2", "[hunter2]", "{hunter2: 1}"):
        assert "hunter2" not in "".join(faults_of(write(tmp_path, text.format(secret))))
    config = load_config(write(tmp_path, "REMOTE_SETTING: {password: hunter2}"))
    assert config.remote_setting.password == "hunter2"
    assert "hunter2" not in repr(config)


def test_single_texts_stand_for_lists_and_repeats_count_once(tmp_path: Path) -> None:
    config = load_config(
        write(tmp_path, "LOG_USED: csv\nAGENT: {replicate: [log, log], replicate_ignore: '*.tmp'}")
    )
    assert config.log_used == ("csv",)
    assert config.agent.replicate == ("log",)
    assert config.agent.replicate_ignore == ("*.tmp",)
    assert load_config(write(tmp_path, "AGENT: {replicate: all}")).agent.replicate == DEFAULT_LOG_TYPES


def test_importing_the_module_does_not_import_yaml() -> None:
    code = "import sys, rla_client.config.schema; sys.exit('yaml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_files_of_the_master_are_found_from_the_config_s_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    path = tmp_path / "rla_config.yaml"
    path.write_text(
        "REMOTE_SETTING: {identity_file: keys/id, credentials_file: ~/secret, known_hosts: /etc/known}\n"
    )
    remote = load_config(path).remote_setting
    assert remote.identity_file == str(tmp_path / "keys/id")
    assert remote.credentials_file == str(tmp_path / "home/secret")
    assert remote.known_hosts == "/etc/known"
