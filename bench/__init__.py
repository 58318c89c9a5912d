"""Side-by-side measurements against peers; ratios are taken in one run."""
