"""The `dna` command."""
