"""The public exceptions of both packages."""

from rla_client.contract.errors import *  # noqa: F403
