"""report.html and report.md as files: self-contained, well-formed, escaped, small enough."""

import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
import synthetic_run
from synthetic_run import Options

from fleetmark import report, store

_VOID = {"meta", "link", "img", "br", "hr", "input", "wbr"}
_NEEDS = {"src", "href", "action", "data", "poster", "srcset"}


class _Page(HTMLParser):
    """Collects what a browser would load, and checks that every element is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.ids: Counter[str] = Counter()
        self.anchors: list[str] = []
        self.elements: Counter[str] = Counter()
        self.problems: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[tag] += 1
        for name, value in attrs:
            if name == "id":
                self.ids[value or ""] += 1
            if name in _NEEDS:
                (self.anchors if (value or "").startswith("#") else self.loads).append(value or "")
        if tag == "th" and "scope" not in dict(attrs):
            self.problems.append("th without scope")
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"stray </{tag}>")

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def _read(path: Path) -> tuple[str, _Page]:
    text = path.read_text()
    page = _Page()
    page.feed(text)
    page.close()
    return text, page


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> store.RunDirectory:
    trial = "db1.mariadb.dw0.insert_benchmark.r1"
    options = Options(
        repeats=2,
        stall=True,
        taints=((trial, "06-qr100", "start_error", 'load2 <b>late</b> | "62 ms"'),),
    )
    run = synthetic_run.write(tmp_path_factory.mktemp("r"), options)
    written = report.write(run)
    assert written == [run.path / "report.html", run.path / "report.md"]
    return run


def test_the_page_needs_nothing_from_outside(run: store.RunDirectory) -> None:
    text, page = _read(run.path / "report.html")
    assert page.loads == []
    assert page.elements["script"] == 0
    assert "@import" not in text
    assert re.findall(r"url\((?!#)", text) == []
    assert "http:" not in text
    assert "https:" not in text


def test_the_page_is_well_formed_and_accessible(run: store.RunDirectory) -> None:
    _, page = _read(run.path / "report.html")
    assert page.open == []
    assert page.problems == []
    assert [i for i, n in page.ids.items() if n > 1] == []
    assert [a for a in page.anchors if a[1:] not in page.ids] == []
    assert page.elements["caption"] == page.elements["table"] > 10
    # Two charts for each of eight measured steps, each with words of its own.
    charts = page.elements["figure"]
    assert charts == 16
    assert page.elements["desc"] == charts
    # One more: the title of the page.
    assert page.elements["title"] == charts + 1


def test_text_from_the_run_is_escaped(run: store.RunDirectory) -> None:
    text, page = _read(run.path / "report.html")
    assert "<b>late" not in text
    assert "<b>late</b>" in "".join(page.text)


def test_charts_follow_the_page_in_light_and_dark(run: store.RunDirectory) -> None:
    text, _ = _read(run.path / "report.html")
    assert "prefers-color-scheme: dark" in text
    charts = re.findall(r"<svg viewBox[^>]*role=\"img\".*?</svg>", text, flags=re.S)
    assert len(charts) == 16
    for chart in charts:
        assert "var(--ink)" in chart
        assert "<style" not in chart
        assert re.findall(r"#0101", chart) == []


def test_markdown_has_the_tables_and_the_notes(run: store.RunDirectory) -> None:
    text = (run.path / "report.md").read_text()
    assert "| target.build.config | l.i0, rows/s | l.x, rows/s |" in text
    row = next(line for line in text.splitlines() if line.startswith("| db1.mariadb.dw0 |"))
    assert "▲ 5,400 (5,400–5,400)" in row
    assert re.search(r"4,860 \([^)]*\)\[\^1\]", row)
    assert r"[^1]: db1.mariadb.dw0, qr100: start\_error: load2 \<b>late\</b> \| " in text
    for line in text.splitlines():
        if line.startswith("|"):
            assert line.endswith("|")


def test_reports_are_not_evidence(run: store.RunDirectory) -> None:
    assert store.verify_sums(run)[1] == []
