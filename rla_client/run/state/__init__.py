"""The state of a run that can be loaded: custom data, archive, resume state."""
