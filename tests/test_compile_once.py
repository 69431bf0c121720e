"""What is compiled once in a session of tests is what the compiler makes, and only for an equal command."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests import compile_once

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")]


def test_an_equal_command_is_answered_with_what_was_compiled(tmp_path: Path) -> None:
    """Another source or another flag is compiled; a comment at the end, as Inductor's, is no other source."""
    folder, source, made = tmp_path / compile_once.NAME, tmp_path / "one.cpp", tmp_path / "one.o"
    compile_once.install(folder)
    real = compile_once.afresh(os.environ["PATH"])

    def compiled(code: str, flag: str, path: str) -> bytes:
        source.write_text(code)
        made.unlink(missing_ok=True)
        environ = {**os.environ, "PATH": path}
        subprocess.run(["g++", source, flag, "-c", "-o", made], check=True, env=environ)
        return made.read_bytes()

    cases = [("int f() { return 1; }\n", "-O0"), ("int f() { return 2; }\n", "-O0"), ("int f() { return 2; }\n", "-O1")]
    expected = [compiled(*case, real) for case in cases]
    assert len(set(expected)) == 3
    for code, flag in cases:
        for end in ("", f"// g++ {source}\n"):
            assert compiled(code + end, flag, f"{folder}{os.pathsep}{real}") == expected[cases.index((code, flag))]
    assert compile_once.count(folder) == (3, 3)


def test_nothing_is_kept_of_a_command_that_fails(tmp_path: Path) -> None:
    """It fails as often as it is run, with what the compiler says."""
    folder, source = tmp_path / compile_once.NAME, tmp_path / "one.cpp"
    compile_once.install(folder)
    source.write_text("int f() { return nothing; }\n")
    for _ in range(2):
        environ = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
        command = ["g++", str(source), "-c", "-o", str(tmp_path / "one.o")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
        assert done.returncode == 1
        assert "nothing" in done.stderr
    assert compile_once.count(folder) == (0, 0)


def test_what_all_wrappers_have_is_compiled_once(tmp_path: Path) -> None:
    """Wrappers after the first ones do the same, and have the places of their code in torch's headers."""
    folder, headers = tmp_path / compile_once.NAME, tmp_path / "torch/csrc/inductor"
    compile_once.install(folder)
    for name in ("aoti_include", "aoti_runtime"):
        (headers / name).mkdir(parents=True)
    (headers / "aoti_include/cpu.h").write_text("#include <torch/csrc/inductor/aoti_runtime/model_base.h>\n")
    (headers / "aoti_runtime/model_base.h").write_text("""
        #pragma once
        #include <cstdint>
        #include <string>
        namespace torch::aot_inductor {
inline void parse_device_str(const std::string& name, int32_t& kind, int32_t& index) {
  kind = name.size();
  index = __LINE__;
}
        inline int line() { return __LINE__; }
        inline std::string file() { return __FILE__; }
        }
    """)
    environ = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    found = []
    for number in range(5):
        source, made, library = (tmp_path / f"{number}.{end}" for end in ("wrapper.cpp", "wrapper.o", "so"))
        source.write_text(f"""
#include <torch/csrc/inductor/aoti_include/cpu.h>
using namespace torch::aot_inductor;
extern "C" {{
int half() {{ return 4; }}
}} // extern "C"
extern "C" int half();
extern "C" int answer() {{
    int32_t kind, index;
    parse_device_str("cpu", kind, index);
    return half() * 10000000 + kind * 1000000 + index * 1000 + line() * 10 + {number};
}}
extern "C" const char* place() {{ static auto found = file(); return found.c_str(); }}
""")
        flags = ["-O1", "-fPIC", f"-I{tmp_path}"]
        subprocess.run(["g++", source, *flags, "-c", "-o", made], check=True, env=environ)
        subprocess.run(["g++", made, "-shared", "-o", library], check=True, env=environ)
        loaded = ctypes.CDLL(str(library))
        loaded.place.restype = ctypes.c_char_p
        found.append((loaded.answer(), loaded.place()))
    assert found == [(43008100 + number, str(headers / "aoti_runtime/model_base.h").encode()) for number in range(5)]
    assert len(list(folder.glob("*/half.o"))) == 1
