"""Weights in: from a run of ours or a file of others, into a model whose attention, head or picture size may differ."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from dna_suite.attention.multihead import MultiHeadAttention, split_packed
from dna_suite.attention.warm_start import Change, warm_start
from dna_suite.backbones.files import find_checkpoint, read_file
from dna_suite.backbones.images import build_image_model
from dna_suite.backbones.positions import resize_position, resize_tables
from dna_suite.catalogue import BACKBONES
from dna_suite.errors import DnaError, UnknownName
from dna_suite.spec import AttentionSpec

VERSION = 1
HEADS = ("head", "head_dist", "head.fc")
NESTS = ("model", "state_dict", "module", "model_ema")
DROPPABLE = ("q_neg", "v_neg", "alpha", "lambda")


@dataclass(frozen=True)
class Weights:
    """Tensors of a file, by the names of the model that they belong to.

    Args:
        tensors: by name; they may be mapped from the file.
        attention: the attention that they were trained with; for files of others, told from their names.
        source: the file.
        record: what a checkpoint of ours says about its run; None for files of others.
    """

    tensors: dict[str, Tensor]
    attention: AttentionSpec
    source: Path
    record: dict[str, Any] | None = None


@dataclass(frozen=True)
class LoadReport:
    """What happened to each tensor.

    Args:
        source: the file.
        attention: label of the attention in the file and in the model.
        copied: tensors that were taken as they are.
        changes: one entry for each other tensor.
    """

    source: Path
    attention: tuple[str, str]
    copied: int
    changes: tuple[Change, ...]

    @property
    def reinitialised(self) -> tuple[str, ...]:
        """Tensors that keep the model's own start because the weights have none that fit."""
        return tuple(change.tensor for change in self.changes if change.action == "re-initialised")

    def lines(self) -> list[str]:
        """The report as text: a headline, then one line for each change; the same change in many layers is one line."""
        old, new = self.attention
        fates: dict[tuple[str, str], Counter[str]] = {}
        for change in self.changes:
            fates.setdefault((change.action, _any_layer(change.detail)), Counter())[_any_layer(change.tensor)] += 1
        headline = f"{self.source}: {self.copied} tensors copied, {len(self.changes)} changed, attention {old} -> {new}"
        return [headline, *(f"{action}: {_counted(names)} ({detail})" for (action, detail), names in fates.items())]


def _any_layer(text: str) -> str:
    """The text with layer numbers as stars, as in blocks.*.attn.q.weight."""
    return re.sub(r"(?<=\.)\d+(?=\.)", "*", text)


def _counted(names: Counter[str]) -> str:
    return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in names.items())


def read_weights(path: str | Path, checkpoint: str = "best") -> Weights:
    """Reads the weights of a run folder, of one of its checkpoints, or of a timm or torch file.

    Args:
        path: a run folder (its best checkpoint, or the newest step where there is none), a `.ckpt`, a `.safetensors`, or a state
            dict that torch.save wrote, plain or under `model`, `state_dict`, `module` or `model_ema`.
        checkpoint: which of a run folder's checkpoints; see `find_checkpoint`.

    Raises:
        DnaError: the file is missing, corrupt, of another version, or holds anything but tensors and plain values.
    """
    file = find_checkpoint(Path(path), checkpoint)
    content = read_file(file)
    if not isinstance(content, dict):
        raise DnaError(f"{file}: no state dict: a {type(content).__name__}")
    if isinstance(content.get("dna"), dict) and isinstance(content.get("state_dict"), dict):
        record = content["dna"]
        if record.get("version") != VERSION:
            raise DnaError(f"{file}: checkpoint version {record.get('version')!r}; this release reads {VERSION}")
        prefix = "net."
        tensors = {name.removeprefix(prefix): t for name, t in content["state_dict"].items() if name.startswith(prefix)}
        return Weights(_check_tensors(tensors, file), read_attention(record, file), file, record)
    nested = [content[key] for key in NESTS if isinstance(content.get(key), dict)]
    tensors = _check_tensors(nested[0] if nested else content, file)
    for wrapper in ("module.", "_orig_mod."):
        if all(name.startswith(wrapper) for name in tensors):
            tensors = {name.removeprefix(wrapper): t for name, t in tensors.items()}
    return Weights(tensors, _guess_attention(tensors), file)


