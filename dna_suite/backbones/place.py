"""Where in a model an attention layer is put, and how it takes over its host's tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from dna_suite.attention.multihead import MultiHeadAttention, split_packed
from dna_suite.attention.registry import choose_spec
from dna_suite.errors import DnaError
from dna_suite.spec import AttentionSpec


@dataclass(frozen=True)
class Place:
    """One attention layer of a model.

    Args:
        spec: the model's attention.
        layer: index of the layer.
        depth: attention layers of the model.
        prefix: tokens before those of the picture, such as a class token.
    """

    spec: AttentionSpec
    layer: int = 0
    depth: int = 1
    prefix: int = 0

    @property
    def chosen(self) -> AttentionSpec:
        """The attention of this layer: the spec's, or softmax where the spec does not choose the layer."""
        return choose_spec(self.spec, self.layer, self.depth)


def adopt(layer: MultiHeadAttention, tensors: Mapping[str, Tensor]) -> None:
    """Copies a host's tensors into the layer that takes its place, packed projections split.

    A projection that the operator makes wider than the host keeps the start values of the layer.

    Raises:
        DnaError: the host has a tensor that the layer knows nothing of.
    """
    state, own = dict(tensors), layer.state_dict()
    split_packed(state)
    if unknown := sorted(state.keys() - own.keys()):
        raise DnaError(f"cannot replace an attention layer with {', '.join(unknown)}")
    layer.load_state_dict({**own, **{name: tensor for name, tensor in state.items() if own[name].shape == tensor.shape}})
