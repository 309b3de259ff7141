"""What operators ask for, planned against one state. Pure."""
