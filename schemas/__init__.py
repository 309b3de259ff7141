"""Every message that programs exchange, and nothing else: no IO, no decisions."""
