"""LightningCLI for one task class and one data class, fed with a merged recipe instead of a command line."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NoReturn

from jsonargparse import Namespace, set_parsing_settings
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI

from dna_suite.cli.checks import TRUSTED
from dna_suite.cli.recipe import SECTIONS, Recipe, lookup
from dna_suite.data.base import Data
from dna_suite.errors import DnaError
from dna_suite.tasks.base import Task

TYPE_NAMES = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "NoneType": "null",
    "list": "a list",
    "tuple": "a list",
    "dict": "a section of keys",
}


def restrict_imports(trusted: list[str]) -> None:
    """Let class paths in recipes import from the suite, Lightning, torch and the packages named by `--trust-imports` only."""
    set_parsing_settings(
        import_path_denylist=["*"], import_path_allowlist=[*TRUSTED, *trusted], instantiate_subclass_spec_in_any=False
    )


class RecipeParser(LightningArgumentParser):
    """A parser whose errors are one line: key, what was expected, what was given."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Raise the message's useful line as a DnaError."""
        raise DnaError(shorten(message)) from ex


def shorten(message: str) -> str:
    """The useful part of a parser's message: the key, the accepted types in words, and the value given."""
    text = " ".join(message.split())
    key = re.search(r'(?:Parser )?key "([^"]+)"', text)
    given = re.search(r"(?:Got|Given) value: (.*?)(?:$|\s+(?:Subtypes|- Does|Problem|From value)| - )", text)
    wanted = re.findall(r"Expected a <class '(?:\w+\.)*(\w+)'>", text) or re.findall(r"Expected (?:type:|to be) (\S+?)[.;]", text)
    choices = list(dict.fromkeys(re.findall(r"Literal\[([^\]]*)\]", text)))
    if key is None:
        return text[:300]
    types = [TYPE_NAMES.get(name, name) for name in wanted if "Literal" not in name]
    words = list(dict.fromkeys([*types, *([f"one of {', '.join(choices)}"] if choices else [])]))
    expected = " or ".join(words) or "another value"
    value = f", not {given[1].strip()}" if given else ""
    return f"{key[1]}: {expected}{value}"


class SuiteCLI(LightningCLI):
    """Builds task, data module and trainer from a recipe; what to run with them is the caller's.

    There are no subcommands here and so no `ckpt_path` or `weights_only` argument: a checkpoint's hyper-parameters can never
    beat the recipe (Lightning-AI/pytorch-lightning#21455).

    Args:
        task: the LightningModule's class.
        data: the data module's class.
        recipe: the merged recipe.
        callbacks: the standing callbacks.
        plugins: trainer plugins beside the recipe's.
        on_parsed: called with the complete configuration before anything is built.

    Raises:
        DnaError: a value has the wrong type; with the key and where it was written.
    """

    model: Task
    datamodule: Data
    trainer: Trainer

    def __init__(
        self,
        task: type[Task],
        data: type[Data],
        recipe: Recipe,
        callbacks: list[Callback],
        plugins: list[Any],
        on_parsed: Callable[[dict[str, Any]], None] = lambda values: None,
    ) -> None:
        self.recipe = recipe
        self.plugins = plugins
        self.on_parsed = on_parsed
        values = {section: recipe.values[section] for section in SECTIONS}
        try:
            super().__init__(
                model_class=task,
                datamodule_class=data,
                save_config_callback=None,
                seed_everything_default=False,
                parser_class=RecipeParser,
                parser_kwargs={"allow_abbrev": False, "exit_on_error": True},
                trainer_defaults={"callbacks": callbacks},
                args=values,
                run=False,
                auto_configure_optimizers=False,
                load_from_checkpoint_support=False,
            )
        except DnaError as problem:
            raise DnaError(located(str(problem), recipe)) from None

    def before_instantiate_classes(self) -> None:
        """Hand the complete configuration to whoever compares it."""
        self.on_parsed(parsed_values(self))

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """The trainer with the suite's plugins and without Lightning's samplers and summary; loggers come with the run folder."""
        plugins = [*lookup_plugins(self.config_init), *self.plugins]
        fixed = {"logger": False, "use_distributed_sampler": False, "enable_model_summary": False}
        try:
            return super().instantiate_trainer(plugins=plugins, **fixed, **kwargs)
        except (MisconfigurationException, ValueError, TypeError) as problem:
            raise DnaError(f"trainer: {' '.join(str(problem).split())}") from problem


def lookup_plugins(config: Namespace) -> list[Any]:
    """The plugins of a recipe as a list."""
    plugins = config.get("trainer.plugins")
    return [] if plugins is None else plugins if isinstance(plugins, list) else [plugins]


def located(message: str, recipe: Recipe) -> str:
    """The message with the file and line of the key that it begins with, where that is known."""
    key = re.split("[: ]", message, maxsplit=1)[0]
    origin = recipe.origin(key) if lookup(recipe.values, key) is not None else None
    return f"{message} ({origin})" if origin and origin not in message and "\n" not in message else message


def parsed_values(cli: LightningCLI) -> dict[str, Any]:
    """The complete configuration, defaults included, as plain nested values."""
    return {section: plain(cli.config[section]) for section in SECTIONS}


def plain(value: Any) -> Any:
    """Namespaces as dictionaries, tuples as lists, other objects as their text."""
    if isinstance(value, Namespace):
        return {key: plain(inner) for key, inner in vars(value).items()}
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)
