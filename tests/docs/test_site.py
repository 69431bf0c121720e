"""The documentation site builds without a warning, and search finds pages."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.browser import CHROMIUM, Browser
from tests.conftest import environ_untraced
from tests.documents import ROOT

if TYPE_CHECKING:
    from pathlib import Path

for library in ("sphinx", "myst_parser", "furo", "sphinx_click", "sphinx_design", "sphinx_copybutton"):
    pytest.importorskip(library, reason="the site's libraries: pip install 'trtcache[docs]'")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as ``make docs`` builds it; a warning, such as for a link to nowhere, is an error."""
    folder = tmp_path_factory.mktemp("site")
    options = ("-E", "-W", "--keep-going", "-q", "-b", "html", "-d", str(folder / "doctrees"))
    sources = ":".join(str(ROOT / name) for name in ("", "cli", "migrations"))
    environment = environ_untraced()
    environment["PYTHONPATH"] = f"{sources}:{environment.get('PYTHONPATH', '')}"
    command = [sys.executable, "-W", "ignore", "-m", "sphinx", *options, str(ROOT / "docs"), str(folder / "html")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "html"


def test_the_reference_has_commands_and_functions(site: Path) -> None:
    """From click and from docstrings."""
    assert "--max-size" in (site / "commands.html").read_text()
    assert 'id="trtcache.compile"' in (site / "api.html").read_text()
    assert "min_block_size" in (site / "settings.html").read_text()
    assert "BuildForbiddenError" in (site / "errors.html").read_text()


def test_the_reference_has_nothing_of_this_machine(site: Path) -> None:
    """A default of ``os.environ`` would publish all variables, and a first line with a colon is read as a type."""
    text = "".join((site / f"{name}.html").read_text() for name in ("api", "settings", "errors"))
    assert "environ({" not in text
    assert "Mapping[str,str]=os.environ" in re.sub(r"<[^>]+>|\s", "", text)
    assert ">Type<" not in text
    assert str(ROOT) not in text


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_pages_fit_and_search_finds(site: Path, tmp_path: Path) -> None:
    """No page is wider than a phone, nothing is requested from elsewhere, and a search for a word has results."""
    with Browser(tmp_path / "profile") as browser:
        for width in (390, 1280):
            for name in ("index", "tutorial-server", "commands", "benchmarks", "architecture"):
                browser.open((site / f"{name}.html").as_uri(), width=width)
                overflow = browser.evaluate(
                    "document.documentElement.scrollWidth - document.documentElement.clientWidth"
                )
                assert overflow <= 0, (name, width)
                assert [url for url in browser.requests if not url.startswith(("file:", "data:"))] == []
        browser.open((site / "search.html").as_uri() + "?q=refit", width=1280)
        found = 0
        for _ in range(100):
            found = browser.evaluate("document.querySelectorAll('#search-results li').length")
            if found:
                break
            browser.evaluate("new Promise(done => setTimeout(done, 100)) && 0")
        assert found
