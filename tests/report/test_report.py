"""The page that a result is written to: complete, self-contained, and shown by a browser."""

import re
import shutil
import subprocess
import xml.etree.ElementTree
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cmt_numba.bandits import EpsilonGreedy
from cmt_numba.bandits.evaluation import Log, evaluate
from cmt_numba.evaluation import BatchResult, Confusion, ProgressiveResult, Rival
from cmt_numba.report import write_bandit_report, write_report

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

LOADING = {"src", "srcset", "href", "xlink:href", "data", "action", "background", "poster"}
NEVER_CLOSED = {"meta", "br", "link", "img", "hr", "input"}


def progressive(task: str = "multiclass") -> ProgressiveResult:
    n = [1, 10, 100, 1000]
    names = ["error", "majority_accuracy"] if task == "multiclass" else ["hamming", "precision@1"]
    values = [[1.0, 0.9, 0.5, 0.2], [0.0, 0.1, 0.01, 0.01]]
    curve: dict[str, list[Any]] = {"n_examples": n}
    for name, column in zip(names, values, strict=True):
        curve |= {name: column, f"{name}_recent": column}
    shots = {"n_shots": list(range(300)), "error": (1 / np.arange(1, 301)).tolist(), "n_examples": [5] * 300}
    return ProgressiveResult(
        task=task,
        n_examples=1000,
        metrics={name: column[-1] for name, column in zip(names, values, strict=True)},
        curve=curve,
        seconds={"predict": 1.5, "learn": 3.25},
        us_per_query=12.5,
        by_shots=shots if task == "multiclass" else {},
    )


def batch(task: str = "multiclass", n_seeds: int = 2) -> BatchResult:
    name = "error" if task == "multiclass" else "hamming"
    return BatchResult(
        task=task,
        n_train=800,
        n_test=200,
        metrics={name: (0.25, 0.0125), "accuracy <&>": (0.75, 0.0125)},
        per_seed=[{name: 0.2625, "accuracy <&>": 0.7375}, {name: 0.2375, "accuracy <&>": 0.7625}][:n_seeds],
        seconds_fit=2.5,
        us_per_query=17.0,
        rivals=[
            Rival("estimator", 0.2375, 2.5, 17.0),
            Rival("exact", 0.3, 0.1, 90.0, "on 100 of the held-out examples"),
            Rival("linear", None, note="skipped: too large"),
        ],
        confused=[Confusion("<cat>", "dog", 7, ["a cat & a dog", "cats"])] if task == "multiclass" else [],
        calibration={"probability": [0.3, 0.9], "accuracy": [0.4, 0.8], "n_examples": [50, 150]}
        if task == "multiclass"
        else {},
    )


