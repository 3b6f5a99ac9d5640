"""Sources of rows: store directories, replicas, running clusters."""
