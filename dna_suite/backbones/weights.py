"""Weights in: from a run of ours or a file of others, into a model whose attention, head or picture size may differ."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from dna_suite.attention.multihead import split_packed
from dna_suite.attention.warm_start import Change, warm_start
from dna_suite.backbones.adaptation import (
    attention_layers,
    check_match,
    drop_streams,
    keep_head,
    name_attentions,
    other_options,
    settle_allowed,
)
from dna_suite.backbones.files import FOLDER_FILES, find_checkpoint, foreign_value, read_file, read_json, read_texts
from dna_suite.backbones.foreign import check_tensors, find_normalisation, guess_attention, unwrap_names
from dna_suite.backbones.hub import PREFIX, find_timm_weights
from dna_suite.backbones.images import build_image_model
from dna_suite.backbones.load_report import LoadReport
from dna_suite.backbones.positions import resize_position, resize_tables
from dna_suite.backbones.released import SIGNS, is_released, take_released
from dna_suite.catalogue import BACKBONES
from dna_suite.errors import DnaError, UnknownName
from dna_suite.spec import AttentionSpec

VERSION = 1
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
        normalisation: "mean" and "std", three numbers each, of the pictures that they were trained on; empty where unknown.
        classes: names of the head's rows in order; None where unknown.
        changes: tensors that are not as they stand in the file.
        left: what the file holds beside the tensors.
    """

    tensors: dict[str, Tensor]
    attention: AttentionSpec
    source: Path
    record: dict[str, Any] | None = None
    normalisation: Mapping[str, Any] = field(default_factory=dict)
    classes: list[str] | None = None
    changes: tuple[Change, ...] = ()
    left: tuple[str, ...] = ()


def read_weights(path: str | Path, checkpoint: str = "best", sign: str | None = None) -> Weights:
    """Reads the weights of a run, of a file of timm, DeiT or torch, or of a released DnA checkpoint.

    Args:
        path: a run folder (its best checkpoint, or the newest step where there is none), a `.ckpt`, a `.safetensors`, a state
            dict that torch.save wrote, plain or under `model`, `state_dict`, `module` or `model_ema`, a folder of timm's, or
            "timm/" and the name of a timm model whose weights are on this machine.
        checkpoint: which of a run folder's checkpoints; see `find_checkpoint`.
        sign: whether a released DnA file adds ("plus") or subtracts ("minus") its negative branch; None is what the released
            class of its layout does, see `take_released`.

    Raises:
        UnknownName: there is no such sign.
        DnaError: the file is missing, corrupt, of another version, or holds anything but tensors and plain values; timm has no
            such model; or a sign is given for weights that have none.
    """
    if sign is not None and sign not in SIGNS:
        raise UnknownName("sign", sign, SIGNS, "--init_sign")
    known: dict[str, Any] = {}
    if str(path).startswith(PREFIX) and not Path(path).exists():
        file, known = find_timm_weights(str(path))
    else:
        file = find_checkpoint(Path(path), checkpoint)
    content = read_file(file, namespaces=True)
    if not isinstance(content, dict):
        raise DnaError(f"{file}: no state dict: a {type(content).__name__}")
    weights = _read_ours(content, file) or _read_others(content, file, sign, known)
    if sign is not None and not any(change.detail.startswith(sign) for change in weights.changes):
        raise DnaError(f"--init_sign {sign}: {file} has no neg_scalers, so it is no released DnA file: leave --init_sign out")
    return weights


def _read_ours(content: dict[str, Any], file: Path) -> Weights | None:
    """The weights of a checkpoint of ours or of its export; None for files of others."""
    record, tensors = content.get("dna"), content.get("state_dict")
    prefix = "net."
    if text := read_texts(file).get("dna"):
        try:
            record, tensors, prefix = json.loads(text), content, ""
        except ValueError:
            raise DnaError(f"{file}: the record of this export is no JSON") from None
    if not isinstance(record, dict) or not isinstance(tensors, dict):
        return None
    if foreign := foreign_value(content):
        raise DnaError(f"{file}: refused, {foreign}; only tensors and plain values are read")
    if record.get("version") != VERSION:
        raise DnaError(f"{file}: checkpoint version {record.get('version')!r}; this release reads {VERSION}")
    own = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    transform, classes = record.get("transform"), record.get("classes")
    return Weights(
        check_tensors(own, file),
        read_attention(record, file),
        file,
        record,
        normalisation=find_normalisation(transform if isinstance(transform, dict) else {}),
        classes=list(map(str, classes)) if isinstance(classes, list) else None,
    )


