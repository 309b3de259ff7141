"""What the numbers in docs/ are measured with. Run from a clone: `.venv/bin/python bench/log.py restart`."""
