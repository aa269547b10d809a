"""`dna export`: a run's weights as files for other programs."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import NamedTuple

from dna_suite.catalogue import Target
from dna_suite.cli.argv import Parser
from dna_suite.errors import DnaError, UnknownName

SUMMARY = "a run's weights as safetensors, timm, ONNX or released DnA files"
ABOUT = (
    "Writes the weights of a run's best checkpoint (the average, where the run kept one), reads them back and compares: "
    "what does not agree is not written."
)


class Format(NamedTuple):
    """One kind of export.

    Args:
        writer: function that writes the files into a folder and checks them.
        files: names of the files.
        meaning: what they are for, in words.
    """

    writer: Target
    files: tuple[str, ...]
    meaning: str


FORMATS = {
    "safetensors": Format(
        Target("dna_suite.export.safetensors", "write_safetensors"),
        ("model.safetensors",),
        "our names, with classes and transform; any attention; load_model and --init_from read it",
    ),
    "timm": Format(
        Target("dna_suite.export.timm", "write_timm"),
        ("config.json", "model.safetensors"),
        "timm.create_model('local-dir:DIR', pretrained=True); softmax alone",
    ),
    "onnx": Format(
        Target("dna_suite.export.onnx", "write_onnx"),
        ("model.onnx",),
        "the computation too, for any batch; any attention; needs 'dna_suite[export]'",
    ),
    "released": Format(
        Target("dna_suite.export.released", "write_released"),
        ("model.pth",),
        "the fused layout of the released DnA code; dna, dna-q and softmax in a plain ViT",
    ),
}


def run(arguments: list[str]) -> int:
    """Write one export.

    Raises:
        DnaError: there is no such run or format, the format cannot hold the model, or the files exist.
    """
    parser = Parser("dna export", ABOUT)
    formats = "; ".join(f"{name}: {entry.meaning}" for name, entry in FORMATS.items())
    parser.add_argument("run", metavar="RUN", help="run folder, or one of its checkpoints")
    parser.add_argument("--format", required=True, metavar="FORMAT", help=formats.replace("%", "%%"))
    parser.add_argument("--out", metavar="DIR", help="folder for the files; RUN/export/FORMAT unless told")
    parser.add_argument(
        "--checkpoint", default="best", metavar="NAME", help="best, last, or a checkpoint's name; best unless told"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace files of an earlier export")
    options = parser.parse_args(arguments)
    if options.format not in FORMATS:
        raise UnknownName("format", options.format, FORMATS, "--format")
    source = Path(options.run)
    if not source.is_dir() and not options.out:
        what = "is a file" if source.is_file() else "does not exist"
        raise DnaError(f"{source} {what}: a run folder is needed, or a checkpoint and --out DIR")
    out = Path(options.out) if options.out else source / "export" / options.format
    line = write_export(source, options.checkpoint, FORMATS[options.format], out, options.overwrite)
    print(f"{out}: {line}")
    return 0


def write_export(source: Path, checkpoint: str, kind: Format, out: Path, overwrite: bool) -> str:
    """Write the files of one format, and say what was checked.

    Raises:
        DnaError: as `run`.
    """
    from dna_suite.backbones.weights import build_recorded, read_weights
    from dna_suite.export.staging import check_free, staged

    check_free(out, kind.files, overwrite)
    weights = read_weights(source, checkpoint)
    model = build_recorded(weights)
    needed = int(1.1 * sum(tensor.nbytes for tensor in weights.tensors.values()))
    write = getattr(importlib.import_module(kind.writer.module), kind.writer.name)
    with staged(out, needed) as folder:
        line: str = write(weights, model, folder)
    return f"{', '.join(kind.files)} from {weights.source}; {line}"
