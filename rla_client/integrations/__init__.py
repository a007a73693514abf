"""Adapters for other libraries, one module or package each.

A program that imports an adapter is about to open a run. The modules needed for that are loaded here, so that
no call of the training waits for an import.
"""

import socket  # noqa: F401

import yaml  # noqa: F401

import rla_client.checkpoint.saver
import rla_client.code.backup
import rla_client.code.environment
import rla_client.code.run_secrets
import rla_client.config.schema
import rla_client.media.job_sender
import rla_client.run.state.resume_state
import rla_client.stream.memcpy  # noqa: F401
