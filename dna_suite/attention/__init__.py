"""Attention operators on named streams, and the layer that feeds them."""
