"""One adapter an engine kind."""
