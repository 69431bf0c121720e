"""The page of ``trtcache report`` in a real browser: phone and desktop, light and dark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.browser import CHROMIUM, Browser

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from trtcache.store.disk import DiskStore

    from .conftest import Result

HOSTILE = "<script>alert(1)</script>"

CONTRAST = """
(() => {
  const parse = text => { const v = text.match(/[\\d.]+/g).map(Number); return v.length > 3 ? v : [...v, 1]; };
  const light = c => c.slice(0, 3).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = element => {
    for (; element; element = element.parentElement) {
      const colour = parse(getComputedStyle(element).backgroundColor);
      if (colour[3] === 1) return colour;
    }
    return [255, 255, 255, 1];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, element = node.parentElement;
    if (!node.data.trim() || element.closest("svg, .hidden")) continue;
    const [a, b] = [parse(getComputedStyle(element).color), behind(element)].map(light);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.push(node.data.trim().slice(0, 40) + " " + ratio.toFixed(2));
  }
  return found;
})()
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Chromium, which is in Debian's packages."""
    if CHROMIUM is None:
        pytest.skip("the page was NOT opened in a browser: install one with apt-get install chromium")
    with Browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_the_page_is_readable(
    run: Callable[..., Result],
    put: Callable[..., str],
    store: DiskStore,
    browser: Browser,
    tmp_path: Path,
    width: int,
    scheme: str,
) -> None:
    """One request, nothing on the console, no sideways scrolling, enough contrast, and hostile names as text."""
    for number in range(1, 16):
        put(number, name=HOSTILE if number == 1 else f"model-{'x' * 10 * number}/{number}")
    for _ in range(3):
        store.events.append("hit", kind="test", saved_s=50.0)
        store.events.append("miss", kind="test", reason=HOSTILE)
    matrix = tmp_path / "matrix.toml"
    files = ", ".join(f'"{"y" * 40}-{number}.pt2"' for number in range(4))
    matrix.write_text(f'[[cells]]\nfile = [{files}]\ntarget = ["x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"]\n')
    path = tmp_path / "report.html"
    assert run("report", "--html", path, "--matrix", matrix).code == 0
    browser.messages.clear()
    browser.open(path.as_uri(), width=width, scheme=scheme)
    # The icon is in the page: a request of it is for its own bytes.
    assert [url for url in browser.requests if not url.startswith("data:")] == [path.as_uri()]
    assert browser.messages == []
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate("document.scripts.length") == 0
    assert "<script>alert(1)</script>" in browser.evaluate("document.body.innerText")
    assert browser.evaluate(CONTRAST) == []
    shade = browser.evaluate("getComputedStyle(document.body).backgroundColor").strip("rgb()").split(",")
    assert (int(shade[0]) < 128) == (scheme == "dark")
    assert browser.evaluate(
        "[...document.querySelectorAll('table')].every(table => table.querySelector('th[scope=col]'))"
    )
    browser.print(tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
