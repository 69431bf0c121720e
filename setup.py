"""What pyproject.toml cannot say: manual pages in the wheel, and an editable install that type checkers find."""

import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.editable_wheel import _StaticPth, editable_wheel

ROOT = Path(__file__).resolve().parent
FOLDERS = [ROOT, ROOT / "cli", ROOT / "migrations"]


class Wheel(bdist_wheel):
    """A wheel with manual pages."""

    def run(self) -> None:
        """Import the commands from this folder, write their pages, and build the wheel."""
        sys.path[:0] = map(str, [*FOLDERS, ROOT / "docs"])
        import man_pages

        pages = man_pages.main(ROOT / "build" / "man")
        self.distribution.data_files = [("share/man/man1", [str(path.relative_to(ROOT)) for path in pages])]
        super().run()


class EditableWheel(editable_wheel):
    """An editable install by paths, as of a project with one folder of packages.

    For several folders setuptools installs an import hook instead, which mypy and editors do not run.
    """

    def _select_strategy(self, name: str, tag: str, build_lib: object) -> _StaticPth:  # noqa: ARG002
        return _StaticPth(self.distribution, name, FOLDERS)


setup(cmdclass={"bdist_wheel": Wheel, "editable_wheel": EditableWheel})
