"""Recipe keys read from source text agree with what Python sees when the classes are imported."""

import inspect

import pytest

from dna_suite.catalogue import DATASETS, TASKS
from dna_suite.cli.keys import REFUSED_TRAINER_KEYS, TRAINER, argument_texts, documented, keys_of
from dna_suite.cli.session import load_class

CLASSES = [*TASKS.values(), *(target for sets in DATASETS.values() for target in sets.values()), TRAINER]


@pytest.mark.parametrize("target", CLASSES, ids=lambda target: target.name)
def test_keys_are_the_constructor_s_arguments(target: object) -> None:
    signature = inspect.signature(load_class(target).__init__)
    assert list(keys_of(target)) == [name for name in signature.parameters if name != "self"]
    assert not any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values())


@pytest.mark.parametrize("target", CLASSES[:-1], ids=lambda target: target.name)
def test_every_key_of_ours_is_documented(target: object) -> None:
    assert set(keys_of(target)) <= set(documented(target))


def test_refused_trainer_keys_exist() -> None:
    # A renamed Lightning argument would make a refusal dead text.
    assert set(REFUSED_TRAINER_KEYS) <= set(keys_of(TRAINER))


def test_argument_texts_join_continued_lines() -> None:
    text = "One.\n\nArgs:\n    first: what it\n        is.\n    second: two.\n\nRaises:\n    third: no.\n"
    assert argument_texts(text) == {"first": "what it is.", "second": "two."}
