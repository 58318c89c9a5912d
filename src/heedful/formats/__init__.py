"""The same model in other clothes."""
