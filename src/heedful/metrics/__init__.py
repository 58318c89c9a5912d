"""How good predictions are, as plain floats (shares of 1, never percent). Knows nothing of torch or models."""
