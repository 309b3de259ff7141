"""The log as files: export, import, and whether it is sound. Speaks to NATS itself, without control."""