def read_attention(record: Mapping[str, Any], file: Path) -> AttentionSpec:
    """The attention that a checkpoint's record names.

    Raises:
        DnaError: the record has no attention, or one with other keys than ours.
    """
    plain = record.get("attention")
    if not isinstance(plain, dict) or set(plain) != {field.name for field in fields(AttentionSpec)}:
        raise DnaError(f"{file}: the record of this checkpoint names no attention: {plain!r}")
    return AttentionSpec(**plain)


def load_into(
    model: nn.Module, weights: Weights, attention: AttentionSpec, drop: Sequence[str] = (), factor: float = 1e-4
) -> LoadReport:
    """Loads weights into an image model, adapts what may differ, and says what it did; on an error the model is untouched.

    A head of another class count keeps the model's own start. A position table of another length is resized (bicubic, prefix rows
    kept). Where the attention differs, missing negative streams are made from the positive ones (see `warm_start`), and a stream
    that the model cannot hold is an error unless it is named. Every other tensor must match by name and shape.

    Args:
        model: from `build_image_model`.
        weights: from `read_weights`.
        attention: the model's attention.
        drop: streams and parameters that may be lost, of "q_neg", "v_neg", "alpha" and "lambda".
        factor: negative stream over the positive one where the weights have no negative branch.

    Raises:
        UnknownName: `drop` names something else.
        DnaError: a branch would be lost, a tensor is missing, left over or of another shape, or the position table cannot fit.
    """
    for name in drop:
        if name not in DROPPABLE:
            raise UnknownName("stream to drop", name, DROPPABLE)
    wanted, state, changes = model.state_dict(), dict(weights.tensors), []
    for prefix in _layers(model):
        split_packed(state, prefix)
    if _structure(attention) != _structure(weights.attention):
        changes += _drop_streams(model, wanted, state, weights, attention, drop)
        state, added = warm_start(model, state, factor)
        changes += added
    changes += _keep_head(wanted, state)
    changes += resize_position(model, wanted, state, weights.source)
    changes += resize_tables(model, state)
    _check_match(wanted, state, weights.source)
    model.load_state_dict(state)
    touched = {change.tensor for change in changes}
    labels = (weights.attention.label, attention.label)
    return LoadReport(weights.source, labels, sum(name not in touched for name in state), tuple(changes))


def load_model(run: str | Path, checkpoint: str = "best") -> nn.Module:
    """The model of a run, in eval mode.

    Args:
        run: a run folder, or one of its checkpoints.
        checkpoint: "best", "last" (the newest step), or a file name without suffix.

    Returns:
        [batch, channels, side, side] in, logits [batch, classes] out; `.classes` holds the class names in the logits' order,
        `.transform` the evaluation transform as plain values, `.attention` the spec and `.sites` the layers that have it.

    Raises:
        DnaError: no such run, or its checkpoint is corrupt, of another version, or not an image model's.
    """
    weights = read_weights(run, checkpoint)
    record = weights.record
    if record is None:
        raise DnaError(f"{weights.source}: no checkpoint of a run: it does not say which model its weights belong to")
    try:
        backbone, classes, transform = dict(record["backbone"]), list(record["classes"]), dict(record["transform"])
        name, size = backbone["name"], backbone["size"]
        own = {field.name for field in fields(BACKBONES[name][size])} & {"patch", "dim", "depth", "heads"}
        shape = {key: backbone[key] for key in (*own, "image_size", "drop_path", "class_token_position")}
    except (KeyError, TypeError, ValueError) as error:
        raise DnaError(f"{weights.source}: the record of this checkpoint describes no image model: {error!r}") from None
    model: Any = build_image_model(name, size=size, attention=weights.attention, num_classes=len(classes), **shape)
    load_into(model, weights, weights.attention)
    model.classes, model.transform = classes, transform
    return model.eval()


def _structure(spec: AttentionSpec) -> tuple[str, str | None, str]:
    return spec.name, spec.pattern, spec.layers


def _layers(model: nn.Module) -> list[str]:
    """Prefixes of the attention layers' tensors, each with its dot."""
    return [f"{path}." for path, module in model.named_modules() if isinstance(module, MultiHeadAttention)]


