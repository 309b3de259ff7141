"""The `flotilla` command."""
