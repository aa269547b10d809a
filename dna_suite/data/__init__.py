"""Data sets, and the order, pixels and mixing of their samples."""
