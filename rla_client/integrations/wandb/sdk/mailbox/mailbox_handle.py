"""`wandb.sdk.mailbox.mailbox_handle`: errors of wandb's server, which are never raised here."""

from rla_client.integrations.wandb.values import Error

__all__ = ["HandleAbandonedError", "ServerResponseError"]


class HandleAbandonedError(Error):
    """The server does not answer."""


class ServerResponseError(Error):
    """The server refused a request."""
