"""What the source reads from: store directories, replicas, running clusters."""
