"""What is to be, out of what is: `reconcile.decide` and all that it asks. Pure."""