class Page(HTMLParser):
    """Reads a page, and refuses one whose elements are not properly nested."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in NEVER_CLOSED:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def values(self, name: str) -> list[str]:
        return [value for _, attribute, value in self.attributes if attribute == name]


def pictures(text: str) -> dict[str, xml.etree.ElementTree.Element]:
    """Return the plots of a page by their names."""
    found = re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL)
    parsed = [xml.etree.ElementTree.fromstring(svg) for svg in found]
    return {one.attrib["aria-labelledby"].split("-")[0]: one for one in parsed}


RESULTS = [
    (progressive(), {"curve", "shots"}),
    (progressive("multilabel"), {"curve"}),
    (batch(), {"calibration"}),
    (batch("multilabel", 1), set()),
]


@pytest.mark.parametrize(("result", "names"), RESULTS)
def test_page(tmp_path: Path, result: Any, names: set[str]):
    path = tmp_path / "report.html"
    write_report(path, result, title="a <b> & c", command="cmt-numba evaluate 'a <b>.svm'")
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    words = " ".join("".join(page.words).split())
    assert "a <b> & c" in words
    assert "cmt-numba evaluate 'a <b>.svm'" in words
    assert "numpy " + np.__version__ in words
    assert "script" not in page.tags
    assert not any(name.startswith("on") for _, name, _ in page.attributes)
    assert all(value.startswith("#") for _, name, value in page.attributes if name in LOADING)
    assert not re.search(r"@import|url\((?!#)", text)
    assert page.tags.count("figcaption") == page.tags.count("svg") == len(names)
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    assert all(value[1:] in ids for _, name, value in page.attributes if name in LOADING)
    assert all(value in ids for value in re.findall(r"url\(#([^)]+)\)", text))
    assert all(value in ids for values in page.values("aria-labelledby") for value in values.split())

    svgs = pictures(text)
    assert set(svgs) == names
    for svg in svgs.values():
        assert len(list(svg.iter("{http://www.w3.org/2000/svg}path"))) > 5
        assert len(list(svg.iter("{http://www.w3.org/2000/svg}text"))) > 5
        assert svg.findtext("{http://www.w3.org/2000/svg}desc")
        assert svg.attrib["role"] == "img"
    assert "#01020" not in text  # every colour is one of the page's


def drawn_points(svg: xml.etree.ElementTree.Element, colour: str) -> np.ndarray:
    """Return the corners of the first line of a colour."""
    for path in svg.iter("{http://www.w3.org/2000/svg}path"):
        if f"stroke: var(--{colour})" in path.attrib.get("style", "") and "fill: none" in path.attrib["style"]:
            numbers = re.findall(r"-?\d+\.?\d*", path.attrib["d"])
            return np.array(numbers, np.float64).reshape(-1, 2)
    raise AssertionError(colour)


def test_lines_show_the_numbers(tmp_path: Path):
    write_report(tmp_path / "a.html", progressive())
    points = drawn_points(pictures((tmp_path / "a.html").read_text())["curve"], "first")
    assert points.shape == (4, 2)
    assert np.ptp(np.diff(points[:, 0])) < 0.01  # 1, 10, 100, 1000 on a logarithmic axis
    drops = np.diff(points[:, 1])  # downwards in a picture
    assert np.allclose(drops / drops[0], np.array([0.1, 0.4, 0.3]) / 0.1, rtol=1e-3)


def test_rivals_and_confusions_are_shown(tmp_path: Path):
    write_report(tmp_path / "a.html", batch())
    text = (tmp_path / "a.html").read_text()
    cells = [" ".join(word.split()) for word in Page(text).words]
    words = " ".join(cell for cell in cells if cell)
    assert "nearest example 0.3000 0.1 90 on 100 of the held-out examples" in words
    assert "linear model - - - skipped: too large" in words
    assert "<cat> dog 7 a cat & a dog; cats" in words
    assert "expected calibration error) is 0.100" in words


@pytest.mark.parametrize(("result", "value"), [(progressive(), -np.inf), (batch(), (-np.inf, np.nan))])
def test_infinite_entropy_reductions_are_explained(tmp_path: Path, result: Any, value: Any):
    write_report(tmp_path / "a.html", result._replace(metrics=result.metrics | {"entropy_reduction": value}))
    words = " ".join("".join(Page((tmp_path / "a.html").read_text()).words).split())
    assert "-inf (a run had no correct prediction)" in words
    assert "nan" not in words


def test_equal_results_give_equal_pages(tmp_path: Path):
    for name in ("a.html", "b.html"):
        write_report(tmp_path / name, batch())
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "jinja2", None)
    with pytest.raises(ImportError, match=r"a report needs jinja2: pip install 'cmt-numba\[cli\]'"):
        write_report(tmp_path / "a.html", batch())


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs the browser chromium")
def test_browser_shows_it(tmp_path: Path):
    write_report(tmp_path / "a.html", progressive())
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"]
    command += ["--disable-background-networking", "--disable-component-update", "--window-size=1100,1500"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", (tmp_path / "a.html").as_uri()]
    done = subprocess.run(command, capture_output=True, timeout=120, check=True)
    shown = done.stdout.decode()
    assert shown.count("<svg") == shown.count("</svg>") == 2
    assert shown.count("<figcaption>") == 2
    command[-2] = f"--screenshot={tmp_path / 'a.png'}"
    subprocess.run(command, capture_output=True, timeout=120, check=True)
    from matplotlib.image import imread

    picture = imread(tmp_path / "a.png")[:, :, :3]
    blue = np.all(np.abs(picture - np.array([0x0B, 0x6E, 0x99]) / 255) < 0.02, axis=2)
    assert np.count_nonzero(blue[:600]) > 150  # the curve
    assert np.count_nonzero(blue[600:]) > 3000  # the bars


def test_a_report_of_several_policies_names_the_choice(tmp_path: Path):
    log = Log(np.arange(40) % 2, np.ones(40), propensities=np.full(40, 0.5))
    result = evaluate({"a": EpsilonGreedy(2, epsilon=1.0), "b": EpsilonGreedy(2)}, log)
    with pytest.raises(TypeError, match=r"contains several: pass result\['a'\]"):
        write_bandit_report(tmp_path / "report.html", result)
    assert not (tmp_path / "report.html").exists()
    write_bandit_report(tmp_path / "report.html", result["a"])
