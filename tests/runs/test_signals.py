import os
import signal
import subprocess

import pytest
from lightning.pytorch import Callback
from toy_loop import ToyData, ToyTask, Trace, make_trainer, run, same

from dna_suite.errors import UnknownName
from dna_suite.runs.checkpoint_files import newest_checkpoint, step_name
from dna_suite.runs.checkpoints import RunCheckpoints
from dna_suite.runs.signals import Signals, Stopped, requeue_job, signal_number
from dna_suite.runs.step_seed import StepSeed
from dna_suite.runs.train_log import TrainLog

NUMBERS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


@pytest.fixture(autouse=True)
def _handlers():
    before = {number: signal.getsignal(number) for number in NUMBERS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class Send(Callback):
    """Sends signals to this process in a hook, once."""

    def __init__(self, hook, *numbers, step=0, sanity=False):
        self.numbers, self.step, self.sanity = numbers, step, sanity
        setattr(self, hook, self.send)

    def send(self, trainer, *rest):
        if self.numbers and trainer.global_step >= self.step and trainer.sanity_checking == self.sanity:
            numbers, self.numbers = self.numbers, ()
            for number in numbers:
                os.kill(os.getpid(), number)


def fit(folder, *callbacks, **options):
    checkpoints = RunCheckpoints(folder)
    signals = Signals(checkpoints, **options)
    trainer = make_trainer(folder, StepSeed(0), TrainLog(), *callbacks, signals, checkpoints)
    trainer.fit(ToyTask(), ToyData(), ckpt_path=newest_checkpoint(folder), weights_only=True)
    return trainer


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_in_mid_step_ends_the_run_at_the_border_with_a_checkpoint(tmp_path, number, code):
    with pytest.raises(Stopped) as stopped:
        fit(tmp_path, Send("on_before_backward", number, step=5))
    assert stopped.value.exit_code == code
    assert stopped.value.checkpoint == newest_checkpoint(tmp_path) == tmp_path / step_name(6)
    assert str(stopped.value) == f"stopped by {number.name}; go on with dna fit --resume {tmp_path.parent}"


def test_a_further_signal_has_a_name(tmp_path):
    with pytest.raises(Stopped) as stopped:
        fit(tmp_path, Send("on_train_batch_start", signal.SIGUSR1, step=1), requeue_signal="USR1")
    assert stopped.value.exit_code == 128 + signal.SIGUSR1
    assert signal_number("sigusr1") == signal_number("USR1") == signal.SIGUSR1
    with pytest.raises(UnknownName, match=r"unknown signal 'USR3'.*'USR[12]'"):
        Signals(None, requeue_signal="USR3")


def test_a_second_interrupt_does_not_wait_for_the_border(tmp_path):
    # Lightning turns KeyboardInterrupt into SystemExit(1).
    with pytest.raises(SystemExit):
        fit(tmp_path, Send("on_train_batch_start", signal.SIGINT, signal.SIGINT, step=5))
    assert newest_checkpoint(tmp_path) == tmp_path / step_name(4)


def test_a_long_validation_does_not_use_up_the_grace_period(tmp_path):
    whole = run(tmp_path / "whole")
    with pytest.raises(Stopped) as stopped:
        fit(tmp_path / "run" / "checkpoints", Send("on_validation_batch_start", signal.SIGTERM, step=8))
    assert stopped.value.checkpoint.name == step_name(8)
    resumed = run(tmp_path / "run")
    assert resumed.trace.validations == whole.trace.validations[1:]
    assert resumed.trace.steps == whole.trace.steps[8:]
    assert same(resumed.state, whole.state)


def test_before_the_first_step_there_is_nothing_to_wait_for(tmp_path):
    with pytest.raises(Stopped, match="nothing was saved yet"):
        fit(tmp_path, Send("on_validation_batch_start", signal.SIGTERM, sanity=True))
    assert newest_checkpoint(tmp_path) is None


def test_an_evaluation_ends_at_once(tmp_path):
    trace = Trace()
    trainer = make_trainer(tmp_path, Signals(None), Send("on_validation_batch_start", signal.SIGTERM), trace)
    with pytest.raises(Stopped) as stopped:
        trainer.validate(ToyTask(), ToyData(), verbose=False)
    assert stopped.value.exit_code == 143
    assert trace.validations == []


def test_the_handlers_are_given_back(tmp_path):
    got = []
    for number in NUMBERS:
        signal.signal(number, lambda number, frame: got.append(number))
    before = [signal.getsignal(number) for number in NUMBERS]
    fit(tmp_path / "whole", requeue_signal="USR1")
    assert [signal.getsignal(number) for number in NUMBERS] == before
    with pytest.raises(Stopped):
        fit(tmp_path / "stopped", Send("on_train_batch_start", signal.SIGTERM, step=2), requeue_signal="USR1")
    for number in NUMBERS:
        os.kill(os.getpid(), number)
    assert got == list(NUMBERS)
    assert [signal.getsignal(number) for number in NUMBERS] == before


def test_a_launched_process_ends_with_zero_as_lightning_kills_parents_of_others():
    assert Stopped(signal.SIGTERM, launched=True).exit_code == 0


def test_requeueing_names_the_job_of_the_environment(tmp_path, monkeypatch, caplog):
    commands = []
    monkeypatch.setattr(subprocess, "run", lambda command, **options: commands.append(command))
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    requeue_job()
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "16")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    with pytest.raises(Stopped):
        fit(tmp_path / "a", Send("on_train_batch_start", signal.SIGUSR1), requeue_signal="USR1", requeue=True)
    assert commands == [["scontrol", "requeue", "17"], ["scontrol", "requeue", "16_3"]]
    with pytest.raises(Stopped):
        fit(tmp_path / "b", Send("on_train_batch_start", signal.SIGTERM), requeue_signal="USR1", requeue=True)
    assert len(commands) == 2
    for name in ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID"):
        monkeypatch.delenv(name)
    requeue_job()
    assert "SLURM_JOB_ID is not set" in caplog.text
