"""Decides what runs where: pure decisions, a loop that records them, the management API."""
