import gc
import multiprocessing
import warnings
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer

from dna_suite.data.base import limit_batches
from dna_suite.data.digits import Digits
from dna_suite.data.imagenet import ImageNet
from dna_suite.data.images import ImageData
from dna_suite.data.pictures import UnreadablePicture
from dna_suite.errors import DnaError

from .pictures import write_tree


def trainer(**changes) -> SimpleNamespace:
    settings = {"world_size": 1, "global_rank": 0, "accumulate_grad_batches": 1, "global_step": 0, "limit_train_batches": 1.0}
    return SimpleNamespace(**{**settings, **changes})


def digits(present: SimpleNamespace | None = None, **arguments) -> Digits:
    data = Digits(**{"batch": 100, **arguments})
    data.trainer = present
    return data


def imagenet(root, **arguments) -> ImageNet:
    return ImageNet(**{"root": str(root), "size": 16, "crop_ratio": 1.0, "workers": 0, "batch": 8, **arguments})


def test_order_follows_the_trainer():
    data = digits(trainer(world_size=2, global_rank=1, accumulate_grad_batches=3, limit_train_batches=5))
    batches = data.train_batches
    assert (batches.world, batches.rank, batches.accumulate, batches.batches, batches.steps_per_epoch) == (2, 1, 3, 5, 2)
    assert data.global_batch == 600
    assert data.train_batches is batches
    data.trainer = trainer()
    assert data.train_batches.world == 1


def test_position_is_what_a_resume_compares():
    data = digits(trainer(world_size=2, accumulate_grad_batches=4), subset=200)
    data.seed = 3
    assert data.position() == {"seed": 3, "global_batch": 800, "accumulate": 4, "world": 2, "length": 200}


def test_resume_starts_at_the_stored_step_before_the_trainer_knows_it():
    present = trainer(global_step=0)
    data = digits(present, batch=629)
    data.load_state_dict({"step": 3})
    assert next(iter(data.train_batches))[0][0] == 1
    assert len(list(data.train_batches)) == 1
    present.global_step = 5
    assert data.state_dict() == {"step": 5}
    assert next(iter(data.train_batches))[0][0] == 2
    # Another trainer begins at its own beginning.
    data.trainer = trainer()
    assert next(iter(data.train_batches))[0][0] == 0


@pytest.mark.parametrize(("limit", "batches"), [(1.0, 10), (0.25, 2), (3, 3), (30, 10)])
def test_limits_are_read_as_lightning_does(limit, batches):
    assert limit_batches(10, limit) == batches


def test_set_smaller_than_a_batch():
    # TRN-21: nothing is dropped.
    data = digits(trainer(), subset=10, batch=16)
    assert [batch["present"] for batch in data.train_dataloader()] == [10]
    assert data.train_batches.weight(0) == 1.0


def test_no_sample_at_all_is_an_error(tmp_path):
    root = write_tree(tmp_path)
    for picture in (root / "val").rglob("*.png"):
        picture.unlink()
    with pytest.raises(DnaError, match="no sample in val"):
        imagenet(root).val_dataloader()


def test_seed_decides_order_and_subset():
    first, again, other = digits(subset=30), digits(subset=30), digits(subset=30)
    other.seed = 1
    images = [torch.cat([batch["image"] for batch in data.train_dataloader()]) for data in (first, again, other)]
    assert torch.equal(images[0], images[1])
    assert not torch.equal(images[0], images[2])


def test_missing_folder_says_what_is_expected_and_how_to_get_a_toy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DNA_DATA", raising=False)
    with pytest.raises(DnaError) as caught:
        ImageNet().counts()
    text = str(caught.value)
    assert "data/imagenet" in text
    assert "train/CLASS/NAME.JPEG" in text
    assert "dna data toy imagenet data/imagenet" in text
    monkeypatch.setenv("DNA_DATA", str(tmp_path / "elsewhere"))
    with pytest.raises(DnaError, match=str(tmp_path / "elsewhere" / "imagenet")):
        ImageNet().counts()


