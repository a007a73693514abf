"""Media of a run, rendered by the agent: figures, images, videos, TensorBoard events."""
