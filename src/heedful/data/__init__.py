"""From raw files to packed batches. Knows numpy and tokenizers; knows nothing of torch, models or training."""
