"""`dna tables`: the results table of the README, made from committed records."""

from __future__ import annotations

from pathlib import Path

from dna_suite.cli.argv import Parser
from dna_suite.cli.report import markdown
from dna_suite.errors import DnaError
from dna_suite.runs.report import build_report
from dna_suite.runs.tables import place

SUMMARY = "write the results table of the README"


def run(arguments: list[str]) -> int:
    """Write the tables of committed results into a document, or say whether they stand there already.

    Returns:
        0, or 1 where `--check` finds a document that is out of date.

    Raises:
        DnaError: a record cannot be read, or the document is missing or has no markers.
    """
    parser = Parser("dna tables", SUMMARY)
    parser.add_argument("--results", default="results", metavar="DIR", help="folder of the committed records (results)")
    parser.add_argument("--document", default="README.md", metavar="FILE", help="Markdown file with report markers (README.md)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 where the document is out of date")
    given = parser.parse_args(arguments)
    path = Path(given.document)
    if not path.is_file():
        raise DnaError(f"no file {path}; --document names the Markdown file that gets the tables")
    document = path.read_text(encoding="utf-8")
    try:
        current = place(document, results_text(Path(given.results)))
    except DnaError as error:
        raise DnaError(f"{path}: {error}") from None
    if given.check:
        print(f"{path} {'is current' if document == current else 'is out of date: make tables'}")
        return 0 if document == current else 1
    path.write_text(current, encoding="utf-8")
    print(f"{path} holds the tables of {given.results}")
    return 0


def results_text(folder: Path) -> str:
    """The Markdown tables of every record below a folder; one sentence where there is none.

    Raises:
        DnaError: a record cannot be read, or belongs to a run that was stopped.
    """
    if not any(folder.rglob("result.json")):
        return "No result is committed yet."
    report = build_report([folder])
    wrong = [*report.unreadable, *report.unfinished]
    if wrong:
        raise DnaError(wrong[0])
    return markdown(report)
