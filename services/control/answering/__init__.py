"""The management API: over HTTP, and commands over NATS too."""
