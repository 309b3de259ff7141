"""The programs, and the packages they share."""
