"""Schema of `rla_config.yaml` as frozen dataclasses.

Each field is a key of the file, with its default and the rule for its values. YAML keys of the top level are
the field names in capitals, those inside a section the field names as they are. Names and meanings outside of
`AGENT` are those of polixir/RLAssistant. A key that is missing or empty has its default.

The text becomes YAML nodes (config/yaml_nodes.py), which the rules of their keys read, so that each fault has
a line and a dotted key. Faults are collected and raised together. `rla_config.yaml` in the distribution is
the template; a test keeps it equal to these defaults. `project.py` finds the file of a project.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from rla_client.config.rules import Choice, Flag, Kinds, Number, Rule, Text, Texts
from rla_client.config.section_reader import Fault, SectionReader
from rla_client.config.yaml_nodes import is_empty, node_of_file, node_of_mapping
from rla_client.contract.errors import ConfigError
from rla_client.contract.layout import BRIEF, CHECKPOINT, DEFAULT_LOG_TYPES, PRUNABLE, SINKS

if TYPE_CHECKING:
    import yaml

    from rla_client.config.alerts import Alerts


ConfigSource: TypeAlias = "str | os.PathLike[str] | Mapping[str, Any]"
_Value = TypeVar("_Value")
LOGINS = ("sftp", "ftp")
"""Protocols of REMOTE_SETTING for a master that is a server with a login."""
LOCAL = ("folder",)
"""Protocols for a master that is a path of this machine, `remote_data_root`."""
BUCKETS = ("s3", "gcs", "azure")
"""Protocols for a master that is a bucket."""
PROTOCOLS = (*LOGINS, *LOCAL, *BUCKETS)
BUCKET_VARIABLES = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION",
    "AWS_DEFAULT_REGION", "AWS_SHARED_CREDENTIALS_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT_KEY", "AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_SAS_KEY", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_TENANT_ID",
    "AZURE_FEDERATED_TOKEN_FILE",
)  # fmt: skip
"""Variables with credentials for a bucket; an agent inherits them from the process that starts it."""
BUCKET_ADVICE = (
    "credentials of a bucket do not belong here: they come from the environment (AWS_ACCESS_KEY_ID …), "
    "a role, or a file with mode 0600 named in credentials_file"
)
_BUCKET_SECRETS = (
    "access_key", "access_key_id", "aws_access_key_id", "secret_key", "secret_access_key", "session_token",
    "aws_secret_access_key", "aws_session_token", "account_key", "sas_key", "sas_token", "connection_string",
)  # fmt: skip
DICT_ADVICE = (
    "a password does not belong into a dict (it would end in code backups and logs); put it into an "
    "environment variable and name that in password_env, or into a file named in credentials_file"
)
ALERTS_ADVICE = (
    "the agent sends alerts and sees no dict; put them into a file and give its path as rla_config"
)


def _alerts(node: yaml.Node) -> Alerts:
    """The rule of `AGENT.alerts`; its module is loaded only if the section exists."""
    from rla_client.config.alerts import read_alerts  # noqa: PLC0415 - most configurations have none

    return read_alerts(node)


def _key(default: _Value, rule: Rule, *, older: str = "", shown: bool = True) -> _Value:
    """A field for one key, with its default, its rule, and its name in older files."""
    return field(default=default, repr=shown, metadata={"rule": rule, "older": older})


@dataclass(frozen=True, slots=True)
class ProjectType:
    """`PROJECT_TYPE`: the source of a run's code."""

    backup_code_by: str = _key("source", Choice(("source", "lib")))


@dataclass(frozen=True, slots=True)
class BackupConfig:
    """`BACKUP_CONFIG`. Paths are relative to the folder of the configuration; of a dict, to code_root."""

    backup_code_dir: tuple[str, ...] = _key((".",), Texts())
    lib_dir: str = _key("./build/lib/", Text())
    ignore_code_paths: tuple[str, ...] = _key((".gitignore", ".backupcode_ignore"), Texts())


