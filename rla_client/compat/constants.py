"""Constants of RLA."""

from __future__ import annotations

from rla_client.contract.layout import DEFAULT_LOG_TYPES

DEFAULT_X_NAME = "time-step"
DEFAULT_TIMESTAMP = "timestamp"
default_log_types = list(DEFAULT_LOG_TYPES)


class FRAMEWORK:
    """Values of DL_FRAMEWORK."""

    tensorflow = "tensorflow"
    torch = "torch"


class FTP_PROTOCOL_NAME:  # noqa: N801 - the original's name
    """Values of REMOTE_SETTING.file_transfer_protocol."""

    FTP = "ftp"
    SFTP = "sftp"


class LOG_NAME_FORMAT_VERSION:  # noqa: N801 - the original's name
    """Versions of the index name."""

    V1 = "v1"


class LogDataType:
    """Values of LOG_USED."""

    TB = "tensorboard"
    CSV = "csv"
    TXT = "log"
    STDOUT = "stdout"


class LoadTesterMode:
    """Modes of loading an earlier run."""

    FORK_TO_NEW = "fork"


class PLATFORM_TYPE:  # noqa: N801 - the original's name
    """Operating systems that the original distinguishes."""

    WIN = "win"
    LINUX = "linux"
    OTHER = "other"
