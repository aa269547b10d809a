"""The samples of one optimiser step as a product: local batch, processes, micro-batches."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GlobalBatch:
    """The samples of one full optimiser step.

    Args:
        batch: samples per process and micro-batch.
        processes: processes that train together.
        accumulate: micro-batches of one optimiser step.
    """

    batch: int
    processes: int = 1
    accumulate: int = 1

    @property
    def samples(self) -> int:
        """Samples of one full optimiser step."""
        return self.batch * self.processes * self.accumulate

    def __str__(self) -> str:
        factors = (self.batch, count(self.processes, "process", "es"), count(self.accumulate, "micro-batch", "es"))
        return f"{self.samples} = {' x '.join(map(str, factors))}"

    def mismatch(self, wanted: int | None) -> str | None:
        """A line that begins with `data.global_batch` where the product is not the wanted one, with the ways to repair it.

        Args:
            wanted: samples of an optimiser step that the recipe asks for; None takes any.
        """
        if wanted is None or wanted == self.samples:
            return None
        ways = " or ".join(self.ways_to(wanted))
        fits = f"{ways} gives it" if ways else f"no batch of {count(self.processes, 'process', 'es')} gives it"
        return f"data.global_batch {wanted}: this run has {self}; {fits}, --data.global_batch={self.samples} takes this one"

    def ways_to(self, wanted: int) -> list[str]:
        """The flags that give a number of samples on these processes: the largest batch up to this one, and this accumulation."""
        share, rest = divmod(wanted, self.processes)
        if rest:
            return []
        largest = next(size for size in range(min(self.batch, share), 0, -1) if share % size == 0)
        pairs = [(largest, share // largest)]
        if share % self.accumulate == 0:
            pairs.append((share // self.accumulate, self.accumulate))
        return list(dict.fromkeys(self.flags(batch, accumulate) for batch, accumulate in pairs))

    def flags(self, batch: int, accumulate: int) -> str:
        """The flags that change this batch and accumulation into others."""
        changed = [f"--data.batch={batch}"] if batch != self.batch else []
        if accumulate != self.accumulate:
            changed.append(f"--trainer.accumulate_grad_batches={accumulate}")
        return " ".join(changed)


def count(number: int, noun: str, plural: str = "s") -> str:
    """The number with its noun, as in "2 processes"."""
    return f"{number} {noun}{plural if number > 1 else ''}"
