"""Files of weights: hostile, corrupt and foreign ones are refused, and nothing in them runs."""

import ast
import builtins
import os
import pickle
from collections import OrderedDict
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import dna_suite
from dna_suite.backbones.files import find_checkpoint, foreign_value, read_file
from dna_suite.backbones.weights import read_weights
from dna_suite.errors import DnaError, UnknownName


class Hostile:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


class Calling:
    """Calls any function with any text when it is unpickled."""

    def __init__(self, function, text):
        self.function, self.text = function, text

    def __reduce__(self):
        return self.function, (self.text,)


class Harmless:
    pass


@pytest.mark.parametrize("suffix", [".ckpt", ".pth", ".pt", ".bin"])
@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_a_pickle_that_would_run_code_is_refused_and_does_not_run(tmp_path, suffix, zipped):
    marker, path = tmp_path / "marker", tmp_path / f"weights{suffix}"
    torch.save({"state_dict": {"w": torch.ones(2)}, "dna": Hostile(marker)}, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(DnaError, match=r"refused, it holds Python object \S*mkdir; only tensors"):
        read_file(path)
    assert not marker.exists()


@pytest.mark.parametrize("reader", [read_file, read_weights])
@pytest.mark.parametrize("suffix", [".ckpt", ".pth", ".pt", ".bin", ".pyth", ".safetensors"])
@pytest.mark.parametrize("function", [os.system, builtins.eval, builtins.exec, builtins.__import__, Harmless])
def test_no_file_calls_evaluates_or_imports(tmp_path, reader, suffix, function):
    marker, path = tmp_path / "marker", tmp_path / f"weights{suffix}"
    texts = {
        os.system: f"touch {marker}",
        builtins.eval: f"open({str(marker)!r}, 'w')",
        builtins.exec: f"open({str(marker)!r}, 'w')",
        builtins.__import__: "antigravity",
    }
    content = Calling(function, texts[function]) if function in texts else Harmless()
    torch.save({"model": {"w": torch.ones(2)}, "args": content}, path)
    with pytest.raises(DnaError, match=r"weights\.\w+: (refused, it holds Python object|torn, corrupt or no file of weights)"):
        reader(path)
    assert not marker.exists()
    assert "antigravity" not in __import__("sys").modules


def test_a_bare_pickle_is_refused_and_does_not_run(tmp_path):
    marker, path = tmp_path / "marker", tmp_path / "weights.pth"
    path.write_bytes(pickle.dumps(Hostile(marker), protocol=2))
    with pytest.raises(DnaError, match=r"weights\.pth"):
        read_file(path)
    assert not marker.exists()


def test_the_environment_cannot_switch_the_safe_loader_off(tmp_path, monkeypatch):
    marker, path = tmp_path / "marker", tmp_path / "weights.pth"
    torch.save(Hostile(marker), path)
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    with pytest.raises(DnaError, match="refused"):
        read_file(path)
    assert not marker.exists()


def test_a_class_that_another_library_calls_safe_is_refused_with_its_path(tmp_path):
    path = tmp_path / "weights.pth"
    torch.save({"model": [torch.ones(1), {"x": Harmless()}]}, path)
    with torch.serialization.safe_globals([Harmless]), pytest.raises(DnaError, match=r"\['model'\]\[1\]\['x'\] is a .*Harmless"):
        read_file(path)


def test_a_flipped_bit_is_refused(tmp_path):
    path = tmp_path / "weights.ckpt"
    torch.save({"w": torch.zeros(4096)}, path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert torch.load(path, weights_only=True)["w"].numel() == 4096
    with pytest.raises(DnaError, match=r"weights\.ckpt is corrupt: the checksum of .* differs"):
        read_file(path)


@pytest.mark.parametrize("suffix", [".ckpt", ".safetensors"])
def test_a_cut_file_is_refused(tmp_path, suffix):
    path = tmp_path / f"weights{suffix}"
    state = {"w": torch.zeros(4096)}
    save_file(state, path) if suffix == ".safetensors" else torch.save(state, path)
    content = path.read_bytes()
    for length in (0, 10, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(DnaError, match=rf"weights\{suffix}: "):
            read_file(path)


@pytest.mark.parametrize("name", ["weights.ckpt", "weights.pth", "weights.pt", "weights.bin", "weights.safetensors"])
def test_tensors_and_plain_values_are_read(tmp_path, name):
    path, w = tmp_path / name, torch.arange(6.0).reshape(2, 3)
    if path.suffix == ".safetensors":
        save_file({"w": w}, path)
        assert torch.equal(read_file(path)["w"], w)
        return
    content = {"w": OrderedDict(a=w, b=torch.nn.Parameter(w)), "n": [1, 2.5, True, None, "x", (1, 2), {3}], 4: {"w": w}}
    for zipped in (True, False):
        torch.save(content, path, _use_new_zipfile_serialization=zipped)
        read = read_file(path)
        assert torch.equal(read["w"]["a"], w)
        assert read["n"] == content["n"]
        assert torch.equal(read[4]["w"], w)


def test_other_files_are_named(tmp_path):
    with pytest.raises(DnaError, match=r"gone\.pth: no such file"):
        read_file(tmp_path / "gone.pth")
    (tmp_path / "weights.npz").touch()
    with pytest.raises(DnaError, match=r"weights are read from \.bin, \.ckpt"):
        read_file(tmp_path / "weights.npz")


def test_a_container_that_holds_itself_is_walked_once():
    content: list = [1.0]
    content.append(content)
    assert foreign_value(content) is None
    found = foreign_value([1, [Path("a")]])
    assert found is not None
    assert found.startswith("[1][0] is a pathlib")


def test_a_run_folder_means_its_best_then_its_newest_checkpoint(tmp_path):
    with pytest.raises(DnaError, match="no such file or run folder"):
        find_checkpoint(tmp_path / "none")
    with pytest.raises(DnaError, match=r"no run folder: checkpoints/best\.ckpt"):
        find_checkpoint(tmp_path)
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    for name in ("step00000009.ckpt", "step00000010.ckpt", "step00000002.ckpt", "step00000011.ckpt.tmp"):
        (folder / name).touch()
    assert find_checkpoint(tmp_path) == folder / "step00000010.ckpt"
    (folder / "best.ckpt").touch()
    assert find_checkpoint(tmp_path) == folder / "best.ckpt"
    assert find_checkpoint(tmp_path, "last") == folder / "step00000010.ckpt"
    assert find_checkpoint(tmp_path, "step00000002") == folder / "step00000002.ckpt"
    assert find_checkpoint(folder / "best.ckpt") == folder / "best.ckpt"
    with pytest.raises(UnknownName, match="unknown checkpoint 'step00000003'"):
        find_checkpoint(tmp_path, "step00000003")


def test_a_folder_of_timm_means_its_weights(tmp_path):
    save_file({"w": torch.ones(1)}, tmp_path / "model.safetensors")
    assert find_checkpoint(tmp_path) == tmp_path / "model.safetensors"


@cache
def calls() -> list[tuple[str, str, ast.Call]]:
    """Place, dotted name and node of every call in the package."""
    package = Path(dna_suite.__file__).parent
    return [
        (f"{path.relative_to(package)}:{node.lineno}", ast.unparse(node.func), node)
        for path in sorted(package.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    ]


def test_the_package_unpickles_nothing_and_evaluates_nothing():
    loads = [(place, node) for place, name, node in calls() if name == "torch.load"]
    assert loads
    for place, node in loads:
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        assert given.get("weights_only") == "True", place
    banned = {"eval", "exec", "compile", "pickle.load", "pickle.loads", "torch.jit.load", "torch.hub.load", "torch.package"}
    banned |= {"marshal.load", "marshal.loads", "shelve.open", "joblib.load", "yaml.load", "yaml.unsafe_load", "yaml.full_load"}
    assert [place for place, name, _ in calls() if name in banned] == []
    pickled = [
        place
        for place, _, node in calls()
        for word in node.keywords
        if word.arg == "allow_pickle" and ast.unparse(word.value) != "False"
    ]
    assert pickled == []


def test_one_place_lets_options_of_other_programs_through():
    assert [place.split(":")[0] for place, name, _ in calls() if name.endswith("safe_globals")] == ["backbones/files.py"]
    assert [place.split(":")[0] for place, _, node in calls() for word in node.keywords if word.arg == "namespaces"] == [
        "backbones/weights.py"
    ]
