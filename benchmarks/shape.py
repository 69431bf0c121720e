"""Print the shape of the package: ``make shape``. Packages, files, lines, layers, helpers, and what an import loads."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "trtcache"


@dataclass(frozen=True)
class Shape:
    """What ``make shape`` measures.

    Attributes:
        packages: folders of modules directly in ``trtcache/``.
        loose_files: modules directly in ``trtcache/``, without ``__init__.py``.
        files: modules in all.
        lines: lines of all modules.
        layers: rows of the layer contract in ``pyproject.toml``.
        code_lines_for_each_private_helper: lines that are neither empty nor comments, for each function whose name
            begins with an underscore (dunder methods aside).
        function_lines: lines of functions at the median, at 90 % and of the longest.
        public_classes_twice: names that more than one public class has.
        imports_of_a_cache: modules that ``from trtcache import Cache`` loads.
        places_that_tell_sources_apart: ``isinstance`` checks for a kind of program outside of ``frontends/resolve.py``.
        hits: calls, files, frames and stored entries of warm hits (``benchmarks.hit_shape``).
    """

    packages: int
    loose_files: int
    files: int
    lines: int
    layers: int
    code_lines_for_each_private_helper: int
    function_lines: tuple[int, int, int]
    public_classes_twice: tuple[str, ...]
    imports_of_a_cache: int
    places_that_tell_sources_apart: int
    hits: dict[str, dict[str, int]]


def measure() -> Shape:
    """Measure the package in this checkout."""
    paths = sorted(PACKAGE.rglob("*.py"))
    texts = [path.read_text(encoding="utf-8") for path in paths]
    trees = [ast.parse(text) for text in texts]
    functions = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    classes = [node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    helpers = [node for node in functions if node.name.startswith("_") and not node.name.startswith("__")]
    code = sum(bool(line.strip()) and not line.strip().startswith("#") for text in texts for line in text.splitlines())
    lengths = sorted((node.end_lineno or node.lineno) - node.lineno + 1 for node in functions)
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return Shape(
        packages=sum(path.is_dir() and path.name != "__pycache__" for path in PACKAGE.iterdir()),
        loose_files=sum(path.suffix == ".py" and path.name != "__init__.py" for path in PACKAGE.iterdir()),
        files=len(paths),
        lines=sum(text.count("\n") for text in texts),
        layers=len(settings["tool"]["importlinter"]["contracts"][0]["layers"]),
        code_lines_for_each_private_helper=code // max(1, len(helpers)),
        function_lines=(lengths[len(lengths) // 2], lengths[len(lengths) * 9 // 10], lengths[-1]),
        public_classes_twice=tuple(
            sorted({name for name in classes if not name.startswith("_") and classes.count(name) > 1})
        ),
        imports_of_a_cache=int(_run("-c", "import sys; from trtcache import Cache; print(len(sys.modules))")),
        places_that_tell_sources_apart=sum(
            _tells_sources_apart(node)
            for path, tree in zip(paths, trees, strict=True)
            if path != PACKAGE / "frontends" / "resolve.py"
            for node in ast.walk(tree)
        ),
        hits=measure_hits(),
    )


def measure_hits() -> dict[str, dict[str, int]]:
    """Return calls, files, frames and stored entries of warm hits, measured in a process of its own."""
    hits = json.loads(_run("-W", "ignore", "-m", "benchmarks.hit_shape").splitlines()[-1])
    return {way: {name: value for name, value in hit.items() if name != "deepest"} for way, hit in hits.items()}


def _tells_sources_apart(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance"):
        return False
    names = {getattr(part, "attr", getattr(part, "id", "")) for part in ast.walk(node.args[1])}
    return bool(
        names & {"ExportedProgram", "ScriptModule", "ModuleSource", "ExportedSource", "OnnxSource", "Pt2Source"}
    )


def _run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


if __name__ == "__main__":
    found = asdict(measure())
    if "--json" in sys.argv[1:]:
        print(json.dumps(found))
    else:
        hits = found.pop("hits")
        for name, value in found.items():
            print(f"{name.replace('_', ' '):40} {value}")
        for way, hit in hits.items():
            counts = ", ".join(f"{value} {name}" for name, value in hit.items())
            print(f"{f'a warm hit, {way}'.replace('_', ' '):40} {counts}")
