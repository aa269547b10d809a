import shutil
import tarfile
from pathlib import Path

import pytest
import torch

from dna_suite.data.imagenet import ImageNet
from dna_suite.data.shard_writing import write_shards
from dna_suite.data.tar_members import list_members
from dna_suite.data.toy import make_twin
from dna_suite.errors import DnaError

from .pictures import write_tree
from .test_imagenet import flatten, imagenet

SETTINGS = {"size": 16, "batch": 32, "augment": "rand-m9-mstd0.5-inc1", "repeats": 3}


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    return make_twin("imagenet", tmp_path_factory.mktemp("toy") / "imagenet")


@pytest.fixture(scope="module")
def shards(files, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("shards") / "new" / "imagenet"
    counts = write_shards(ImageNet(root=str(files)), folder, 60_000)
    assert {name: pictures for name, (_, pictures) in counts.items()} == {"train": 200, "val": 50}
    assert counts["train"][0] == len(list((folder / "train").glob("*.tar"))) > 4
    return folder


def test_a_shard_has_its_size(shards):
    paths = sorted((shards / "train").glob("*.tar"))
    assert [path.name for path in paths] == [f"train-{number:06d}.tar" for number in range(len(paths))]
    assert all(path.stat().st_size <= 60_000 + 10_240 for path in paths)  # tar fills up to a record of 20 blocks
    assert all(len(list_members(path)) > 10 for path in paths[:-1])


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_has_the_same_batches(files, shards, workers):
    one, other = (ImageNet(root=str(root), workers=workers, **SETTINGS) for root in (files, shards))
    assert one.classes == other.classes
    assert one.position() == other.position()
    for name in ("train_dataloader", "val_dataloader"):
        for ours, theirs in zip(getattr(one, name)(), getattr(other, name)(), strict=True):
            assert ours.keys() == theirs.keys()
            assert all(torch.equal(ours[key], theirs[key]) for key in ("image", "label", "index", "counted"))


def test_a_resumed_epoch_goes_on_with_the_same_batches(files, shards):
    seen = []
    for root in (files, shards):
        data = ImageNet(root=str(root), workers=0, **SETTINGS)
        data.load_state_dict({"step": 9})  # seven batches an epoch: the third of the second
        seen.append([batch["image"] for batch in data.train_dataloader()])
    assert len(seen[0]) == 5
    assert all(torch.equal(*pair) for pair in zip(*seen, strict=True))


def test_a_flat_val_folder_becomes_classes(tmp_path):
    root = write_tree(tmp_path / "files")
    flatten(root, header=False)
    write_shards(imagenet(root), tmp_path / "shards", 10**6)
    for one, other in zip(imagenet(root).val_dataloader(), imagenet(tmp_path / "shards").val_dataloader(), strict=True):
        assert torch.equal(one["image"], other["image"])
        assert torch.equal(one["label"], other["label"])


def test_flat_members_with_a_label_file(tmp_path):
    root = write_tree(tmp_path)
    whole = [batch["label"] for batch in imagenet(root).val_dataloader()]
    flatten(root, header=False)
    with tarfile.open(root / "val.tar", "w") as archive:
        for path in (root / "val").iterdir():
            archive.add(path, path.name)
    shutil.rmtree(root / "val")
    with pytest.raises(DnaError, match=r"no folder val, but val.tar: unpack"):
        imagenet(root).samples("val")
    (root / "val").mkdir()
    (root / "val.tar").rename(root / "val" / "val.tar")
    assert all(torch.equal(*pair) for pair in zip(whole, (b["label"] for b in imagenet(root).val_dataloader()), strict=True))
    (root / "val_labels.csv").unlink()
    with pytest.raises(DnaError, match=r"val: 20 pictures, but no class folders"):
        imagenet(root).samples("val")


def test_an_archive_in_place_of_the_folder(tmp_path):
    (tmp_path / "ILSVRC2012_img_train.tar").write_bytes(b"")
    with pytest.raises(DnaError, match=r"data\.root: .*ILSVRC2012_img_train.tar is a file; give a folder") as caught:
        imagenet(tmp_path / "ILSVRC2012_img_train.tar").counts()
    assert "\n" not in str(caught.value)
    with pytest.raises(DnaError, match=r"no folder train, but ILSVRC2012_img_train.tar: unpack the archive of train") as caught:
        imagenet(tmp_path).counts()
    assert "\n" not in str(caught.value)


def test_a_cut_shard_is_one_line(shards, tmp_path):
    root = shutil.copytree(shards, tmp_path / "copy")
    path = root / "train" / "train-000003.tar"
    path.write_bytes(path.read_bytes()[:30_000])
    with pytest.raises(DnaError, match=rf"^{path}: cut short: '.*' ends at byte \d+, the file has 30000$"):
        ImageNet(root=str(root)).samples("train")


def test_the_target_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    root = write_tree(tmp_path / "files")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    with pytest.raises(DnaError, match="full exists and is not empty"):
        write_shards(imagenet(root), tmp_path / "full", 10**6)
    (root / "val" / "d" / "d4.png").write_bytes(b"")
    with pytest.raises(DnaError, match=r"d4\.png: empty file"):
        write_shards(imagenet(root), tmp_path / "new", 10**6)

    def full(*given):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dna_suite.data.shard_writing.write_split", full)
    with pytest.raises(DnaError, match=r"new: No space left on device; nothing was written"):
        write_shards(imagenet(root), tmp_path / "new", 10**6)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["files", "full"]


def pictures_of(data: ImageNet, context: str | None = None) -> list[list[torch.Tensor]]:
    """Two epochs from one loader, whose workers stay."""
    loader = data.train_dataloader()
    loader.multiprocessing_context = context
    epochs = []
    for step in (0, 7):
        data.load_state_dict({"step": step})
        epochs.append([batch["image"] for batch in loader])
    return epochs


@pytest.mark.parametrize(("workers", "context"), [pytest.param(1, "spawn", marks=pytest.mark.slow), (2, "fork")])
def test_augmentations_differ_between_epochs_and_copies_and_not_between_workers(shards, workers, context):
    # TRN-20, with workers that persist, and with workers that inherit nothing.
    alone, shared = (ImageNet(root=str(shards), workers=number, **SETTINGS) for number in (0, workers))
    first, second = pictures_of(alone)
    for epoch, other in zip((first, second), pictures_of(shared, context), strict=True):
        assert all(torch.equal(*pair) for pair in zip(epoch, other, strict=True))
    pictures = torch.cat([*first, *second]).flatten(1)
    assert len(pictures) == 400
    assert len(pictures.unique(dim=0)) == 400
