"""Configuration file `rla_config.yaml`."""
