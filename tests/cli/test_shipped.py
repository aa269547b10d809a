"""Where recipes are found: here first, then among the shipped ones; and whether a wheel holds them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import dna_suite
from dna_suite.cli import shipped
from dna_suite.cli.shipped import find_recipe, shipped_files, shipped_root
from dna_suite.errors import DnaError

DIGITS = Path("tasks/digits.yaml")


def test_a_file_that_is_there_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_recipe(DIGITS) == (shipped_root() / DIGITS, True)
    DIGITS.parent.mkdir()
    DIGITS.write_text("task: mine\n")
    assert find_recipe("tasks/digits.yaml") == (DIGITS, False)
    assert find_recipe("./tasks/digits.yaml")[0].read_text() == "task: mine\n"


@pytest.mark.parametrize(
    ("given", "near"),
    [
        ("tasks/digit.yaml", "did you mean tasks/digits.yaml?"),
        ("digits", "did you mean tasks/digits.yaml?"),
        ("configs/smok.yaml", "did you mean configs/smoke.yaml?"),
        ("/elsewhere/tasks/digits.yaml", "did you mean tasks/digits.yaml?"),
        ("qqqq.yaml", "dna list recipes"),
    ],
)
def test_a_missing_file_names_the_nearest(given: str, near: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DnaError, match=re.escape(near)):
        find_recipe(given)


def test_a_folder_is_no_recipe(tmp_path: Path) -> None:
    with pytest.raises(DnaError, match="is a folder"):
        find_recipe(tmp_path)


def test_an_installed_copy_reads_the_recipes_inside_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages" / "dna_suite"
    (package / "recipes/tasks").mkdir(parents=True)
    (package / "recipes/tasks/digits.yaml").write_text("task: classification\n")
    # Another project's folder of the same name beside the package must not be taken for a clone.
    (package.parent / "tasks").mkdir()
    monkeypatch.setattr(shipped.dna_suite, "__file__", str(package / "__init__.py"))
    monkeypatch.chdir(tmp_path)
    assert shipped_root() == package / "recipes"
    assert find_recipe(DIGITS) == (package / "recipes" / DIGITS, True)


def test_a_wheel_works_outside_the_clone(tmp_path: Path) -> None:
    clone = Path(dna_suite.__file__).parent.parent
    source, site, elsewhere = tmp_path / "source", tmp_path / "site", tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("dna_suite", *shipped.FOLDERS):
        shutil.copytree(clone / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(clone / name, source)
    # A recipe that the clone lacks: whoever lists it reads the wheel.
    (source / "tasks/a_wheel_only.yaml").write_text("# Only here.\nbase: digits.yaml\n")
    build = "import sys, setuptools.build_meta as backend; backend.build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, str(tmp_path)], cwd=source, check=True, capture_output=True)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        wheel.extractall(site)

    def dna(*words: str) -> str:
        command = [sys.executable, "-m", "dna_suite.cli.main", *words]
        environment = {**os.environ, "PYTHONPATH": str(site)}
        return subprocess.run(command, cwd=elsewhere, env=environment, check=True, capture_output=True, text=True).stdout

    listed = [line.split()[0] for line in dna("list", "recipes").splitlines()[1:]]
    assert listed == [
        "tasks/a_wheel_only.yaml",
        *(f"{folder}/{path.name}" for folder in shipped.FOLDERS for path in shipped_files(folder)),
    ]
    assert dna("plan", "--config", "tasks/a_wheel_only.yaml").splitlines()[1:] == ["dna fit --config=tasks/a_wheel_only.yaml"]
    assert (site / "dna_suite/data/digits.npz").is_file()
