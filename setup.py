"""The manual pages of the wheel, written from the commands' help while it is built. All else is in pyproject.toml."""

import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel

ROOT = Path(__file__).resolve().parent


class Wheel(bdist_wheel):
    """A wheel with manual pages."""

    def run(self) -> None:
        """Import the commands from this folder, write their pages, and build the wheel."""
        sys.path[:0] = [str(ROOT / folder) for folder in ("", "cli", "migrations", "docs")]
        import man_pages

        pages = man_pages.main(ROOT / "build" / "man")
        self.distribution.data_files = [("share/man/man1", [str(path.relative_to(ROOT)) for path in pages])]
        super().run()


setup(cmdclass={"bdist_wheel": Wheel})
