"""One experiment from configure to close: its item, its rows, its parameters, its data, its end."""
