"""Ways out of a lost log."""
