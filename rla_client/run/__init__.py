"""One experiment from `configure` to `close`."""
