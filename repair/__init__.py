"""What is wrong in a store: finding it, offline or in use, and putting it right."""
