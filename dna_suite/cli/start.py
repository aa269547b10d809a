"""Where the first weights of a run come from: a file that the user names, the run of another recipe, or nowhere."""

from __future__ import annotations

from dataclasses import dataclass

from dna_suite.cli.agreement import require_same_start
from dna_suite.cli.argv import TrainingArguments
from dna_suite.cli.recipe import Recipe, lookup, read_snapshot
from dna_suite.errors import DnaError
from dna_suite.runs.folder import RunFolder, run_folder
from dna_suite.runs.record import read_result
from dna_suite.spec import AttentionSpec

INIT_KEYS = ("init_from", "init_drop", "init_sign", "init_allow")
WAYS_ON = "--init_from FILE names other weights, --from_scratch starts without"


@dataclass(frozen=True)
class Start:
    """Weights that a run starts from.

    Args:
        path: run folder or file.
        drop: streams that may be lost on the way.
        sign: whether a released DnA file adds or subtracts its negative branch; None is what its layout says.
        allow: tensors that may be missing, left over or of another shape.
    """

    path: str
    drop: tuple[str, ...] = ()
    sign: str | None = None
    allow: tuple[str, ...] = ()


def check_start(arguments: TrainingArguments) -> None:
    """Refuse a command line that says twice what the first weights are.

    Raises:
        DnaError: two flags exclude one another.
    """
    ways = _ways(arguments)
    if len(ways) > 1:
        raise DnaError(f"{' and '.join(ways)} each say what a run starts from: give one of them")
    inits = [f"--{key}" for key in INIT_KEYS if getattr(arguments, key)]
    if arguments.run and (ways or inits):
        raise DnaError(f"--run uses a run as it is and {[*ways, *inits][0]} starts from other weights: give one of them")
    if inits and arguments.resume is not None:
        raise DnaError(f"--resume goes on with a run and {inits[0]} starts a new one: give one of them")


def take_start(recipe: Recipe, arguments: TrainingArguments) -> None:
    """Write what the command line says about first weights into the recipe, so that the run's own recipe repeats it."""
    if _ways(arguments):
        for key in INIT_KEYS:
            recipe.values.pop(key, None)
    if arguments.from_scratch:
        recipe.values["pretrained"] = None
        recipe.typed.add("pretrained")
    recipe.values.update({key: getattr(arguments, key) for key in INIT_KEYS if getattr(arguments, key)})


def _ways(arguments: TrainingArguments) -> list[str]:
    given = {
        "--init_from": arguments.init_from,
        "--from_scratch": arguments.from_scratch,
        "--pretrained": any(key == "pretrained" for key, _ in arguments.overrides),
    }
    return [flag for flag, value in given.items() if value]


def find_start(recipe: Recipe, resumed: RunFolder | None = None) -> Start | None:
    """The weights that a recipe starts from; None for fresh ones.

    `init_from` comes first. `pretrained` names a recipe, and its run with the same attention and seed is taken.

    Args:
        recipe: a checked recipe.
        resumed: the run that goes on; once it has a checkpoint it needs no other weights.

    Raises:
        DnaError: the run of the other recipe is missing, has not ended, or is of another network.
    """
    if resumed is not None and any(resumed.checkpoints.glob("step*.ckpt")):
        _keep_start(recipe, read_snapshot(resumed.path), resumed)
        return None
    drop, allow = (tuple(recipe.get(key) or ()) for key in ("init_drop", "init_allow"))
    if recipe.get("init_from"):
        return Start(recipe.values["init_from"], drop, recipe.get("init_sign"), allow)
    for key in ("init_sign",) if recipe.get("pretrained") else INIT_KEYS:
        if recipe.get(key):
            raise DnaError(f"--{key} is about weights of a file: --init_from FILE is missing")
    if not recipe.get("pretrained"):
        if recipe.get("model.freeze") == "backbone":
            recipe.notes.append("model.freeze backbone, and no weights to start from: the head is trained on a random network")
        return None
    folder = source_folder(recipe)
    _require_finished(folder, recipe)
    require_same_start(recipe, read_snapshot(folder.path), str(folder.path), WAYS_ON)
    recipe.notes.append(f"starting from {folder.path}, the run of {recipe.values['pretrained']} with this attention and seed")
    return Start(str(folder.path), drop, allow=allow)


def told_start(recipe: Recipe) -> str:
    """What `find_start` would take, in words, whether it is there or not."""
    if recipe.get("init_from"):
        source = str(recipe.values["init_from"])
    elif recipe.get("pretrained"):
        folder = source_folder(recipe)
        there = "there" if _has_ended(folder) else "not there yet"
        source = f"{folder.path} ({there}), the run of {recipe.values['pretrained']} with this attention and seed"
    else:
        return "fresh weights"
    own = [key for key in ("mean", "std") if recipe.get(f"data.{key}") is None]
    return f"{source}; {' and '.join(own)} as the weights had, where that is known" if own else source


def _keep_start(recipe: Recipe, own: Recipe, resumed: RunFolder) -> None:
    """Let a run that goes on keep the mean and deviation that came with its first weights."""
    wanted, found = (values.get("pretrained") for values in (recipe, own))
    if "pretrained" in recipe.typed and wanted != found:
        told = f"{resumed.path} started from {found or 'fresh weights'}, not from {wanted or 'fresh ones'}"
        raise DnaError(f"pretrained: {told}; --resume goes on with it as it was")
    for key in ("mean", "std"):
        if recipe.get(f"data.{key}") is None and own.get(f"data.{key}") is not None:
            recipe.values["data"][key] = own.get(f"data.{key}")


def source_folder(recipe: Recipe) -> RunFolder:
    """The run that the recipe's `pretrained` means: same folder of runs, attention and seed."""
    attention = AttentionSpec(**lookup(recipe.values, "model.attention", {}))
    own = AttentionSpec(**recipe.own_attention)
    return RunFolder(run_folder(recipe.values["runs"], recipe.values["pretrained"], attention, recipe.values["seed"], own))


def _require_finished(folder: RunFolder, recipe: Recipe) -> None:
    if not folder.exists():
        place = recipe.origin("pretrained")
        raise DnaError(f"pretrained {recipe.values['pretrained']} ({place}): no run {folder.path} to start from: {WAYS_ON}")
    if not _has_ended(folder):
        raise DnaError(
            f"{folder.path} has not ended its training: dna fit --resume {folder.path} goes on with it, "
            f"--init_from {folder.path} starts from it as it is"
        )


def _has_ended(folder: RunFolder) -> bool:
    training = read_result(folder.result)["training"] if folder.result.is_file() else None
    return bool((training or {}).get("finished"))
