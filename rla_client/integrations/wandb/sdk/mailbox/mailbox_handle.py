"""`wandb.sdk.mailbox.mailbox_handle`: errors of a server, which are never raised here."""

from rla_client.integrations.wandb.values import Error

__all__ = ["HandleAbandonedError", "ServerResponseError"]


class HandleAbandonedError(Error):
    """Nobody answers."""


class ServerResponseError(Error):
    """A server refused."""
