"""The only package that imports nats: connect, append, tail, snapshot, follow, streams."""
