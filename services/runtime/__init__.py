"""What every program does: logging, signals, the admin listener, files that survive a crash."""
