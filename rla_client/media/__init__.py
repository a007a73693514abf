"""Figures, images, videos and TensorBoard events, rendered and written by the agent."""
