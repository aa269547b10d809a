from dna_suite.runs.metrics_csv import MetricsCsv


def test_every_row_is_on_disk_when_it_was_logged(tmp_path):
    path = tmp_path / "run" / "metrics.csv"
    logger = MetricsCsv(path)
    logger.log_metrics({"train/loss": 0.1, "epoch": 0}, step=2)
    assert path.read_text().splitlines() == ["step,train/loss,epoch", "2,0.1,0"]
    logger.log_metrics({"train/loss": 1 / 3}, step=4)
    assert path.read_text().splitlines()[1:] == ["2,0.1,0", "4,0.3333333333333333,"]


def test_what_belongs_to_one_step_shares_a_row(tmp_path):
    logger = MetricsCsv(tmp_path / "metrics.csv")
    logger.log_metrics({"a": 1.0}, step=1)
    logger.log_metrics({"b": 2.0}, step=1)
    logger.log_metrics({"a": 3.0, "b": 4.0}, step=2)
    logger.log_metrics({"a": 5.0}, step=2)
    logger.log_metrics({"a": 6.0}, step=3)
    assert logger.path.read_text().splitlines() == ["step,a,b", "1,1.0,2.0", "2,5.0,4.0", "3,6.0,"]


def test_a_later_process_goes_on_with_the_file_even_if_its_last_line_was_cut_off(tmp_path):
    path = tmp_path / "metrics.csv"
    first = MetricsCsv(path)
    for step in (1, 2, 3):
        first.log_metrics({"a": step / 10, "b": 1.0}, step=step)
    path.write_text(path.read_text() + "4,0.")
    cut = path.read_text()
    second = MetricsCsv(path)
    # Every process of a run makes a logger; only the first may write.
    assert path.read_text() == cut
    second.log_metrics({"c": 7}, step=5)
    assert path.read_text().splitlines() == ["step,a,b,c", "1,0.1,1.0,", "2,0.2,1.0,", "3,0.3,1.0,", "5,,,7"]


def test_rewinding_drops_later_rows_and_keeps_the_step_itself(tmp_path):
    logger = MetricsCsv(tmp_path / "metrics.csv")
    for step in (1, 2, 3):
        logger.log_metrics({"a": float(step)}, step=step)
    logger.rewind(2)
    logger.log_metrics({"a": 9.0}, step=3)
    assert logger.path.read_text().splitlines() == ["step,a", "1,1.0", "2,2.0", "3,9.0"]
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.csv"]
