import pytest
import torch
from toy_loop import ToyData, ToyTask, make_trainer

from dna_suite.errors import DnaError
from dna_suite.runs.failures import plain_failures


def fit_failing_with(error, folder, **options):
    class Fails(ToyTask):
        def training_step(self, batch, batch_idx):
            raise error

    trainer = make_trainer(folder, enable_checkpointing=False, limit_val_batches=0, **options)
    with plain_failures(trainer):
        trainer.fit(Fails(), ToyData(batch=6))


def test_out_of_memory_names_the_same_global_batch_in_smaller_pieces(tmp_path):
    with pytest.raises(DnaError) as failed:
        fit_failing_with(torch.OutOfMemoryError("CUDA out of memory"), tmp_path, accumulate_grad_batches=2)
    assert str(failed.value) == (
        "cpu is out of memory at a local batch of 6; the same global batch of 12: "
        "--data.batch=3 --trainer.accumulate_grad_batches=4"
    )


@pytest.mark.parametrize(
    "message",
    [
        "DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that workers are out of shared memory.",
        "unable to write to file </torch_1_2_3>: No space left on device, shm_open",
    ],
)
def test_a_full_shared_memory_names_its_size_and_the_workers(tmp_path, message):
    with pytest.raises(DnaError, match=r"shared memory \(/dev/shm, \d+ MB\) with data.workers 0; .*--data.workers=0"):
        fit_failing_with(RuntimeError(message), tmp_path)


def test_other_failures_keep_their_traceback(tmp_path):
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        fit_failing_with(RuntimeError("mat1 and mat2 shapes cannot be multiplied"), tmp_path)
