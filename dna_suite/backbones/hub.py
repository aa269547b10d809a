"""Weights of timm's models by name, from what this machine has already; nothing is downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from huggingface_hub import try_to_load_from_cache
from timm.models import get_pretrained_cfg, list_pretrained

from dna_suite.backbones.files import FOLDER_FILES, SUFFIXES
from dna_suite.errors import DnaError, nearest

PREFIX = "timm/"


def find_timm_weights(name: str) -> tuple[Path, dict[str, Any]]:
    """The file of a timm model's weights in the caches of huggingface_hub and torch.hub, and how it normalises pictures.

    Args:
        name: "timm/" and the model's name, with or without the tag of its weights, as in
            "timm/vit_base_patch16_224.augreg_in1k".

    Returns:
        The file; {"mean": [r, g, b], "std": [r, g, b]}.

    Raises:
        DnaError: timm has no such model or no weights of that tag, or they are not on this machine; the nearest name, or the
            command that fetches them, is told.
    """
    model = name.removeprefix(PREFIX)
    try:
        config = get_pretrained_cfg(model)
    except RuntimeError:
        config = None
    if config is None:
        known = list_pretrained()
        near = nearest(model, [*{full.partition(".")[0] for full in known}, *known])
        hint = f"did you mean {PREFIX}{near}?" if near else "timm.list_pretrained() lists them"
        raise DnaError(f"{name}: timm has no weights of that name; {hint}")
    facts = {"mean": list(config.mean), "std": list(config.std)}
    repository, names = config.hf_hub_id, [config.hf_hub_filename or FOLDER_FILES[0], *FOLDER_FILES]
    for file in names if repository else ():
        found = try_to_load_from_cache(str(repository), file)
        if isinstance(found, str):
            return Path(found), facts
    fetched = Path(torch.hub.get_dir()) / "checkpoints" / str(config.url).rpartition("/")[2]
    if fetched.suffix in SUFFIXES and fetched.is_file():
        return fetched, facts
    if not repository:
        raise DnaError(f"{name}: its weights are not on this machine; fetch {config.url} and give the file: --init_from FILE")
    raise DnaError(
        f"{name}: its weights are not on this machine, and nothing is downloaded unasked; "
        f"this fetches them: hf download {repository} {names[0]}"
    )
