"""The exceptions of both packages: what a program that uses them may catch."""

from rla_client.contract.errors import *  # noqa: F403
