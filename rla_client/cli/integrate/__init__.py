"""Integration of our logger into a training script (`rla integrate`)."""
