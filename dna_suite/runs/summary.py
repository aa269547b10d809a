"""What is about to be trained: attention sites, parameters, multiply-adds."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from rich.console import Console
from rich.table import Table
from torch import nn

from dna_suite.backbones.cost import count_multiply_adds, count_parameters


def print_summary(net: nn.Module, description: dict[str, Any], console: Console | None = None) -> None:
    """Print a table about a network.

    Args:
        net: network with `sites`.
        description: what a checkpoint says about itself; `backbone` is read.
        console: where it is printed; None is the standard error stream.
    """
    table = Table(show_header=False)
    for name, value in summary_rows(net, description):
        table.add_row(name, value)
    (console or Console(stderr=True)).print(table)


def summary_rows(net: nn.Module, description: dict[str, Any]) -> list[tuple[str, str]]:
    """Pairs of name and text: backbone, attention sites, parameters, and multiply-adds where the picture size is known.

    Args:
        net: network with `sites`.
        description: what a checkpoint says about itself; `backbone` is read.
    """
    backbone = description.get("backbone", {})
    rows = [("backbone", " ".join(str(backbone[key]) for key in ("name", "size") if key in backbone))]
    rows += [("attention", line) for line in grouped_sites(net)]
    rows.append(("parameters", told_parameters(net)))
    if side := backbone.get("image_size"):
        rows.append(("multiply-adds", f"{count_multiply_adds(net, side):,} for one picture of {side} x {side}"))
    return rows


def told_parameters(net: nn.Module) -> str:
    """The number of parameters, and how many of them train where some do not."""
    trainable, total = count_parameters(net), sum(parameter.numel() for parameter in net.parameters())
    return f"{total:,}" if trainable == total else f"{total:,}, of them {trainable:,} trainable"


def grouped_sites(net: nn.Module) -> list[str]:
    """One line for all attention sites that differ in their layer number only, as in "12 x blocks.*.attn  Attention -> dna"."""
    sites: Any = getattr(net, "sites", ())
    groups = Counter((re.sub(r"\d+", "*", site.path), site.host, site.operator) for site in sites)
    return [f"{count} x {path}  {host} -> {operator}" for (path, host, operator), count in groups.items()]
