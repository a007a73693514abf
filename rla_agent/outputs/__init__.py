"""Output files: formats, encoders, repair after a crash."""
