"""Recording of a training's console output."""
