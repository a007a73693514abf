"""`rla top`: runs, curves, logs and machines in a terminal, live.

`source` reads the database, `braille` draws, `app` shows (textual, the extra `top`).
"""
