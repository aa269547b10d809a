"""Wrong command lines: one line, exit code 2, nothing written, and torch not imported where that can be known before."""

import subprocess
import sys
from pathlib import Path

import pytest

from dna_suite.cli.main import main

DIGITS = "--config=tasks/digits.yaml"


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def line_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert not list(Path.cwd().iterdir())
    lines = captured.err.splitlines()
    assert all(line.startswith("dna: ") for line in lines)
    return lines[-1].removeprefix("dna: ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fut"], "unknown command 'fut'; did you mean 'fit'?"),
        (["fit"], "no recipe given: --config tasks/digits.yaml"),
        (["fit", "--config"], "--config needs a value"),
        (["fit", "tasks/digits.yaml"], "unexpected 'tasks/digits.yaml': options start with --"),
        (["fit", "--config=tasks/digts.yaml"], "did you mean tasks/digits.yaml?"),
        (["fit", "--conf=tasks/digits.yaml"], "unknown option --conf; did you mean --config?"),
        (["fit", DIGITS, "--ckpt_path=x.ckpt"], "--ckpt_path is not offered: --run DIR to test a run, --resume DIR"),
        (["fit", DIGITS, "--weights_only=true"], "--weights_only is not offered"),
        (["fit", DIGITS, "--run=runs/x"], "--run belongs to validate, test, predict, not to fit: --resume DIR"),
        (["fit", DIGITS, "--model.attention.name=dma"], "unknown attention 'dma' (command line); did you mean 'dna'?"),
        (["fit", DIGITS, "--model.attention.pattern=longformr"], "unknown attention pattern 'longformr'"),
        (["fit", DIGITS, "--model.attention.options.alpah=1"], "unknown option of attention 'softmax' 'alpah' (command line)"),
        (["fit", DIGITS, "--model.lrr=1"], "unknown recipe key 'model.lrr' (command line)"),
        (
            ["fit", DIGITS, "--model.optim.lrr=1"],
            "'model.optim.lrr' (command line); did you mean 'model.optim.lr'?",
        ),
        (["fit", DIGITS, "--trainer.max_epoch=3"], "'trainer.max_epoch' (command line); did you mean 'trainer.max_epochs'?"),
        (["fit", DIGITS, "--trainer.max_steps=3"], "trainer.max_steps is not offered: limits are in epochs"),
        (["fit", DIGITS, "--trainer.max_epochs=0"], "trainer.max_epochs 0 (command line): a whole number from 1"),
        (["fit", DIGITS, "--data.name=digit"], "unknown data set 'digit' (command line); did you mean 'digits'?"),
        (["fit", DIGITS, "--model.backbone=vit_bse"], "unknown backbone 'vit_bse' (command line); did you mean 'vit_base'?"),
        (["fit", DIGITS, "--model.size=huge"], "unknown size of vit_digits 'huge' (command line)"),
        (["fit", DIGITS, "--model.heads=5"], "model.heads 5 does not divide model.dim 64 (command line)"),
        (["fit", DIGITS, "--model.heads=0"], "model.heads 0 does not divide model.dim 64"),
        (["fit", DIGITS, "--model.optim=3"], "model.optim is a section of keys (name, lr, "),
        (["fit", DIGITS, "--seed=-1"], "seed -1 (command line): a whole number from 0"),
        (["fit", DIGITS, "--seed=one"], "seed 'one' (command line): a whole number from 0"),
        (["fit", DIGITS, "--logger=tensorbord"], "unknown logger 'tensorbord' (command line); did you mean 'tensorboard'?"),
        (["fit", DIGITS, "--resume=x", "--init_from=y"], "--resume goes on with a run and --init_from starts a new one"),
        (["fit", "--resume=runs/nowhere"], "runs/nowhere is no run folder: it does not exist"),
        (["test", DIGITS], "dna test needs a model: --run DIR (a run folder) or --init_from FILE"),
        (["test", "--run=runs/nowhere"], "runs/nowhere is no run folder"),
        (["predict", "--run=x"], "dna predict needs --input, --out"),
        (["predict", "--run=x", "--input=y", "--out=z", "--topk=0"], "--topk 0: a whole number from 1"),
    ],
)
def test_one_line_says_what_is_wrong(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in line_of(capsys, *words)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("task: clasification\n", "unknown task 'clasification' (mine.yaml:1); did you mean 'classification'?"),
        ("model: {}\n", "the recipe says no task"),
        ("task: classification\ntraner: {}\n", "unknown recipe key 'traner' (mine.yaml:2); did you mean 'trainer'?"),
        ("task: classification\ndata: {name: digits}\ntrainer: [1]\n", "trainer is a section of keys, not [1] (mine.yaml:3)"),
        (
            "task: classification\ndata: {name: digits}\nmodel:\n  backbone: vit_digits\n  trainer: {}\n",
            "'model.trainer' (mine.yaml:5)",
        ),
        ("task: classification\ndata: {size: 3}\n", "data.name is missing: digits"),
        ("task: classification\ndata: {name: digits}\n", "model.backbone is missing"),
    ],
)
def test_a_wrong_file_is_named_with_its_line(text: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    assert main(["fit", "--config=mine.yaml"]) == 2
    assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("--model.optim.lr=fast", "model.optim.lr: a number, not fast (command line)"),
        ("--data.batch=many", "data.batch: a whole number, not many (command line)"),
        ("--data.batch=0", "data.batch"),
        ("--data.global_batch=many", "data.global_batch: a whole number or null, not many (command line)"),
        ("--data.holdout=many", "data.holdout: a whole number or a number or null or one of 'auto', not many (command line)"),
        ("--data.mean=grey", "data.mean: a list, not grey (command line)"),
        ("--data.toy=perhaps", "data.toy: true or false, not perhaps (command line)"),
        ("--model.optim.name=lion", "model.optim.name: one of 'adamw', 'sgd', not lion (command line)"),
        ("--model.drop_path=2", "model.drop_path 2"),
        ("--trainer.accelerator=gpu", "trainer.accelerator gpu: this machine has no GPU"),
        ("--trainer.precision=8", "trainer.precision"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(word: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in line_of(capsys, "fit", DIGITS, word)


FOREIGN = """
import sys
from pathlib import Path
Path({marker!r}).write_text("imported")
class Thing:
    pass
"""


@pytest.mark.parametrize(
    "text",
    [
        "trainer: {callbacks: [{class_path: stranger.Thing}]}",
        "trainer: {callbacks: [stranger.Thing]}",
        "trainer: {strategy: stranger.Thing}",
        "trainer: {plugins: [{class_path: stranger.Thing}]}",
        "trainer: {profiler: {class_path: stranger.Thing}}",
    ],
)
def test_a_foreign_class_path_is_refused_before_its_module_is_imported(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Lightning-AI/pytorch-lightning#21822: naming a class in a config runs its module.
    marker = tmp_path / "marker"
    (tmp_path / "stranger.py").write_text(FOREIGN.format(marker=str(marker)))
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "mine.yaml").write_text(text + "\n")
    assert main(["fit", DIGITS, "--config=mine.yaml"]) == 2
    assert "stranger" in capsys.readouterr().err
    assert not marker.exists()
    assert "stranger" not in sys.modules
    assert not (tmp_path / "runs").exists()


def test_a_trusted_package_is_imported_and_only_the_command_line_can_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    marker = tmp_path / "marker"
    (tmp_path / "stranger_trusted.py").write_text(FOREIGN.format(marker=str(marker)))
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "mine.yaml").write_text("trainer: {callbacks: [{class_path: stranger_trusted.Thing}]}\n")
    assert main(["fit", DIGITS, "--config=mine.yaml", "--trust-imports=stranger_trusted"]) == 2
    assert "trainer.callbacks" in capsys.readouterr().err
    assert marker.exists()
    (tmp_path / "mine.yaml").write_text("trust_imports: [os]\n")
    assert main(["fit", DIGITS, "--config=mine.yaml"]) == 2
    assert "unknown recipe key 'trust_imports'" in capsys.readouterr().err


def test_a_wrong_key_is_told_without_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from dna_suite.cli.main import main\n"
        f"codes = [main(['fit', '{DIGITS}', word]) for word in ('--model.lrr=1', '--trainer.max_epoch=1', '--data.rot=1')]\n"
        "codes += [main(['--help']), main(['fit', '--help']), main(['fit', '--config=tasks/digits.yaml', '--print_config'])]\n"
        "heavy = [name for name in ('torch', 'lightning', 'timm', 'numpy') if name in sys.modules]\n"
        "sys.exit(f'{codes} {heavy}' if codes != [2, 2, 2, 0, 0, 0] or heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
