"""Models over HTTP. Imports need the extra `heedful[serve]`."""
