"""Samples of a language model in training: from the user's rows to records of the stream."""
