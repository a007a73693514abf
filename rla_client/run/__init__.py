"""One experiment from configure to close, and back to an earlier one: item, rows, parameters, data, end."""
