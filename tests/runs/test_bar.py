import io
import re

from toy_loop import ToyData, ToyTask, make_trainer

from dna_suite.runs import bar
from dna_suite.runs.bar import RunBar, duration
from dna_suite.runs.train_log import TrainLog


class Terminal(io.StringIO):
    def isatty(self):
        return True


def fit(folder, stream, epochs=3):
    options = {"max_epochs": epochs, "enable_checkpointing": False, "enable_progress_bar": True}
    make_trainer(folder, RunBar(stream), TrainLog(), **options).fit(ToyTask(), ToyData())
    return stream.getvalue()


LINE = re.compile(
    r"epoch (\d+)/3  step (\d+)/12  [\d,]+ samples/s  loss \d\.\d{4}  lr \d\.\d\de-\d\d  val/top1 \d\.\d{4}  \d:\d\d left"
)


def test_a_log_file_gets_a_line_an_epoch(tmp_path):
    lines = fit(tmp_path, io.StringIO()).splitlines()
    found = [LINE.fullmatch(line) for line in lines]
    assert [(match[1], match[2]) for match in found] == [("1", "4"), ("2", "8"), ("3", "12")]


def test_a_log_file_of_many_epochs_stays_short(tmp_path, monkeypatch):
    monkeypatch.setattr(bar, "MOST_EPOCH_LINES", 2)
    lines = fit(tmp_path, io.StringIO(), epochs=5).splitlines()
    assert [line.split()[1] for line in lines] == ["3/5", "5/5"]


def test_a_slow_epoch_speaks_up_between_its_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(bar, "LOG_SECONDS", 0.0)
    lines = fit(tmp_path, io.StringIO(), epochs=1).splitlines()
    assert [line.split("  ")[1] for line in lines if line.startswith("epoch")] == [f"step {n}/4" for n in (1, 2, 3, 4, 4)]
    assert lines.count("validation 2/2 batches") == 2, "the sanity check's and the epoch's"


def test_a_terminal_gets_one_line_that_is_redrawn(tmp_path, monkeypatch):
    monkeypatch.setattr(bar, "TERMINAL_SECONDS", 0.0)
    text = fit(tmp_path, Terminal(), epochs=2)
    assert text.count("\n") == 2
    assert text.count("\r") > 8
    assert "step 3/8" in text


def test_durations_read_as_a_clock():
    assert [duration(seconds) for seconds in (0.4, 61, 3600 + 62)] == ["0:00", "1:01", "1:01:02"]
