"""The bytes of one output file: encoders, positions, repair after a crash."""
