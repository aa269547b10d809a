"""Scores that count every sample once."""
