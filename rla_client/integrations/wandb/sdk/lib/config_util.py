"""`wandb.sdk.lib.config_util`: errors of a configuration, which are never raised here."""

from rla_client.integrations.wandb.values import Error

__all__ = ["ConfigError"]


class ConfigError(Error):
    """A value of `config` that cannot be kept."""
