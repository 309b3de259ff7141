"""One small file an engine, mostly data."""
