"""Command lines: an argument parser that raises, and the split of a training command into flags, files and overrides."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass, field
from typing import NoReturn

from dna_suite.errors import DnaError, nearest


class Parser(argparse.ArgumentParser):
    """An argument parser that takes no abbreviations and raises instead of printing a page of usage.

    Raises:
        DnaError: an option is unknown or a value is wrong; the nearest option is named.
    """

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(prog=prog, description=description, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Raise the message with the nearest option instead of ending the process."""
        unknown = re.match(r"unrecognized arguments: (--[\w.-]+)", message)
        if unknown:
            options = [flag for action in self._actions for flag in action.option_strings if flag.startswith("--")]
            near = nearest(unknown[1], options)
            hint = f"; did you mean {near}?" if near else f"; {self.prog} takes {', '.join(options)}"
            raise DnaError(f"unknown option {unknown[1]}{hint}")
        raise DnaError(f"{self.prog}: {message}")


@dataclass
class TrainingArguments:
    """The command line of fit, validate, test or predict, split.

    Args:
        configs: the `--config` files in order.
        overrides: dotted key and text of each `--key=value`.
        run: run folder whose model is used.
        resume: run folder that goes on; "" is the folder that the recipe names.
        init_from: run folder or weights file that a new run starts from.
        init_drop: streams that may be lost on the way.
        init_sign: whether a released DnA file adds or subtracts its negative branch: plus or minus.
        init_allow: tensors that may be missing, left over or of another shape.
        from_scratch: a recipe that starts from another run starts without.
        overwrite: an existing run of the same name may go.
        trust_imports: packages that class paths in recipes may name.
        print_config: print the merged recipe and end.
        help: print the help and end.
        input: picture or folder of pictures to predict.
        out: folder for the predictions.
        topk: classes written for each picture.
    """

    configs: list[str] = field(default_factory=list)
    overrides: list[tuple[str, str]] = field(default_factory=list)
    run: str | None = None
    resume: str | None = None
    init_from: str | None = None
    init_drop: list[str] = field(default_factory=list)
    init_sign: str | None = None
    init_allow: list[str] = field(default_factory=list)
    from_scratch: bool = False
    overwrite: bool = False
    trust_imports: list[str] = field(default_factory=list)
    print_config: bool = False
    help: bool = False
    input: str | None = None
    out: str | None = None
    topk: int = 5


FLAGS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "--config": ("configs", ("fit", "validate", "test", "predict"), "recipe or overlay; repeat it, later files win"),
    "--run": ("run", ("validate", "test", "predict"), "run folder: its recipe and its best checkpoint"),
    "--resume": ("resume", ("fit",), "the same run goes on from its newest checkpoint; with no folder, the one the recipe names"),
    "--init_from": (
        "init_from",
        ("fit", "validate", "test"),
        "new run from these weights: run folder, .ckpt, .safetensors, .pth, timm/NAME that is on this machine",
    ),
    "--init_drop": ("init_drop", ("fit", "validate", "test"), "stream that --init_from may lose, such as v_neg; repeat it"),
    "--init_sign": (
        "init_sign",
        ("fit", "validate", "test"),
        "plus or minus: a released DnA file adds or subtracts its negative branch; by its layout unless told",
    ),
    "--init_allow": (
        "init_allow",
        ("fit", "validate", "test"),
        "tensor or module that --init_from may miss, leave over or find in another shape; repeat it",
    ),
    "--from_scratch": ("from_scratch", ("fit",), "start a recipe that starts from another run without it"),
    "--overwrite": ("overwrite", ("fit",), "replace an existing run"),
    "--seed": ("seed", ("fit", "validate", "test", "predict"), "seed of weights, order, augmentation and dropout"),
    "--trust-imports": ("trust_imports", ("fit", "validate", "test", "predict"), "package that class paths may name; repeat it"),
    "--print_config": ("print_config", ("fit", "validate", "test", "predict"), "print the merged recipe and end"),
    "--input": ("input", ("predict",), "picture, or folder of pictures"),
    "--out": ("out", ("predict",), "folder for predictions.jsonl"),
    "--topk": ("topk", ("predict",), "classes written for each picture, 5 unless told"),
    "--help": ("help", ("fit", "validate", "test", "predict"), "this text"),
}
TOP_LEVEL_VALUES = ("seed", "pretrained", "runs", "logger", "recipe", "save_every", "requeue")
SWITCHES = ("from_scratch", "overwrite", "print_config", "help")
LISTS = ("configs", "init_drop", "init_allow", "trust_imports")


def split_training(command: str, arguments: list[str]) -> TrainingArguments:
    """A training command line as flags, recipe files and overrides.

    Args:
        command: fit, validate, test or predict.
        arguments: what follows the command.

    Raises:
        DnaError: a flag is unknown, belongs to another command, or lacks its value.
    """
    result = TrainingArguments()
    rest = list(arguments)
    while rest:
        token = rest.pop(0)
        flag, has_value, value = token.partition("=")
        flag = {"-c": "--config", "-h": "--help"}.get(flag, flag)
        if not flag.startswith("--"):
            raise DnaError(f"unexpected {token!r}: options start with --, recipes are given as --config FILE")
        name = FLAGS[flag][0] if flag in FLAGS else None
        if name is None or name == "seed":
            dotted = _override(command, flag)
            result.overrides.append((dotted, value if has_value else _next(flag, rest)))
        elif command not in FLAGS[flag][1]:
            raise DnaError(f"{flag} belongs to {', '.join(FLAGS[flag][1])}, not to {command}{_instead(command, flag)}")
        elif name in SWITCHES:
            if has_value:
                raise DnaError(f"{flag} takes no value")
            setattr(result, name, True)
        elif name == "resume":
            result.resume = value if has_value else (rest.pop(0) if rest and not rest[0].startswith("-") else "")
        else:
            _store(result, name, flag, value if has_value else _next(flag, rest))
    return result


def _store(result: TrainingArguments, name: str, flag: str, text: str) -> None:
    if name in LISTS:
        getattr(result, name).append(text)
    elif name == "topk":
        if not text.isdigit() or int(text) < 1:
            raise DnaError(f"--topk {text}: a whole number from 1")
        result.topk = int(text)
    elif getattr(result, name) is not None:
        raise DnaError(f"{flag} is given twice")
    else:
        setattr(result, name, text)


def _override(command: str, flag: str) -> str:
    dotted = flag[2:]
    first = dotted.split(".")[0].rstrip("+")
    if (first in ("model", "data", "trainer") and "." in dotted) or dotted in TOP_LEVEL_VALUES:
        return dotted
    own = [name for name, (_, commands, _) in FLAGS.items() if command in commands]
    if flag in ("--ckpt_path", "--weights_only"):
        raise DnaError(
            f"{flag} is not offered: --run DIR to test a run, --resume DIR to go on, --init_from FILE to start from weights"
        )
    near = nearest(flag, [*own, *(f"--{key}" for key in TOP_LEVEL_VALUES)])
    hint = f"; did you mean {near}?" if near else ""
    raise DnaError(f"unknown option {flag}{hint} {command} takes {', '.join(own)} and keys such as --model.attention.name=dna")


def _next(flag: str, rest: list[str]) -> str:
    if not rest or rest[0].startswith("--"):
        raise DnaError(f"{flag} needs a value: {flag}=VALUE")
    return rest.pop(0)


def _instead(command: str, flag: str) -> str:
    if (command, flag) == ("fit", "--run"):
        return ": --resume DIR lets that run go on, --init_from DIR starts a new run from its weights"
    return ""
