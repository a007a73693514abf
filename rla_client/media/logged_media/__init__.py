"""Classes of media that `log` takes."""
