"""Image classification: one label per picture."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dna_suite.backbones.images import build_image_model
from dna_suite.catalogue import BACKBONES
from dna_suite.data.base import Data
from dna_suite.data.erasing import erase
from dna_suite.data.images import ImageData
from dna_suite.data.mixing import mix, smooth_one_hot
from dna_suite.data.position import generator_of
from dna_suite.errors import DnaError
from dna_suite.metrics.classification import ClassificationScores
from dna_suite.metrics.confusion import ConfusionMatrix, mean_class_accuracy
from dna_suite.spec import AttentionSpec, OptimSpec, ScheduleSpec
from dna_suite.tasks.base import Task


class ImageClassification(Task):
    """Image classification with a vision transformer.

    Args:
        backbone: a key of `catalogue.BACKBONES`.
        size: paper, or tiny: the same classes, with two or three narrow blocks.
        attention: which attention stands in which layers.
        optim: optimiser.
        schedule: learning rate over the run.
        patch: side of a patch, pixels; None is the backbone's.
        dim: width of a token, in Swin's first stage; None is the backbone's.
        depth: number of blocks; None is the backbone's; Swin has stages instead.
        heads: attention heads, in Swin's first stage; None is the backbone's.
        drop_path: stochastic depth of the last block.
        drop_path_shape: stochastic depth rises in a straight line from 0 in the first block, or is the same in all.
        class_token_position: the position table has a row for the class token, as timm's has.
        label_smoothing: part of the target that is spread over all classes.
        mixup: alpha of mixup's beta distribution; 0 is off.
        cutmix: alpha of cutmix's beta distribution; 0 is off.
        mixup_switch: chance of cutmix where both are on.
        channels_last: keep pictures in channels-last memory order.
        compile: compile the network's forward.
        ema: decay of a moving average of the weights, which is then validated, tested and exported; None is off.
        ema_warmup: let the decay rise to `ema` as (1 + step) / (10 + step), for short runs.

    Raises:
        DnaError: a value is out of range.
    """

    name = "classification"
    monitor = "val/top1"
    mean: Tensor
    std: Tensor

    def __init__(
        self,
        backbone: str,
        size: str = "paper",
        attention: AttentionSpec = AttentionSpec(),  # noqa: B008 - frozen
        optim: OptimSpec = OptimSpec(),  # noqa: B008
        schedule: ScheduleSpec = ScheduleSpec(),  # noqa: B008
        patch: int | None = None,
        dim: int | None = None,
        depth: int | None = None,
        heads: int | None = None,
        drop_path: float = 0.0,
        drop_path_shape: Literal["rising", "constant"] = "rising",
        class_token_position: bool = True,
        label_smoothing: float = 0.0,
        mixup: float = 0.0,
        cutmix: float = 0.0,
        mixup_switch: float = 0.5,
        channels_last: bool = False,
        compile: bool = False,
        ema: float | None = None,
        ema_warmup: bool = False,
    ) -> None:
        super().__init__(attention, optim, schedule, compile, channels_last, ema, ema_warmup)
        for key, value in (("drop_path", drop_path), ("label_smoothing", label_smoothing), ("mixup_switch", mixup_switch)):
            if not 0 <= value <= 1:
                raise DnaError(f"model.{key} {value}: from 0 to 1")
        self.backbone = backbone
        self.size = size
        self.patch, self.dim, self.depth, self.heads = patch, dim, depth, heads
        self.drop_path, self.drop_path_shape = drop_path, drop_path_shape
        self.class_token_position = class_token_position
        self.label_smoothing = label_smoothing
        self.mixup, self.cutmix, self.mixup_switch = mixup, cutmix, mixup_switch
        self.image_size = 0
        self.transform: dict[str, Any] = {}
        self.erase_probability = 0.0
        self.confusions: Tensor | None = None
        self.register_buffer("mean", torch.zeros(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.ones(3, 1, 1), persistent=False)

    def setup(self, stage: str) -> None:
        """Take over what the data set decides; a test counts which class is taken for which."""
        super().setup(stage)
        if stage == "test":
            self.confusion_matrix = ConfusionMatrix(len(self.classes))

    def adopt(self, data: Data) -> None:
        """Classes, picture size and normalisation come from the data set."""
        assert isinstance(data, ImageData)
        self.classes = self.classes or list(data.classes)
        self.image_size = data.size
        self.transform = data.transform()
        self.erase_probability = data.erase
        self.mean.copy_(torch.tensor(data.mean).view(3, 1, 1))
        self.std.copy_(torch.tensor(data.std).view(3, 1, 1))
        self.val_scores = ClassificationScores(len(self.classes))
        self.test_scores = ClassificationScores(len(self.classes))

    def build(self) -> nn.Module:
        """The vision transformer with the run's attention."""
        return build_image_model(
            self.backbone,
            size=self.size,
            attention=self.attention,
            num_classes=len(self.classes),
            image_size=self.image_size,
            drop_path=self.drop_path,
            drop_path_shape=self.drop_path_shape,
            class_token_position=self.class_token_position,
            patch=self.patch,
            dim=self.dim,
            depth=self.depth,
            heads=self.heads,
        )

    def describe_network(self) -> dict[str, Any]:
        """Backbone, classes and evaluation transform."""
        given = {"patch": self.patch, "dim": self.dim, "depth": self.depth, "heads": self.heads}
        fields = dataclasses.asdict(BACKBONES[self.backbone][self.size])
        # A tuple would come back from a file of JSON as a list.
        shape = {key: list(value) if isinstance(value, tuple) else value for key, value in fields.items()}
        shape.update({key: value for key, value in given.items() if value is not None})
        backbone = {
            "name": self.backbone,
            "size": self.size,
            **shape,
            "image_size": self.image_size,
            "class_token_position": self.class_token_position,
            "drop_path": self.drop_path,
        }
        return {"backbone": backbone, "classes": list(self.classes), "transform": dict(self.transform)}

    def forward(self, images: Tensor) -> Tensor:
        """Logits [n, classes] of uint8 pictures [n, 3, h, w]."""
        assert self.net is not None
        return self.net(self.normalise(images))

    def normalise(self, images: Tensor) -> Tensor:
        """uint8 [n, 3, h, w] as float, mean taken off, divided by the deviation."""
        images = (images.to(self.mean.dtype) / 255 - self.mean) / self.std
        return images.contiguous(memory_format=torch.channels_last) if self.channels_last else images

    def loss(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """Cross-entropy with smoothed, mixed targets; mixing and erasing are functions of (seed, step, micro-batch, rank)."""
        assert self.net is not None
        images = self.normalise(batch["image"])
        place = (self.trainer.global_step, batch_idx, self.global_rank)
        if self.erase_probability > 0:
            images = erase(images, self.erase_probability, generator_of("erasing", self.seed, *place))
        targets = smooth_one_hot(batch["label"], len(self.classes), self.label_smoothing)
        if self.mixup > 0 or self.cutmix > 0:
            generator = generator_of("mixing", self.seed, *place)
            images, targets = mix(images, targets, self.mixup, self.cutmix, self.mixup_switch, generator)
        logits = self.net(images)
        if isinstance(logits, tuple):
            heads = [F.cross_entropy(head.float(), targets, reduction="none") for head in logits]
            losses = torch.stack(heads).mean(0)
        else:
            losses = F.cross_entropy(logits.float(), targets, reduction="none")
        counted = batch["counted"].to(losses.dtype)
        return (losses * counted).sum() / counted.sum().clamp(min=1)

    def validation_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Count the right answers of one validation batch."""
        self.val_scores.update(self(batch["image"]), batch["label"], batch["counted"])

    def test_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Count the right answers of one test batch, and which class was taken for which."""
        logits = self(batch["image"])
        self.test_scores.update(logits, batch["label"], batch["counted"])
        self.confusion_matrix.update(logits, batch["label"], batch["counted"])

    def on_validation_epoch_end(self) -> None:
        """Log val/top1, val/top5 and val/loss over every sample once."""
        self._log_scores("val", self.val_scores)

    def on_test_epoch_end(self) -> None:
        """Log test/top1, test/top5, test/loss and test/mean_class_accuracy over every sample once; keep the confusions."""
        self.confusions = self.confusion_matrix.compute().cpu()
        self._log_scores("test", self.test_scores, mean_class_accuracy=mean_class_accuracy(self.confusions))

    def _log_scores(self, split: str, scores: ClassificationScores, **more: float) -> None:
        values = {**scores.compute(), **more}
        samples = int(values.pop("samples"))
        self.results = {f"{split}/{key}": (value, samples) for key, value in values.items()}
        # Already global and exact: as float64, and written to the loggers by the train log, under the optimiser step.
        logged = {name: torch.tensor(value, dtype=torch.float64) for name, (value, _) in self.results.items()}
        self.log_dict(logged, sync_dist=False, logger=False)
        scores.reset()

    def predict_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """Class probabilities [n, classes], float32."""
        return self(batch["image"]).float().softmax(-1)
