"""Entries from installed packages: the README's package installs and trains; what a package may not do is told by its name."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import dna_suite
from dna_suite.attention import registry
from dna_suite.catalogue import OPERATORS, OUR_OPERATORS, Operator
from dna_suite.cli.main import main
from dna_suite.entry_points import Extended
from dna_suite.errors import DnaError

README = (Path(dna_suite.__file__).parent.parent / "README.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```\w+ ([\w.]+\.(?:py|toml))\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL))

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """A function that lays an installed package out: its entries and the text of its module."""

    def lay(package: str, entries: dict[str, str], **modules: str) -> None:
        info = tmp_path / f"{package}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
        lines = [f"{name} = {value}" for name, value in entries.items()]
        (info / "entry_points.txt").write_text("\n".join(["[dna_suite.operators]", *lines, ""]))
        for name, text in modules.items():
            (tmp_path / f"{name}.py").write_text(text)

    monkeypatch.syspath_prepend(tmp_path)
    return lay


def read() -> Extended[Operator]:
    """A table of its own, so that the one of the process stays as it is."""
    return Extended("dna_suite.operators", OUR_OPERATORS, Operator)


def test_without_packages_the_entries_are_ours() -> None:
    table = Extended("dna_suite.nothing", OUR_OPERATORS, Operator)
    assert dict(table) == OUR_OPERATORS
    assert len(table) == len(OUR_OPERATORS)
    assert "dna" in table
    assert "cosine" not in table


def test_the_readmes_package_installs_and_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    source, site = tmp_path / "source", tmp_path / "site"
    source.mkdir()
    for name, text in FILES.items():
        (source / name).write_text(text)
    offline = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", "install", *offline, "--target", str(site), str(source)], check=True)
    monkeypatch.syspath_prepend(site)
    monkeypatch.setattr(OPERATORS, "_table", None)
    request.addfinalizer(lambda: registry._classes.pop("cosine", None))
    monkeypatch.chdir(tmp_path)
    assert main(["list", "attention"]) == 0
    assert "cosine" in capsys.readouterr().out
    recipe = ["tasks/digits.yaml", "--config", "configs/smoke.yaml", "--model.attention.name=cosine"]
    assert main(["show", *recipe]) == 0
    assert "cosine" in capsys.readouterr().out
    assert main(["fit", "--config", *recipe, "--model.attention.options.sharpness=4"]) == 0
    (path,) = tmp_path.glob("runs/smoke/digits/*/seed0/result.json")
    result = json.loads(path.read_text())
    assert result["attention"]["name"] == "cosine"
    assert result["attention"]["options"]["sharpness"] == 4
    assert result["metrics"]["val/top1"]["samples"] > 0
    assert main(["check", "--operator", "cosine", "--pattern", "none", "--device", "cpu"]) == 0
    assert "cosine is another package's" in capsys.readouterr().out
    assert main(["fit", "--config", *recipe, "--model.attention.options.sharpnes=4"]) == 2
    assert "did you mean 'sharpness'" in capsys.readouterr().err


def test_an_entry_is_read_without_its_class(install: Install) -> None:
    entry = "from dna_suite.catalogue import Operator\nA = Operator(('q', 'k', 'v'), 's', 'own', implementation='not_there:A')\n"
    install("reads-light", {"light": "reads_light:A"}, reads_light=entry)
    assert list(read()) == [*OUR_OPERATORS, "light"]
    assert read()["light"].source == "own"


@pytest.mark.parametrize(
    ("name", "module", "message"),
    [
        ("dna", "A = 1", "'dna' of the installed package taker: dna_suite has that name already"),
        ("my+own", "A = 1", r"'my\+own' of the installed package taker: names are small letters"),
        ("mine", "A = 1", "taker: taker_mod:A is a int, not a Operator"),
        ("mine", "raise RuntimeError('no')", "taker: taker_mod:A cannot be read: RuntimeError: no"),
        ("mine", "", "taker: taker_mod:A cannot be read: AttributeError"),
    ],
)
def test_what_a_package_may_not_do_names_it(
    name: str, module: str, message: str, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("taker", {name: "taker_mod:A"}, taker_mod=module)
    monkeypatch.delitem(sys.modules, "taker_mod", raising=False)
    with pytest.raises(DnaError, match=message):
        list(read())


def test_two_packages_with_one_name_are_both_named(install: Install) -> None:
    entry = "from dna_suite.catalogue import Operator\nA = Operator(('q', 'k', 'v'), 's', 'own')\n"
    install("first-of-two", {"same": "first_of_two:A"}, first_of_two=entry)
    install("second-of-two", {"same": "second_of_two:A"}, second_of_two=entry)
    with pytest.raises(DnaError, match="second-of-two: first-of-two has that name already"):
        list(read())


def test_an_entry_that_loads_torch_is_refused(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    # As in a process that has not loaded torch yet: the module puts it where the check looks.
    install("heavy", {"heavy": "heavy_entry:A"}, heavy_entry="import sys\nsys.modules['torch'] = sys\nA = 1\n")
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with pytest.raises(DnaError, match="package heavy: reading heavy_entry:A imports torch"):
        list(read())
