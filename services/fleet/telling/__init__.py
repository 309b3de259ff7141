"""The log in words: what happened, whom it concerns, and why something is as it is. Pure."""