def test_toy_twin_is_made_beside_the_data_and_read(tmp_path, monkeypatch):
    monkeypatch.setenv("DNA_DATA", str(tmp_path))
    data = ImageNet(toy=True, size=32)
    data.prepare_data()
    assert data.folder() == tmp_path / "toy" / "imagenet"
    assert data.counts() == {"train": 200, "val": 50, "test": 50}
    assert ImageNet(root=str(tmp_path / "big" / "in1k"), toy=True).folder() == tmp_path / "big" / "toy" / "imagenet"


def make_twin(root: str, barrier) -> None:
    barrier.wait()
    ImageNet(root=root, toy=True).folder()


def test_toy_twin_is_made_once_by_two_processes(tmp_path):
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(2)
    processes = [context.Process(target=make_twin, args=(str(tmp_path / "imagenet"), barrier)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert [path.name for path in (tmp_path / "toy").iterdir()] == ["imagenet"]
    assert len(list((tmp_path / "toy").rglob("*.JPEG"))) == 250


def broken_tree(tmp_path):
    root = write_tree(tmp_path, train="ab", val="ab")
    for path in (root / "train" / "a" / "a2.png", root / "val" / "b" / "b0.png"):
        path.write_bytes(path.read_bytes()[:40])
    return root


def first_error(loader) -> str:
    """The text of the error that a loader ends with."""
    text = "none"
    try:
        list(loader)
    except UnreadablePicture as problem:
        text = str(problem)
    # The traceback is a cycle that holds torch's iterator; two of them collected together wait 5 s for each other's workers.
    gc.collect()
    return text


@pytest.mark.parametrize("workers", [0, 1])
def test_unreadable_picture_ends_with_its_path_in_one_line(tmp_path, workers):
    data = imagenet(broken_tree(tmp_path), workers=workers)
    assert first_error(data.train_dataloader()) == f"{tmp_path}/train/a/a2.png: not a picture in a known format"
    assert first_error(data.val_dataloader()) == f"{tmp_path}/val/b/b0.png: not a picture in a known format"


def test_skipped_pictures_leave_training_and_are_not_counted_in_evaluation(tmp_path):
    data = imagenet(broken_tree(tmp_path), on_error="skip", batch=5)
    data.trainer = trainer()
    train = [data.on_before_batch_transfer(batch, 0) for batch in data.train_dataloader()]
    assert sorted(len(batch["label"]) for batch in train) == [4, 5]
    assert [data.train_batches.weight(i, batch["present"]) for i, batch in enumerate(train)] == [
        batch["present"] / 5 for batch in train
    ]
    val = [data.on_before_batch_transfer(batch, 0) for batch in data.val_dataloader()]
    assert [len(batch["label"]) for batch in val] == [5, 5]
    assert sum(batch["present"] for batch in val) == sum(int(batch["counted"].sum()) for batch in val) == 9
    assert data.skipped == [f"{tmp_path}/train/a/a2.png", f"{tmp_path}/val/b/b0.png"]
    assert all("skipped" not in batch for batch in train + val)


def test_a_batch_of_nothing_but_unreadable_pictures_has_weight_0(tmp_path):
    data = imagenet(broken_tree(tmp_path), on_error="skip", batch=1)
    data.trainer = trainer()
    weights = {
        batch["present"]: data.train_batches.weight(i, batch["present"]) for i, batch in enumerate(data.train_dataloader())
    }
    assert weights == {0: 0.0, 1: 1.0}


@pytest.mark.parametrize(
    "changes",
    [
        {"batch": 0},
        {"subset": 0},
        {"workers": -1},
        {"on_error": "ignore"},
        {"size": 0},
        {"crop_ratio": 1.5},
        {"flip": 2.0},
        {"std": (0.0, 1.0, 1.0)},
    ],
)
def test_values_that_make_no_sense(changes):
    with pytest.raises(DnaError, match=f"data.{next(iter(changes))}"):
        ImageData("x", **changes)


def test_transform_is_plain():
    assert ImageNet(crop_ratio=0.9).transform() == {
        "resize": 248,
        "crop": 224,
        "crop_ratio": 0.9,
        "interpolation": "bicubic",
        "antialias": True,
        "backend": "torch",
        "mean": [0.485, 0.456, 0.406],
        "std": [0.229, 0.224, 0.225],
    }
    assert (Digits().transform()["resize"], Digits().transform()["crop"]) == (32, 32)


class Watcher(LightningModule):
    """Notes what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))
        self.seen: list[tuple[str, list[int]]] = []

    def note(self, kind: str, batch: dict) -> torch.Tensor:
        self.seen.append((kind, batch["index"].tolist()))
        return self.scale * batch["image"].float().mean()

    def training_step(self, batch, batch_idx):
        return self.note("train", batch)

    def validation_step(self, batch, batch_idx):
        self.note("val", batch)

    def predict_step(self, batch, batch_idx):
        self.note("predict", batch)
        return batch["path"]

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def quiet_trainer(**changes) -> Trainer:
    settings = {"accelerator": "cpu", "devices": 1, "logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    return Trainer(**settings, enable_model_summary=False, use_distributed_sampler=False, num_sanity_val_steps=0, **changes)


@pytest.mark.filterwarnings("ignore:.*does not have many workers.*")
@pytest.mark.filterwarnings("ignore:.*smaller than the logging interval.*")
@pytest.mark.filterwarnings("ignore:.*LeafSpec.*")
def test_lightning_draws_what_the_order_says():
    data, watcher = Digits(subset=50, batch=12), Watcher()
    quiet_trainer(max_epochs=3, accumulate_grad_batches=2, limit_train_batches=3).fit(watcher, datamodule=data)
    order = data.order_training()
    for epoch in range(3):
        order.done = lambda epoch=epoch: epoch * 2
        drawn = [indices for kind, indices in watcher.seen if kind == "train"][3 * epoch : 3 * epoch + 3]
        assert drawn == [[key[1] for key in batch] for batch in order]
    evaluated = [indices for kind, indices in watcher.seen if kind == "val"]
    assert [index for batch in evaluated[:15] for index in batch] == list(range(180))


@pytest.mark.filterwarnings("ignore:.*does not have many workers.*")
@pytest.mark.filterwarnings("ignore:.*smaller than the logging interval.*")
@pytest.mark.filterwarnings("ignore:.*LeafSpec.*")
@pytest.mark.parametrize("workers", [0, 1])
def test_skipped_paths_reach_the_training_process(tmp_path, workers):
    data, watcher = imagenet(broken_tree(tmp_path), on_error="skip", batch=5, workers=workers), Watcher()
    quiet_trainer(max_epochs=2).fit(watcher, datamodule=data)
    assert sorted(data.skipped) == [f"{tmp_path}/train/a/a2.png", f"{tmp_path}/val/b/b0.png"]
    assert sorted(index for kind, indices in watcher.seen[:4] if kind == "train" for index in indices) == [0, 1, *range(3, 10)]


def test_lightning_predicts_every_picture_once(tmp_path):
    root = write_tree(tmp_path, train="ab", val="b")
    data = imagenet(root, eval_batch=4)
    data.predict_input = str(root)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        batches = quiet_trainer().predict(Watcher(), datamodule=data)
    assert [str(entry.message) for entry in caught if "batch sampler" in str(entry.message)] == []
    assert [len(batch) for batch in batches] == [4, 4, 4, 3]
    assert [path for batch in batches for path in batch] == sorted(str(path) for path in root.rglob("*.png"))


def test_a_limit_that_leaves_no_training_batch_is_an_error() -> None:
    data = Digits("digits", batch=16, subset=10)
    data.trainer = Trainer(limit_train_batches=0, accelerator="cpu", logger=False, enable_checkpointing=False)
    with pytest.raises(DnaError, match=r"no training batch: 10 samples, batch 16, .*limit_train_batches 0"):
        data.train_batches  # noqa: B018 - a property