def _check_tensors(state: Mapping[str, Any], file: Path) -> dict[str, Tensor]:
    other = [name for name, value in state.items() if not isinstance(value, Tensor)]
    if other or not state:
        raise DnaError(f"{file}: no state dict: {', '.join(map(str, other[:5])) or 'nothing'} instead of tensors")
    return dict(state)


def _guess_attention(tensors: Mapping[str, Tensor]) -> AttentionSpec:
    """The attention that tensors of others were made with, by the streams that they have and their widths.

    An operator without parameters of its own and with the widths of softmax looks like softmax.
    """
    streams = {part for name in tensors for part in name.split(".")[-2:]}
    if "q_neg" in streams:
        return AttentionSpec("dna" if "v_neg" in streams else "dna-q")
    if "v_neg" in streams:
        return AttentionSpec("dna-v")
    if "alpha" in streams:
        return AttentionSpec("dna-shared")
    if "lambda_plain" in streams or "lambda_q1" in streams:
        return AttentionSpec("differential", options={"plain": True} if "lambda_plain" in streams else {})
    q, v = (next((t for name, t in tensors.items() if f".{name}".endswith(f".{stream}.weight")), None) for stream in "qv")
    if q is None or v is None or q.dim() != 2:
        return AttentionSpec()
    wide = 2 * q.shape[0] == 3 * q.shape[1] and v.shape == q.shape
    return AttentionSpec("softmax-wide" if wide else "softmax-value" if len(v) == 2 * len(q) else "softmax")


def _drop_streams(
    model: nn.Module,
    wanted: Mapping[str, Tensor],
    state: dict[str, Tensor],
    weights: Weights,
    attention: AttentionSpec,
    drop: Sequence[str],
) -> list[Change]:
    """Takes what the model's attention cannot hold out of the state; alpha goes with its branch."""
    changes, lost = [], set()
    for prefix in _layers(model):
        extra = [name for name in state if name.startswith(prefix) and name not in wanted]
        streams = {name.removeprefix(prefix).split(".")[0] for name in extra} & {"q_neg", "v_neg"}
        owned = [name for name in extra if name.removeprefix(prefix).split(".")[0] in {*streams, "operator"}]
        # Differential attention's norm goes with its lambda.
        lost |= streams or {"alpha" if name.endswith(".alpha") else "lambda" for name in owned}
        for name in owned:
            del state[name]
            changes.append(Change(name, "dropped", f"{attention.label} has none"))
    refused = sorted(lost - set(drop))
    if refused:
        raise DnaError(
            f"{weights.source}: attention {weights.attention.label} -> {attention.label} loses {', '.join(refused)}; "
            f"to accept that: {' '.join(f'--init_drop {name}' for name in refused)}"
        )
    return changes


def _keep_head(wanted: Mapping[str, Tensor], state: dict[str, Tensor]) -> list[Change]:
    """Keeps the model's own head where the weights have none or one of another class count."""
    changes = []
    for head in HEADS:
        weight, names = f"{head}.weight", [name for name in (f"{head}.weight", f"{head}.bias") if name in wanted]
        if weight not in wanted or (weight in state and len(state[weight]) == len(wanted[weight])):
            continue
        if weight in state and state[weight].shape[1:] != wanted[weight].shape[1:]:
            continue
        classes = len(state[weight]) if weight in state else 0
        for name in names:
            state[name] = wanted[name]
            changes.append(Change(name, "re-initialised", f"{classes} classes in the weights, {len(wanted[weight])} here"))
    return changes


def _check_match(wanted: Mapping[str, Tensor], state: Mapping[str, Tensor], source: Path) -> None:
    shapes = [
        f"{name} {list(state[name].shape)} for {list(tensor.shape)}"
        for name, tensor in wanted.items()
        if name in state and state[name].shape != tensor.shape
    ]
    told = {
        "missing": [name for name in wanted if name not in state],
        "unexpected": [name for name in state if name not in wanted],
        "of another shape": shapes,
    }
    faults = [f"{kind}: {', '.join(names)}" for kind, names in told.items() if names]
    if faults:
        raise DnaError(f"{source}: these weights do not fit the model; {'; '.join(faults)}")
