"""The ideas, one a file. Knows nothing of data, tasks or training."""
