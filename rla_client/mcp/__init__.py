"""`rla mcp`: an assistant's way into a database, by the Model Context Protocol over stdin and stdout.

`tools` answers questions about runs in short texts, `answers` keeps these short, `server` speaks the protocol
with the official SDK (extra `mcp`). Nothing here changes a database.
"""
