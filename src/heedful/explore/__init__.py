"""A model's inside as plain data, over HTTP, and as a page."""
