"""dna_suite: does this attention mechanism help, where, and at what cost?"""

__version__ = "0.1.0"
