"""Published numbers that tables show beside ours, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dna_suite.runs.tables import Table


@dataclass(frozen=True)
class PublishedRow:
    """One row of a published table.

    Args:
        label: the model, as the paper calls it.
        values: metric without its split -> percent, as printed.
    """

    label: str
    values: Mapping[str, float]


@dataclass(frozen=True)
class PublishedRows:
    """What was published for a task.

    Args:
        source: the tables, in words.
        rows: in the paper's order.
    """

    source: str
    rows: Sequence[PublishedRow]


# Source: DnA, Table 4 (ImageNet-A; its column RMSE is the text's RMSCE) and Table 10 (ImageNet-O and -R).
PUBLISHED: Mapping[str, PublishedRows] = {
    "robustness": PublishedRows(
        "Table 4 (robustness) and Table 10, ViT-B/16 at 224 pixels, 1,000 classes, the whole sets",
        (
            PublishedRow(
                "paper: ViT-B",
                {
                    "a/top1": 24.1,
                    "a/rmsce": 26.6,
                    "a/aurra": 33.5,
                    "r/top1": 45.2,
                    "r/rmsce": 5.0,
                    "r/aurra": 74.7,
                    "o/fpr95": 89.3,
                    "o/auroc": 65.7,
                    "o/aupr": 23.4,
                },
            ),
            PublishedRow("paper: +Diff. Attn.", {"a/top1": 28.1, "a/rmsce": 25.8, "a/aurra": 39.7}),
            PublishedRow("paper: +Cog Attn.", {"a/top1": 27.5, "a/rmsce": 25.3, "a/aurra": 38.8}),
            PublishedRow(
                "paper: +DnA",
                {
                    "a/top1": 27.7,
                    "a/rmsce": 24.2,
                    "a/aurra": 40.7,
                    "r/top1": 46.5,
                    "r/rmsce": 5.3,
                    "r/aurra": 75.5,
                    "o/fpr95": 90.5,
                    "o/auroc": 66.1,
                    "o/aupr": 24.3,
                },
            ),
        ),
    )
}


def add_published(table: Table, task: str) -> None:
    """Add the published rows that have a metric of a table below its own, and a note on where they are from.

    Args:
        table: whose columns are named by metrics without their split.
        task: of its runs.
    """
    published = PUBLISHED.get(task)
    if published is None:
        return
    rows = [row for row in published.rows if any(header in row.values for header in table.headers)]
    if not rows:
        return
    for row in rows:
        for place, (header, column) in enumerate(zip(table.headers, table.columns, strict=True)):
            column.append(row.label if place == 0 else f"{row.values[header]:.1f}" if header in row.values else "")
    table.notes.append(f"paper: {published.source}{'; not to be compared with toy data' if table.toy else ''}")
