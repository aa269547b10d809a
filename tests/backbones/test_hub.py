"""Weights of timm's models by name: what is on the machine is found, what is not is told with the command that fetches it."""

import socket

import huggingface_hub
import pytest
import torch
from safetensors.torch import save_file

from dna_suite.backbones.hub import find_timm_weights
from dna_suite.backbones.weights import read_weights
from dna_suite.errors import DnaError

NAME = "timm/vit_tiny_patch16_224.augreg_in21k_ft_in1k"


@pytest.fixture(autouse=True)
def caches(tmp_path, monkeypatch):
    """Empty caches, and a network that must not be used."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "torch"))

    def refused(*_args, **_kwargs):
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)
    return tmp_path


def fetch(folder, name, file="model.safetensors"):
    """What a download of huggingface_hub leaves behind."""
    repository = folder / "hub" / f"models--{name.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("abc")
    (repository / "snapshots" / "abc").mkdir(parents=True)
    save_file({"norm.weight": torch.arange(3.0)}, repository / "snapshots" / "abc" / file)
    return repository / "snapshots" / "abc" / file


@pytest.mark.parametrize("given", [NAME, "timm/vit_tiny_patch16_224"])
def test_a_fetched_model_is_found_with_its_normalisation(caches, given):
    file = fetch(caches, NAME)
    weights = read_weights(given)
    assert weights.source == file
    assert weights.tensors["norm.weight"].tolist() == [0, 1, 2]
    # Not ImageNet's: half of timm's ViTs were trained with 0.5.
    assert weights.normalisation == {"mean": [0.5] * 3, "std": [0.5] * 3}


def test_what_torch_hub_fetched_is_found(caches):
    folder = caches / "torch" / "checkpoints"
    folder.mkdir(parents=True)
    torch.save({"model": {"norm.weight": torch.ones(1)}}, folder / "deit_tiny_distilled_patch16_224-b40b3cf7.pth")
    weights = read_weights("timm/deit_tiny_distilled_patch16_224.fb_in1k")
    assert weights.normalisation["mean"] == [0.485, 0.456, 0.406]


def test_what_is_not_there_is_told_with_the_command_that_fetches_it():
    with pytest.raises(DnaError, match=rf"^{NAME}: its weights are not on this machine, and nothing is downloaded") as caught:
        find_timm_weights(NAME)
    assert str(caught.value).endswith(f": hf download {NAME} model.safetensors")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("timm/vit_bse_patch16_224", "timm/vit_base_patch16_224"),
        ("timm/vit_tiny_patch16_225.augreg_in21k_ft_in1k", "timm/vit_tiny_patch16_224.augreg_in21k_ft_in1k"),
        ("timm/vit_tiny_patch16_224.augreg_in21k_ft_in1", "timm/vit_tiny_patch16_224.augreg_in21k_ft_in1k"),
    ],
)
def test_a_wrong_name_is_told_with_the_nearest(name, near):
    with pytest.raises(DnaError, match=rf"^{name}: timm has no weights of that name; did you mean {near}\?$"):
        find_timm_weights(name)


def test_a_name_like_no_other_does_not_list_them_all():
    with pytest.raises(DnaError, match=r"no weights of that name; timm\.list_pretrained\(\) lists them$"):
        find_timm_weights("timm/@@@")


def test_a_folder_of_that_name_comes_first(caches, monkeypatch):
    monkeypatch.chdir(caches)
    (caches / "timm" / "mine").mkdir(parents=True)
    save_file({"w": torch.ones(1)}, caches / "timm" / "mine" / "model.safetensors")
    assert read_weights("timm/mine").tensors.keys() == {"w"}
