"""Loggers by short name, all offline: a run needs no network."""

from __future__ import annotations

from pathlib import Path

from lightning.pytorch.loggers import Logger

from dna_suite.errors import DnaError, UnknownName

NAMES = ("tensorboard", "wandb", "mlflow")


def build_logger(name: str, folder: Path) -> Logger:
    """A Lightning logger that writes below the run folder.

    Args:
        name: tensorboard, wandb or mlflow.
        folder: the run folder.

    Raises:
        DnaError: the name is unknown or its package is not installed.
    """
    try:
        if name == "tensorboard":
            from lightning.pytorch.loggers import TensorBoardLogger

            return TensorBoardLogger(save_dir=folder, name="tensorboard", version="")
        if name == "wandb":
            from lightning.pytorch.loggers import WandbLogger

            (folder / "wandb").mkdir(parents=True, exist_ok=True)
            return WandbLogger(save_dir=folder, name=folder.as_posix(), offline=True)
        if name == "mlflow":
            from lightning.pytorch.loggers import MLFlowLogger

            store = (folder / "mlflow").absolute()
            store.mkdir(parents=True, exist_ok=True)
            # A database file: mlflow 3 refuses its former store of plain files.
            return MLFlowLogger(
                experiment_name=folder.parent.as_posix(),
                tracking_uri=f"sqlite:///{store / 'mlflow.db'}",
                artifact_location=(store / "artifacts").as_uri(),
            )
    except ModuleNotFoundError as problem:
        package = "wandb" if name == "wandb" else "mlflow" if name == "mlflow" else "tensorboard"
        raise DnaError(f"logger {name}: {package} is not installed: pip install {package}") from problem
    raise UnknownName("logger", name, NAMES)
