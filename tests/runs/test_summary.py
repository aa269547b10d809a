import io

import torch
from rich.console import Console

from dna_suite.backbones.images import build_image_model
from dna_suite.runs.summary import grouped_sites, print_summary, summary_rows
from dna_suite.spec import AttentionSpec


def build(layers="all"):
    attention = AttentionSpec("dna", layers=layers)
    with torch.device("meta"):
        return build_image_model("vit_base", size="paper", attention=attention, num_classes=1000, image_size=224)


def test_the_rows_hold_the_papers_numbers():
    rows = dict(summary_rows(build(), {"backbone": {"name": "vit_base", "size": "paper", "image_size": 224}}))
    assert rows == {
        "backbone": "vit_base paper",
        "attention": "12 x blocks.*.attn  Attention -> dna",
        "parameters": "100,742,008",
        "multiply-adds": "21,086,755,584 for one picture of 224 x 224",
    }


def test_sites_with_another_operator_and_frozen_weights_have_their_own_numbers():
    net = build(layers="1:-1")
    assert grouped_sites(net) == [
        "2 x blocks.*.attn  Attention -> softmax",
        "10 x blocks.*.attn  Attention -> dna",
    ]
    net.head.requires_grad_(False)
    total = sum(weight.numel() for weight in net.parameters())
    assert dict(summary_rows(net, {}))["parameters"] == f"{total:,}, of them {total - 769_000:,} trainable"


def test_the_table_is_printed():
    console = Console(file=io.StringIO(), width=100)
    print_summary(build(), {}, console)
    assert "12 x blocks.*.attn  Attention -> dna" in console.file.getvalue()
