"""Runs on each node: starts, watches, adopts and stops engines, and reports what is."""
