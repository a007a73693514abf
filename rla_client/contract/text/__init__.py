"""Text that people write or read: parsers, tables, hints."""