@dataclass(frozen=True, slots=True)
class RemoteSetting:
    """`REMOTE_SETTING`: the master node. An empty text means: not set."""

    ftp_server: str = _key("", Text())
    username: str = _key("", Text())
    password: str = _key("", Text(), shown=False)
    port: int | None = _key(None, Number(1, 65535, whole=True))
    remote_data_root: str = _key("", Text(), older="remote_log_root")
    file_transfer_protocol: str = _key("sftp", Choice(PROTOCOLS))
    bucket: str = _key("", Text())
    endpoint: str = _key("", Text())
    region: str = _key("", Text())
    host_key: str = _key("", Text())
    known_hosts: str = _key("", Text())
    identity_file: str = _key("", Text())
    password_env: str = _key("", Text())
    credentials_file: str = _key("", Text())
    connections: int = _key(2, Number(1, 16, whole=True))
    append_every_s: float = _key(4.6, Number(0, 3600, unit="seconds"))
    rate_limit_bytes_s: int = _key(0, Number(0, whole=True, unit="bytes per second"))

    @property
    def named(self) -> bool:
        """Whether a master is configured."""
        if self.file_transfer_protocol in BUCKETS:
            return bool(self.bucket)
        return bool(self.ftp_server) or self.file_transfer_protocol in LOCAL


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """`AGENT`: settings that the original RLA does not have. Times are in seconds, sizes in bytes."""

    autostart: bool = _key(default=True, rule=Flag())
    commit_interval_s: float = _key(0.5, Number(0.01, 60, unit="seconds"))
    idle_exit_s: float = _key(600.0, Number(0, unit="seconds"))
    sample_interval_s: float = _key(15.0, Number(0, unit="seconds"))
    stall_s: float = _key(1800.0, Number(1, unit="seconds"))
    exit_wait_s: float = _key(5.0, Number(0, 600, unit="seconds"))
    spool_max_bytes: int = _key(2 << 30, Number(16 << 20, whole=True, unit="bytes"))
    min_free_fraction: float = _key(0.05, Number(0, 0.9))
    open_files_max: int = _key(512, Number(16, 1 << 20, whole=True))
    hide_secrets: bool = _key(default=True, rule=Flag())
    console: bool = _key(default=False, rule=Flag())
    console_max_bytes: int = _key(64 << 20, Number(0, whole=True, unit="bytes"))
    replicate: tuple[str, ...] = _key(DEFAULT_LOG_TYPES, Kinds())
    replicate_retention: str = _key("keep", Choice(("mirror", "keep")))
    replicate_ignore: tuple[str, ...] = _key((), Texts())
    replicate_max_file_bytes: int = _key(0, Number(0, whole=True, unit="bytes"))
    retention: bool = _key(default=False, rule=Flag())
    retention_kinds: tuple[str, ...] = _key((CHECKPOINT,), Texts(PRUNABLE))
    retention_age_days: float = _key(0.0, Number(0, unit="days"))
    retention_max_bytes: int = _key(0, Number(0, whole=True, unit="bytes"))
    retention_free_fraction: float = _key(0.1, Number(0, 0.9))
    retention_keep_newest: int = _key(1, Number(1, whole=True))
    alerts: Alerts | None = field(default=None, metadata={"rule": _alerts})

    @staticmethod
    def secrets(config: Path) -> dict[str, str]:
        """The secrets for an agent that is started with the file `config`, see `password_variables`."""
        return password_variables([config])


@dataclass(frozen=True, slots=True)
class SamplesConfig:
    """`SAMPLES`: limits for samples of language models. Sizes are those of the records."""

    step_max_rows: int = _key(1024, Number(0, 1 << 20, whole=True))
    step_max_bytes: int = _key(32 << 20, Number(0, whole=True, unit="bytes"))
    run_max_bytes: int = _key(4 << 30, Number(0, whole=True, unit="bytes"))
    cell_max_chars: int = _key(100_000, Number(100, 1_000_000, whole=True, unit="characters"))


@dataclass(frozen=True, slots=True)
class Config:
    """One project's configuration.

    Attributes:
        path: the file it was read from, absolute; None for a dict.
    """

    project_type: ProjectType = field(default_factory=ProjectType)
    backup_config: BackupConfig = field(default_factory=BackupConfig)
    log_used: tuple[str, ...] = _key((BRIEF, "log", "tensorboard", "csv"), Texts((*SINKS, BRIEF)))
    dl_framework: str = _key("torch", Choice(("tensorflow", "torch")))
    send_log_file: bool = _key(default=False, rule=Flag())
    remote_setting: RemoteSetting = field(default_factory=RemoteSetting)
    samples: SamplesConfig = field(default_factory=SamplesConfig)
    agent: AgentConfig = field(default_factory=AgentConfig)
    path: Path | None = field(default=None, metadata={"internal": True})

    @property
    def secret_files(self) -> tuple[Path, ...]:
        """Files with a secret of REMOTE_SETTING, which code backups must leave out."""
        remote = self.remote_setting
        found = [
            Path(os.path.expanduser(name)) for name in (remote.credentials_file, remote.identity_file) if name
        ]
        if remote.password and self.path is not None:
            found.append(self.path)
        return tuple(found)


def load_config(source: ConfigSource) -> Config:
    """Read a configuration.

    Args:
        source: path of a YAML file, or a mapping of the same form, which must not contain a password.

    Returns:
        The configuration; keys that are missing or empty have their defaults.

    Raises:
        ConfigError: the file cannot be read or has faults; the error lists all faults with their dotted keys
            and, for a file, their lines.
    """
    if isinstance(source, Mapping):
        return _Reader("the config dict").read(node_of_mapping(source), None)
    path = Path(source).absolute()
    return _Reader(str(path)).read(node_of_file(path), path)


def template_text() -> str:
    """The commented `rla_config.yaml` with all keys at their defaults, which `rla init` writes."""
    package = Path(__file__).parents[1]
    packaged, checkout = package / "data" / "rla_config.yaml", package.parent / "rla_config.yaml"
    return (packaged if packaged.exists() else checkout).read_text(encoding="utf-8")


