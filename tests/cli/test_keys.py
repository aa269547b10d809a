"""Recipe keys read from source text agree with what Python sees when the classes are imported."""

import inspect

import pytest

from dna_suite.catalogue import DATASETS, TASKS
from dna_suite.cli.keys import REFUSED_TRAINER_KEYS, TRAINER, argument_texts, documented, keys_of
from dna_suite.cli.session import load_class

CLASSES = [*TASKS.values(), *(target for sets in DATASETS.values() for target in sets.values()), TRAINER]


@pytest.mark.parametrize("target", CLASSES, ids=lambda target: target.name)
def test_keys_are_the_constructor_s_arguments(target: object) -> None:
    expected: set[str] = set()
    for cls in load_class(target).__mro__:
        if "__init__" not in vars(cls):
            continue
        parameters = inspect.signature(vars(cls)["__init__"]).parameters.values()
        handed_on = [parameter for parameter in parameters if parameter.kind is parameter.VAR_KEYWORD]
        named = [parameter for parameter in parameters if parameter not in handed_on and parameter.name != "self"]
        expected |= {parameter.name for parameter in named}
        if not handed_on:
            break
    else:
        raise AssertionError("a base takes every name")
    assert set(keys_of(target)) == expected


def test_a_default_is_that_of_the_class_that_sets_it_anew() -> None:
    cifar, imagenet = (keys_of(DATASETS["classification"][name]) for name in ("cifar10", "imagenet"))
    assert (cifar["workers"].default, imagenet["workers"].default) == ("0", "2")
    assert (cifar["size"].default, imagenet["size"].default) == ("None", "224")
    assert imagenet["allow_empty"].default == "False"
    assert keys_of(TASKS["transfer"])["attention"].fields == keys_of(TASKS["classification"])["attention"].fields


@pytest.mark.parametrize("target", CLASSES[:-1], ids=lambda target: target.name)
def test_every_key_of_ours_is_documented(target: object) -> None:
    assert set(keys_of(target)) <= set(documented(target))


def test_refused_trainer_keys_exist() -> None:
    # A renamed Lightning argument would make a refusal dead text.
    assert set(REFUSED_TRAINER_KEYS) <= set(keys_of(TRAINER))


def test_argument_texts_join_continued_lines() -> None:
    text = "One.\n\nArgs:\n    first: what it\n        is.\n    second: two.\n\nRaises:\n    third: no.\n"
    assert argument_texts(text) == {"first": "what it is.", "second": "two."}
