"""Entry point of `python -m rla_agent`, the `rla-agent` command."""

from __future__ import annotations

from rla_agent.command.app import main

if __name__ == "__main__":
    main()