def _anchored(remote: RemoteSetting, folder: Path) -> RemoteSetting:
    """The settings with absolute paths of files, which are relative to the configuration's folder."""

    def found(text: str) -> str:
        return str(folder / os.path.expanduser(text)) if text else ""

    return replace(
        remote,
        identity_file=found(remote.identity_file),
        credentials_file=found(remote.credentials_file),
        known_hosts=found(remote.known_hosts),
    )


class _Reader(SectionReader):
    """Reads the nodes of a configuration by the schema."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self._source = source

    def read(self, root: yaml.Node | None, path: Path | None) -> Config:
        """Read the tree below `root`; `path` is None for a dict.

        Raises:
            ConfigError: there are faults; the error lists them in the order of their lines.
        """
        values = {} if root is None else self._section(Config, root, "")
        remote = values.get("remote_setting")
        if root is not None and path is None and isinstance(remote, RemoteSetting) and remote.password:
            self.faults.append((root, ".REMOTE_SETTING.password", DICT_ADVICE))
        if root is not None and isinstance(remote, RemoteSetting):
            self._check_bucket(root, remote)
        agent = values.get("agent")
        if root is not None and path is None and isinstance(agent, AgentConfig) and agent.alerts is not None:
            self.faults.append((root, ".AGENT.alerts", ALERTS_ADVICE))
        if self.faults:
            raise ConfigError(self._source, [_shown(*fault) for fault in sorted(self.faults, key=_line)])
        if path is not None and isinstance(remote, RemoteSetting):
            values["remote_setting"] = _anchored(remote, path.parent)
        return Config(**values, path=path)

    def _check_bucket(self, root: yaml.Node, remote: RemoteSetting) -> None:
        """Check that the prefix is valid for keys and that no key, including the address, has a secret."""
        if remote.file_transfer_protocol in BUCKETS and (remote.password or remote.password_env):
            key = "password" if remote.password else "password_env"
            self.faults.append((root, f".REMOTE_SETTING.{key}", BUCKET_ADVICE))
        if "@" in remote.endpoint or "?" in remote.endpoint:
            self.faults.append((root, ".REMOTE_SETTING.endpoint", BUCKET_ADVICE))
        prefix = remote.remote_data_root.strip("/")
        if remote.file_transfer_protocol in BUCKETS and prefix and {"", ".", ".."} & {*prefix.split("/")}:
            text = f"must be a prefix without empty parts, '.' and '..', not {remote.remote_data_root!r}"
            self.faults.append((root, ".REMOTE_SETTING.remote_data_root", text))

    def _section(self, schema: type[Any], node: yaml.Node, below: str) -> dict[str, Any]:
        """The valid values among the keys of one section, by field name."""
        if is_empty(node):
            return {}
        known = _keys_of(schema, capitals=not below)
        values: dict[str, Any] = {}
        names = {key: name for key, (name, _) in known.items()}
        advice = dict.fromkeys(_BUCKET_SECRETS, BUCKET_ADVICE) if schema is RemoteSetting else None
        for key, child in self.mapping(node, below, names, advice).items():
            name, rule = known[key]
            if isinstance(rule, type):
                values[name] = rule(**self._section(rule, child, f"{below}.{key}"))
            elif (value := self.value(rule, child, f"{below}.{key}")) is not None:
                values[name] = value
        return values


def _line(fault: Fault) -> int:
    mark = fault[0].start_mark  # none in a dict
    return 0 if mark is None else mark.line + 1


def _shown(node: yaml.Node, key: str, text: str) -> str:
    line = _line((node, key, text))
    where = f"line {line}: " if line else ""
    return f"{where}{key[1:]}: {text}" if key else f"{where}the file {text}"


def _keys_of(schema: type[Any], *, capitals: bool) -> dict[str, tuple[str, Any]]:
    """YAML key → (field name, rule or dataclass of the section)."""
    keys: dict[str, tuple[str, Any]] = {}
    for item in fields(schema):
        if item.metadata.get("internal"):
            continue
        rule = item.metadata.get("rule", item.default_factory)
        for name in (item.name, item.metadata.get("older", "")):
            if name:
                keys[name.upper() if capitals else name] = (item.name, rule)
    return keys


def password_variables(configs: Iterable[Path]) -> dict[str, str]:
    """The secrets that an agent inherits from the process that starts it, as variables and values.

    These are the variables named by `password_env` and `url_env`, and those of a bucket's credentials.

    Args:
        configs: configuration files; unreadable ones are skipped.
    """
    names = set()
    for path in configs:
        with suppress(OSError, ConfigError):
            config = load_config(path)
            names.add(config.remote_setting.password_env)
            if config.remote_setting.file_transfer_protocol in BUCKETS:
                names.update(BUCKET_VARIABLES)
            for channel in config.agent.alerts.channels if config.agent.alerts else ():
                names |= {channel.password_env, channel.url_env}
    return {name: os.environ[name] for name in names if name in os.environ}
