"""`dna check`: every attention against float64 on this machine, in each precision, on each path."""

from __future__ import annotations

from dataclasses import replace

from dna_suite.catalogue import CHOICES, OPERATORS, PATTERNS
from dna_suite.cli.argv import Parser
from dna_suite.errors import UnknownName
from dna_suite.runs.tables import Table
from dna_suite.spec import AttentionSpec

SUMMARY = "every attention against float64 on this machine"
ABOUT = (
    "Compares each attention with float64 loops: its output, and its gradients, in each precision, fused and written out, with "
    "and without bias and mask. A number is the largest error over the largest number; ! marks one above its bound."
)
EXIT = "exit code 1 where an error is above its bound, 0 where none is"


def run(arguments: list[str]) -> int:
    """Print a table of errors.

    Returns:
        1 where an error is above its bound, else 0.

    Raises:
        DnaError: an operator, a pattern or a device is unknown.
    """
    parser = Parser("dna check", ABOUT)
    parser.epilog = EXIT
    parser.add_argument("--operator", nargs="+", action="extend", metavar="NAME", help="all of them unless told")
    parser.add_argument("--pattern", nargs="+", action="extend", metavar="NAME", help="all of them unless told; none: dense only")
    parser.add_argument("--device", nargs="+", metavar="NAME", help="cpu, and cuda where there is one, unless told")
    options = parser.parse_args(arguments)
    for name in options.operator or []:
        if name not in OPERATORS:
            raise UnknownName("attention", name, OPERATORS, "--operator")
    for name in options.pattern or []:
        if name not in (*PATTERNS, "none"):
            raise UnknownName("attention pattern", name, [*PATTERNS, "none"], "--pattern")
    specs = choose_specs(options.operator, options.pattern)
    failed = 0
    for device in choose_devices(options.device):
        table, wrong = compare(specs, device)
        print(table.text(), flush=True)
        failed += wrong
    print(f"\n{failed} of these are above their bound" if failed else "\nevery error is within its bound")
    return 1 if failed else 0


def choose_specs(operators: list[str] | None, patterns: list[str] | None) -> list[AttentionSpec]:
    """The attentions to compare: each operator without a pattern, then under each pattern; unnamed ones are all of them.

    Where neither is named, each operator is tried under fibottention and each other pattern with the operator of two branches.
    """
    names = list(dict.fromkeys(operators or OPERATORS))
    chosen = [name for name in dict.fromkeys(patterns or PATTERNS) if name != "none"]
    dense = [] if patterns and "none" not in patterns else [spec for name in names for spec in list_forms(AttentionSpec(name))]
    everything = operators is None and patterns is None
    sparse = [
        spec
        for pattern in chosen
        for name in names
        if not everything or pattern == "fibottention" or name == "dna"
        for spec in list_forms(AttentionSpec(name, pattern))
        if not everything or name == "dna" or not spec.options
    ]
    return [*dense, *sparse]


def list_forms(spec: AttentionSpec) -> list[AttentionSpec]:
    """An attention with its defaults, then with each switch and each variant that makes another function of it.

    Options of degree, such as a window, change no formula; engine and mask mode are paths of their own.
    """
    if spec.pattern is None:
        options = OPERATORS[spec.name].options
        others: list[dict[str, object]] = [{key: not value} for key, value in options.items() if isinstance(value, bool)]
    else:
        default = PATTERNS[spec.pattern].options.get("variant")
        others = [{"variant": variant} for variant in CHOICES["variant"] if default is not None and variant != default]
    return [spec, *(replace(spec, options=options) for options in others)]


def choose_devices(names: list[str] | None) -> list[str]:
    """The devices to compare on.

    Raises:
        UnknownName: this machine has no such device.
    """
    import torch

    there = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    for name in names or []:
        if name not in there:
            raise UnknownName("device on this machine", name, there, "--device")
    return list(dict.fromkeys(names or there))


def compare(specs: list[AttentionSpec], device: str) -> tuple[Table, int]:
    """The table of one device, and how many of its numbers are above their bound."""
    from dna_suite.attention.accuracy import BOUNDS, is_foreign, list_paths, measure_accuracy

    table = Table(f"{device}: error of the output, of the gradients")
    rows = [(spec, path) for spec in specs for path in list_paths(spec, device)]
    table.add("attention", [*(f"{describe(spec)}, {path.name}" for spec, path in rows), "bound"])
    wrong = 0
    for dtype, bounds in BOUNDS.items():
        cells = []
        for spec, path in rows:
            found = measure_accuracy(spec, path, dtype, device)
            if found.refused:
                cells.append("refused")
                _note(table, f"{describe(spec)}: {found.refused}")
                continue
            errors = (found.output, found.gradient)
            wrong += sum(not error <= bound for error, bound in zip(errors, bounds, strict=True))
            cells.append("  ".join(_cell(error, bound) for error, bound in zip(errors, bounds, strict=True)))
        table.add(str(dtype).removeprefix("torch."), [*cells, "  ".join(f"{bound:.0e} " for bound in bounds)])
    for spec in specs:
        if is_foreign(spec.name):
            _note(table, f"{spec.name} is another package's: compared with its own written-out form in float64")
    return table, wrong


def describe(spec: AttentionSpec) -> str:
    """The label and the options that are not the default."""
    return " ".join([spec.label, *(key if value is True else str(value) for key, value in spec.options.items())])


def _cell(error: float, bound: float) -> str:
    return f"{error:.0e}{' ' if error <= bound else '!'}"


def _note(table: Table, text: str) -> None:
    if text not in table.notes:
        table.notes.append(text)
