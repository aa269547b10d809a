"""Which packages the distribution holds; everything else stands in pyproject.toml.

The recipes lie at the top of the clone, where people look for them, and travel inside the package as dna_suite/recipes.
"""

from setuptools import find_packages, setup

FOLDERS = ("tasks", "configs")

setup(
    packages=[*find_packages(include=["dna_suite", "dna_suite.*"]), *(f"dna_suite.recipes.{folder}" for folder in FOLDERS)],
    package_dir={f"dna_suite.recipes.{folder}": folder for folder in FOLDERS},
)
