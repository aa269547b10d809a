"""What may differ between weights and a model: streams, the head, and what the user allows by name."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from dna_suite.attention.multihead import MultiHeadAttention
from dna_suite.attention.warm_start import Change
from dna_suite.backbones.load_report import any_layer, counted
from dna_suite.catalogue import OPERATORS, PATTERNS
from dna_suite.errors import DnaError, UnknownName
from dna_suite.spec import AttentionSpec

HEADS = ("head", "head_dist", "head.fc")
LISTED = 6


def attention_layers(model: nn.Module) -> list[str]:
    """Prefixes of the attention layers' tensors, each with its dot."""
    return [f"{path}." for path, module in model.named_modules() if isinstance(module, MultiHeadAttention)]


def other_options(weights: AttentionSpec, model: AttentionSpec, complete: bool) -> dict[str, tuple[Any, Any]]:
    """Options of the same attention that differ: name -> value of the weights, value of the model.

    Args:
        weights: the attention of the weights.
        model: the attention of the model.
        complete: an option that the weights do not name has its default; else nothing is known of it.
    """
    if (weights.name, weights.pattern) != (model.name, model.pattern) or weights.name not in OPERATORS:
        return {}
    defaults = {**OPERATORS[model.name].options, **(PATTERNS[model.pattern].options if model.pattern in PATTERNS else {})}
    theirs, ours = {**(defaults if complete else {}), **weights.options}, {**defaults, **model.options}
    return {name: (value, ours[name]) for name, value in theirs.items() if name in ours and value != ours[name]}


def name_attentions(weights: AttentionSpec, model: AttentionSpec, options: Mapping[str, tuple[Any, Any]]) -> tuple[str, str]:
    """Labels of both, with what differs where the labels are equal: layers, and options from `other_options`."""
    old, new = weights.label, model.label
    differ = [(f"{name}={_yaml(theirs)}", f"{name}={_yaml(ours)}") for name, (theirs, ours) in options.items()]
    if weights.layers != model.layers:
        differ.insert(0, (f"layers={weights.layers}", f"layers={model.layers}"))
    if old == new and differ:
        return (f"{old} ({', '.join(pair[0] for pair in differ)})", f"{new} ({', '.join(pair[1] for pair in differ)})")
    return old, new


def drop_streams(
    model: nn.Module,
    wanted: Mapping[str, Tensor],
    state: dict[str, Tensor],
    drop: Collection[str],
    told: str,
    options: Mapping[str, tuple[Any, Any]],
) -> list[Change]:
    """Takes what the model's attention cannot hold out of the state; alpha goes with its branch.

    Args:
        model: from `build_image_model`.
        wanted: the model's tensors.
        state: the weights, by the model's names.
        drop: what may be lost, of "q_neg", "v_neg", "alpha" and "lambda".
        told: file and both attentions, for messages.
        options: options of the attention that differ.

    Raises:
        DnaError: something is lost that `drop` does not name.
    """
    changes, lost = [], set()
    for prefix in attention_layers(model):
        extra = [name for name in state if name.startswith(prefix) and name not in wanted]
        streams = {name.removeprefix(prefix).split(".")[0] for name in extra} & {"q_neg", "v_neg"}
        owned = [name for name in extra if name.removeprefix(prefix).split(".")[0] in {*streams, "operator"}]
        # Differential attention's norm goes with its lambda.
        lost |= streams or {"alpha" if name.endswith(".alpha") else "lambda" for name in owned}
        for name in owned:
            del state[name]
            changes.append(Change(name, "dropped", "the model's attention has none"))
    refused = sorted(lost - set(drop))
    if refused:
        keep = "".join(f"; to keep it: --model.attention.options.{name}={_yaml(old)}" for name, (old, _) in options.items())
        raise DnaError(
            f"{told} loses {', '.join(refused)}; to accept that: {' '.join(f'--init_drop {name}' for name in refused)}{keep}"
        )
    return changes


def keep_head(wanted: Mapping[str, Tensor], state: dict[str, Tensor]) -> list[Change]:
    """Keeps the model's own head where the weights have none or one of another class count."""
    changes = []
    for head in HEADS:
        weight, names = f"{head}.weight", [name for name in (f"{head}.weight", f"{head}.bias") if name in wanted]
        if weight not in wanted or (weight in state and len(state[weight]) == len(wanted[weight])):
            continue
        if weight in state and state[weight].shape[1:] != wanted[weight].shape[1:]:
            continue
        there = f"{len(state[weight])} classes" if weight in state else "none"
        for name in names:
            state[name] = wanted[name]
            changes.append(Change(name, "re-initialised", f"{there} in the weights, {len(wanted[weight])} classes here"))
    return changes


def settle_allowed(wanted: Mapping[str, Tensor], state: dict[str, Tensor], allow: Sequence[str]) -> list[Change]:
    """Lets what is allowed by name differ: the model keeps its own tensor, one that it has no place for is left out.

    Args:
        wanted: the model's tensors.
        state: the weights, by the model's names; changed in place.
        allow: names of tensors or of modules, a star in the place of a layer's number where all layers are meant.

    Raises:
        UnknownName: neither the model nor the weights have a tensor of that name.
    """
    known = {*wanted, *state}
    for name in allow:
        if not any(_matches(tensor, name) for tensor in known):
            raise UnknownName("tensor to allow", name, {any_layer(tensor) for tensor in known}, "--init_allow")
    changes = []
    for name in [tensor for tensor in known if any(_matches(tensor, allowed) for allowed in allow)]:
        if name not in wanted:
            del state[name]
            changes.append(Change(name, "dropped", "the model has none, allowed by name"))
        elif name not in state or state[name].shape != wanted[name].shape:
            there = list(state[name].shape) if name in state else "none"
            changes.append(
                Change(name, "re-initialised", f"{there} in the weights, {list(wanted[name].shape)} here, allowed by name")
            )
            state[name] = wanted[name]
    return sorted(changes, key=lambda change: change.tensor)


def check_match(wanted: Mapping[str, Tensor], state: Mapping[str, Tensor], source: Path) -> None:
    """Refuses weights that are not the model's, name by name and shape by shape.

    Raises:
        DnaError: with what is missing, left over or of another shape, and how to accept it.
    """
    shapes = {name: t for name, t in wanted.items() if name in state and state[name].shape != t.shape}
    told = {
        "missing": [name for name in wanted if name not in state],
        "unexpected": [name for name in state if name not in wanted],
        "of another shape": [f"{name} {list(state[name].shape)} for {list(tensor.shape)}" for name, tensor in shapes.items()],
    }
    faults = [f"{kind}: {_shortened(names)}" for kind, names in told.items() if names]
    if faults:
        flags = list(dict.fromkeys(any_layer(name) for name in (*told["missing"], *told["unexpected"], *shapes)))
        accept = " ".join(f"--init_allow {flag}" for flag in flags) if len(flags) <= LISTED else "--init_allow NAME, each"
        raise DnaError(f"{source}: these weights do not fit the model; {'; '.join(faults)}; to accept that: {accept}")


def _matches(tensor: str, allowed: str) -> bool:
    return any(name == allowed or name.startswith(f"{allowed}.") for name in (tensor, any_layer(tensor)))


def _shortened(names: Sequence[str]) -> str:
    groups = counted(names).split(", ") if "[" not in names[0] else list(names)
    return ", ".join(groups[: 2 * LISTED]) + (f" and {len(groups) - 2 * LISTED} more" if len(groups) > 2 * LISTED else "")


def _yaml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