def _read_others(content: dict[str, Any], file: Path, sign: str | None, known: Mapping[str, Any]) -> Weights:
    nest = next((key for key in NESTS if isinstance(content.get(key), dict)), None)
    tensors = unwrap_names(check_tensors(content if nest is None else content[nest], file), file)
    left = tuple(str(key) for key in content if key != nest) if nest else ()
    changes: tuple[Change, ...] = ()
    if is_released(tensors):
        tensors, sign = take_released(tensors, sign, str(file))
        how = f"{sign}: the negative branch is {'added' if sign == 'plus' else 'subtracted, so the sign is flipped'}"
        changes = tuple(Change(name, "adapted", how) for name in tensors if name.endswith(".operator.alpha"))
    config = read_json(file.parent / "config.json") if file.name in FOLDER_FILES else {}
    inner = config.get("pretrained_cfg")
    labels = config.get("label_names")
    return Weights(
        tensors,
        guess_attention(tensors),
        file,
        normalisation=find_normalisation(known or (inner if isinstance(inner, dict) else config)),
        classes=list(map(str, labels)) if isinstance(labels, list) else None,
        changes=changes,
        left=left,
    )


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
    model: nn.Module,
    weights: Weights,
    attention: AttentionSpec,
    drop: Sequence[str] = (),
    allow: Sequence[str] = (),
    factor: float = 1e-4,
) -> LoadReport:
    """Loads weights into an image model, adapts what may differ, and says what it did; on an error the model is untouched.

    A head of another class count keeps the model's own start. A position table of another grid, or with another number of rows
    before it, is made to fit (see `resize_position`). Where the attention differs, missing negative streams are made from the
    positive ones (see `warm_start`), and a stream that the model cannot hold is an error unless it is named. Every other tensor
    must match by name and shape, or be allowed by name.

    Args:
        model: from `build_image_model`.
        weights: from `read_weights`.
        attention: the model's attention.
        drop: streams and parameters that may be lost, of "q_neg", "v_neg", "alpha" and "lambda".
        allow: tensors or modules that may be missing, left over or of another shape; a star stands for any layer's number.
        factor: negative stream over the positive one where the weights have no negative branch.

    Raises:
        UnknownName: `drop` or `allow` names something else.
        DnaError: a branch would be lost, a tensor is missing, left over or of another shape, or the position table cannot fit.
    """
    for name in drop:
        if name not in DROPPABLE:
            raise UnknownName("stream to drop", name, DROPPABLE, "--init_drop")
    wanted, state, changes = model.state_dict(), dict(weights.tensors), list(weights.changes)
    for prefix in attention_layers(model):
        split_packed(state, prefix)
    options = other_options(weights.attention, attention, complete=weights.record is not None)
    labels = name_attentions(weights.attention, attention, options)
    if _structure(attention) != _structure(weights.attention) or (options and _own_names(wanted) != _own_names(state)):
        told = f"{weights.source}: attention {labels[0]} -> {labels[1]}"
        dropped = drop_streams(model, wanted, state, drop, told, options)
        lost = {change.tensor for change in dropped}
        changes = [*(change for change in changes if change.tensor not in lost), *dropped]
        state, added = warm_start(model, state, factor)
        changes += added
    changes += keep_head(wanted, state)
    changes += resize_position(model, wanted, state, weights.source)
    changes += resize_tables(model, state)
    changes += settle_allowed(wanted, state, allow)
    check_match(wanted, state, weights.source)
    model.load_state_dict(state)
    touched = {change.tensor for change in changes}
    copied = tuple(name for name in wanted if name not in touched)
    return LoadReport(weights.source, labels, copied, tuple(changes), weights.left)


def load_model(run: str | Path, checkpoint: str = "best") -> nn.Module:
    """The model of a run, in eval mode.

    Args:
        run: a run folder, one of its checkpoints, or a `.safetensors` file that `dna export` wrote.
        checkpoint: "best", "last" (the newest step), or a file name without suffix.

    Returns:
        [batch, channels, side, side] in, logits [batch, classes] out; `.classes` holds the class names in the logits' order,
        `.transform` the evaluation transform as plain values, `.attention` the spec and `.sites` the layers that have it.

    Raises:
        DnaError: no such run, or its checkpoint is corrupt, of another version, or not an image model's.
    """
    return build_recorded(read_weights(run, checkpoint))


def build_recorded(weights: Weights) -> nn.Module:
    """The model that the record of some weights describes, with the weights in it, as `load_model` gives it.

    Raises:
        DnaError: there is no record, or it describes no image model.
    """
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


def _own_names(tensors: Mapping[str, Tensor]) -> set[str]:
    """Names of the operators' own parameters."""
    return {name for name in tensors if ".operator." in name}
