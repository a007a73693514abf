"""Records of a run: rows, texts, TensorBoard events, times."""
