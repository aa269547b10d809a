"""The photographs in ImageNet-V2's layout through the robustness task, on a network with real weights."""

import pytest
from lightning.pytorch import Trainer

from dna_suite.data.robustness import RobustnessSets
from dna_suite.tasks.robustness import Robustness

pytestmark = pytest.mark.real


def test_eighteen_of_twenty_are_right_in_folders_that_are_numbers(photographs, efficientnet, tmp_path):
    for path, label in photographs:
        place = tmp_path / "imagenetv2-matched-frequency-format-val" / str(label) / path.name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(path.read_bytes())
    half = (0.5, 0.5, 0.5)
    keys = {"sets": ("v2",), "subset_ok": True, "size": 224, "crop_ratio": 0.875, "mean": half, "std": half}
    data = RobustnessSets(root=str(tmp_path), eval_batch=8, workers=0, **keys)
    task = Robustness("vit_imagenet")
    task.net = efficientnet
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    Trainer(accelerator="cpu", **quiet).test(task, data, verbose=False)
    # Softmax is over the nineteen classes of the folders: of the jeeps, which are taken for cars of other classes, none is lost.
    assert task.results["test/v2/top1"] == (1.0, 20)
    assert set(task.results) == {"test/v2/top1", "test/v2/aurra"}
    assert int(task.part_results.images.correct_all.sum()) == 18
