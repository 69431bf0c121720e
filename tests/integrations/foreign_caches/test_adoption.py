"""Other tools' caches are listed and brought in, and nothing of them is unpickled."""

from __future__ import annotations

import os
import pickle
import random
from typing import TYPE_CHECKING

import pytest

from tests.effort import tries
from tests.integrations.foreign_caches.layouts import (
    NAMES,
    blob,
    ep_context,
    onnxruntime_cache,
    rtx_plan,
    tensorrt_plan,
    torch_tensorrt_cache,
)
from tests.store.mutations import mutations
from trtcache.config.signing_keys import Trust
from trtcache.digests import Digest
from trtcache.errors import SettingsError, UntrustedWriterError
from trtcache.integrations.foreign_caches.adoption import adopted_key, plan_adoption
from trtcache.integrations.foreign_caches.layouts import PlanHeader, read_header
from trtcache.store.catalog import load_records
from trtcache.store.contract import Entry
from trtcache.store.disk import DiskStore

if TYPE_CHECKING:
    from pathlib import Path

    from trtcache.integrations.foreign_caches.layouts import Find

REAL = {
    "1.4 sm_75 sm_89": "76747274000000000200000000000000 6c040200000000000104004c76747274 09000000",
    "1.7 default": "76747274000000000200000000000000 8c0b0200000000000107017476747274 7e000000",
    "1.7 sm_121": "76747274000000000200000000000000 3c0c0200000000000107017476747274 20000000",
}
"""How plans of TensorRT-RTX begin that were built on a CPU."""


def finds(tool: str, root: Path) -> dict[str, Find]:
    """Return what a cache holds, by the last part of its name."""
    return {find.name.rpartition("/")[0] or find.name: find for find in plan_adoption(tool, root).finds}


@pytest.mark.parametrize(
    ("which", "version", "capabilities", "size_bytes"),
    [
        ("1.4 sm_75 sm_89", "1.4.0.76", ("7.5", "8.9"), 132204),
        ("1.7 default", "1.7.1.116", ("8.0", "8.6", "8.9", "12.0", "12.1"), 134028),
        ("1.7 sm_121", "1.7.1.116", ("12.1",), 134204),
    ],
    ids=list(REAL),
)
def test_plans_of_tensorrt_rtx_say_version_and_capabilities(
    which: str, version: str, capabilities: tuple[str, ...], size_bytes: int
) -> None:
    """And their length, so that a cut one is told."""
    head = bytes.fromhex(REAL[which]).ljust(64, b"\0")
    assert read_header(head, size_bytes) == PlanHeader("TensorRT-RTX", version, capabilities)
    with pytest.raises(ValueError, match="bytes long, and its header declares"):
        read_header(head, size_bytes - 1)


def test_a_plan_that_is_built_here_begins_so() -> None:
    """By the version of TensorRT-RTX that is installed, for two capabilities."""
    trt = pytest.importorskip("tensorrt_rtx")
    builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
    network = builder.create_network(0)
    result = network.add_activation(network.add_input("x", trt.float32, (8, 16)), trt.ActivationType.RELU)
    network.mark_output(result.get_output(0))
    config = builder.create_builder_config()
    config.num_compute_capabilities = 2
    config.set_compute_capability(trt.ComputeCapability.SM86, 0)
    config.set_compute_capability(trt.ComputeCapability.SM120, 1)
    plan = bytes(builder.build_serialized_network(network, config))
    found = read_header(plan[:64], len(plan))
    assert (found.library, found.capabilities) == ("TensorRT-RTX", ("8.6", "12.0"))
    assert found.version is not None
    assert trt.__version__.startswith(found.version)


@pytest.mark.parametrize(
    ("head", "found"),
    [
        (tensorrt_plan(), PlanHeader("TensorRT", "10.9.0.34", ())),
        (b"ftrt\1" + tensorrt_plan()[5:], PlanHeader("TensorRT", None, ())),
        (b"ptrt" + tensorrt_plan()[4:], PlanHeader("TensorRT", None, ())),
        (b"vtrt\1" + rtx_plan("8.9")[5:], PlanHeader("TensorRT-RTX", None, ())),
    ],
    ids=["documented", "another layout", "before 8.6", "another rtx"],
)
def test_of_another_layout_no_more_is_said_than_who_made_it(head: bytes, found: PlanHeader) -> None:
    """A version is read where it is known to be."""
    assert read_header(head[:64], len(head)) == found


def test_a_torch_tensorrt_cache_is_listed(tmp_path: Path) -> None:
    """Engines with what their plans say; what cannot be keyed with its reason; nothing is unpickled."""
    found = finds("torch-tensorrt", torch_tensorrt_cache(tmp_path / "cache"))
    rtx, tensorrt, again, empty, cut = (found[name] for name in NAMES)
    assert (rtx.state, rtx.capabilities, rtx.told_by) == ("sound", ("8.9",), "header")
    assert rtx.digest == Digest.of(rtx_plan("8.9"))
    assert tensorrt.plan == PlanHeader("TensorRT", "10.9.0.34", ())
    assert (again.state, NAMES[0] in again.why) == ("duplicate", True)
    assert (empty.state, cut.state) == ("orphan", "damaged")
    assert (found["timing_cache.bin"].what, found["timing_cache.bin"].is_importable) == ("timing", False)
    assert not (tmp_path / "trap").exists()
    with pytest.raises(FileExistsError):
        pickle.loads(blob(b"", tmp_path))  # noqa: S301  # that is what unpickling one would do


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_an_engine_is_found_under_every_protocol_that_has_bytes(protocol: int, tmp_path: Path) -> None:
    """Of 3 and later, short and long; of earlier ones, where bytes are text, it is said that there is none."""
    for plan in (rtx_plan("8.6"), rtx_plan("8.6", content=bytes(1 << 20))):
        path = tmp_path / str(len(plan)) / "name" / "blob.bin"
        path.parent.mkdir(parents=True)
        path.write_bytes(blob(plan, tmp_path / "trap", protocol=protocol))
        (found,) = plan_adoption("torch-tensorrt", path.parent.parent).finds
        assert found.state == ("sound" if protocol >= 3 else "damaged")
        assert found.digest == (Digest.of(plan) if protocol >= 3 else None)


@pytest.mark.parametrize("size_bytes", [100, 70 << 10, 1 << 20])
def test_an_engine_that_is_a_bytearray_is_found(size_bytes: int, tmp_path: Path) -> None:
    """Short and long: protocol 5 has an instruction for it."""
    plan = rtx_plan("8.6", content=bytes(size_bytes))
    path = tmp_path / "cache" / "name" / "blob.bin"
    path.parent.mkdir(parents=True)
    path.write_bytes(pickle.dumps({"serialized_engine": bytearray(plan), "input_names": ["x"]}, 5))
    (found,) = plan_adoption("torch-tensorrt", tmp_path / "cache").finds
    assert (found.state, found.digest) == ("sound", Digest.of(plan)), found.why


def test_an_onnxruntime_cache_is_listed(tmp_path: Path) -> None:
    """Capabilities are from the header, the name or the context, and it is said which."""
    found = finds("onnxruntime", onnxruntime_cache(tmp_path / "cache"))
    short = {name.removeprefix("TensorrtExecutionProvider_"): find for name, find in found.items()}
    stem = "TRTKernel_graph_main_graph_10172195925358092734_0_0"
    said = {name: (find.what, find.state, find.capabilities, find.told_by) for name, find in short.items()}
    assert said == {
        f"{stem}_fp16_sm89.engine": ("engine", "sound", ("8.9",), "name"),
        f"{stem}_fp16_sm89.profile": ("profile", "no engine", (), ""),
        f"{stem}_sm80+.engine": ("engine", "sound", ("8.0+",), "name"),
        f"{stem}_sm86.stripped.engine": ("engine", "sound", ("8.6",), "name"),
        f"{stem}_sm90.engine": ("engine", "damaged", (), ""),
        "cache_sm89.timing": ("timing", "no engine", (), ""),
        "gone_sm89.profile": ("profile", "orphan", (), ""),
        "secret_sm89.engine.encrypted": ("encrypted", "no engine", (), ""),
        "inside_ctx.onnx": ("engine", "sound", ("8.9",), "context"),
        "beside_ctx.onnx": ("context", "no engine", (), ""),
        "lost_ctx.onnx": ("context", "orphan", (), ""),
        "hostile_ctx.onnx": ("context", "unsafe", (), ""),
    }
    assert "weights are not in it" in short[f"{stem}_sm86.stripped.engine"].why


def test_engines_are_brought_in_under_keys_that_say_where_from(tmp_path: Path) -> None:
    """Their bytes are what they were, a second time they are there, and the cache is left as it is."""
    root, store = onnxruntime_cache(tmp_path / "cache"), DiskStore.open(tmp_path / "store")
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in root.iterdir()}
    plan = plan_adoption("onnxruntime", root)
    assert [one.state for one in plan.execute(store, pin=True)] == ["adopted"] * 4
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in root.iterdir()} == before
    inside = tensorrt_plan(b"inside")
    entry = store.get(adopted_key("onnxruntime", "inside_ctx.onnx", Digest.of(inside)))
    assert isinstance(entry, Entry)
    assert entry.read("engine") == inside
    assert entry.provenance["capabilities"] == "8.9 by its context"
    assert len(load_records(store)) == len(store.pins()) == 4
    assert [one.state for one in plan.execute(store)] == ["there"] * 4


def test_an_engine_that_changed_since_is_not_brought_in(tmp_path: Path) -> None:
    """By other bytes, a cut, or another file in its place."""
    root, store = onnxruntime_cache(tmp_path / "cache"), DiskStore.open(tmp_path / "store")
    plan = plan_adoption("onnxruntime", root)
    first, second, third, _ = (find.path for find in plan.engines)
    first.write_bytes(first.read_bytes()[:-1] + b"?")
    second.write_bytes(second.read_bytes()[:-1])
    third.unlink()
    third.symlink_to(first)
    assert [one.state for one in plan.execute(store)] == ["changed", "changed", "changed", "adopted"]


@pytest.mark.parametrize("what", ["link", "fifo", "hard link", "written by all", "directory", "folder", "unreadable"])
def test_what_others_could_have_written_is_unsafe(what: str, tmp_path: Path) -> None:
    """It is listed with the reason, and neither waited for nor followed."""
    root = torch_tensorrt_cache(tmp_path / "cache")
    path = root / NAMES[0] / "blob.bin"
    (root / NAMES[2] / "blob.bin").unlink()
    match what:
        case "link":
            path.rename(tmp_path / "elsewhere")
            path.symlink_to(tmp_path / "elsewhere")
        case "fifo":
            path.unlink()
            os.mkfifo(path)
        case "hard link":
            (tmp_path / "second").hardlink_to(path)
        case "written by all":
            path.chmod(0o666)
        case "directory":
            root.chmod(0o777)
        case "folder":
            path.parent.chmod(0o777)
        case _:
            path.unlink()
            path.mkdir()
    found = finds("torch-tensorrt", root)[NAMES[0]]
    assert found.state == "unsafe"
    assert found.why


def test_hostile_names_are_text_and_no_paths(tmp_path: Path) -> None:
    """Bytes that are no UTF-8 are written with escapes, in the key as well."""
    root, store = tmp_path / "cache", DiskStore.open(tmp_path / "store")
    root.mkdir()
    for number, name in enumerate([b"\xff_sm89.engine", b"\x1b[2J.engine", b"..engine"]):
        path = os.fsencode(root) + b"/" + name
        with open(path, "wb") as file:  # noqa: PTH123  # a name of bytes
            file.write(tensorrt_plan(bytes([number])))
    done = plan_adoption("onnxruntime", root).execute(store)
    assert [one.state for one in done] == ["adopted"] * 3
    assert {one.find.name for one in done} == {"\\xff_sm89.engine", "\x1b[2J.engine", "..engine"}


def test_what_is_not_of_the_layout_is_listed_as_such(tmp_path: Path) -> None:
    """Other files and folders, models without an engine, and files with a second name."""
    theirs, other = torch_tensorrt_cache(tmp_path / "torch"), onnxruntime_cache(tmp_path / "onnx")
    (theirs / "notes.txt").write_text("?")
    (theirs / NAMES[1] / "more.bin").write_text("?")
    found = {find.name: find for find in plan_adoption("torch-tensorrt", theirs).finds}
    assert {found["notes.txt"].what, found[f"{NAMES[1]}/more.bin"].what} == {"other"}
    (other / "folder").mkdir()
    (other / "plain.onnx").write_bytes(ep_context("x").replace(b"EPContext", b"SomeThing"))
    (other / "not.onnx").write_bytes(b"\x0b\x01")
    (other / "two_ctx.onnx").write_bytes(ep_context(tensorrt_plan(b"1")) + ep_context(tensorrt_plan(b"2")))
    for name in ("linked.onnx", "linked.engine", "linked.profile"):
        (other / name).symlink_to(other / "plain.onnx")
    names = ("folder", "plain.onnx", "not.onnx", "two_ctx.onnx#0", "two_ctx.onnx#1")
    here = {find.name: find for find in plan_adoption("onnxruntime", other).finds}
    said = [(here[name].what, here[name].state) for name in names]
    assert said[:3] == [("folder", "no engine"), ("other", "no engine"), ("context", "damaged")]
    assert said[3:] == [("engine", "sound")] * 2
    assert {here[f"linked.{end}"].state for end in ("onnx", "engine", "profile")} == {"unsafe"}


def test_a_file_that_cannot_be_read_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what the system says."""
    root, real = onnxruntime_cache(tmp_path / "cache"), os.open

    def refused(path: Path, *args: int) -> int:
        if str(path).endswith(".timing"):
            raise PermissionError(13, "Permission denied")
        return real(path, *args)

    monkeypatch.setattr(os, "open", refused)
    (found,) = (find for find in plan_adoption("onnxruntime", root).finds if find.what == "timing")
    assert (found.state, found.why) == ("unsafe", "it cannot be read: Permission denied")


def test_a_folder_that_cannot_be_read_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that its tool removes meanwhile is not; the rest is listed."""
    real, refusals = (
        os.listdir,
        {"closed": PermissionError(13, "Permission denied"), "gone": FileNotFoundError(2, "no")},
    )
    for name in refusals:
        (tmp_path / name).mkdir(mode=0o700)
    (tmp_path / "there").touch()

    def listed(path: Path) -> list[str]:
        if path.name in refusals:
            raise refusals[path.name]
        return real(path)

    monkeypatch.setattr(os, "listdir", listed)
    here = finds("torch-tensorrt", tmp_path)
    assert {name: find.state for name, find in here.items()} == {"closed": "unsafe", "there": "no engine"}
    assert here["closed"].why == "it cannot be read: Permission denied"


VARINT = b"\xff" * 10


@pytest.mark.parametrize(
    "data",
    [
        b":\x7f",
        b":" + VARINT,
        VARINT,
        b"\x3b\x00",
        b":\x03\x0a\x05a",
        b":\x84\x40" + b"\x0a\x81\x40" + b"\x22\xfe\x3f" + b"x" * 8190,
        b"\x39" + bytes(8) + b"\x3d" + bytes(4) + b"\x08" * 3,
        b"\x08\x01" * 200_001,
    ],
    ids=["beyond", "length", "number", "type", "inside", "long name", "fixed", "many"],
)
def test_a_model_that_lies_about_its_lengths_is_damaged(data: bytes, tmp_path: Path) -> None:
    """Its fields, names and numbers are bounded."""
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "m_ctx.onnx").write_bytes(data)
    (found,) = plan_adoption("onnxruntime", tmp_path / "cache").finds
    assert (found.state, "it is not an ONNX file" in found.why) == ("damaged", True)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x80\x04" + b"N0" * 10_001 + b".", "it has no 'serialized_engine'"),
        (b"\x80\x04}\x8c\x11serialized_engine\x8e" + b"\xff" * 8, "not a pickle of an entry"),
        (b"\x80\x04}\x8c\x11serialized_engine\x8e" + (1 << 40).to_bytes(8, "little") + b"x" * 99, "not a pickle"),
        (b"\x80\x04X" + (1 << 17).to_bytes(4, "little") + b"x" * (1 << 17), "not a pickle"),
        (b"cos\nsystem\n(S'true'\ntR.", "it has no 'serialized_engine'"),
        (b"cos" + b"x" * 200_000, "not a pickle"),
        (b"", "not a pickle"),
    ],
    ids=["many", "length", "beyond", "long text", "code", "long line", "empty"],
)
def test_a_pickle_that_is_no_entry_is_damaged(data: bytes, why: str, tmp_path: Path) -> None:
    """Its instructions are counted, named and not executed."""
    (tmp_path / "cache" / "name").mkdir(parents=True)
    (tmp_path / "cache" / "name" / "blob.bin").write_bytes(data)
    (found,) = plan_adoption("torch-tensorrt", tmp_path / "cache").finds
    assert (found.state, why in found.why) == ("damaged", True), found.why


@pytest.mark.parametrize("tool", ["torch-tensorrt", "onnxruntime"])
def test_what_is_removed_meanwhile_is_not_listed(tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool that is running removes files of its own, and the rest is listed."""
    (tmp_path / "there").touch()
    monkeypatch.setattr(os, "listdir", lambda _: ["gone.engine", "there"])
    assert [find.name for find in plan_adoption(tool, tmp_path).finds] == ["there"]


def test_an_unknown_tool_is_told() -> None:
    """With those that are known."""
    from pathlib import Path

    with pytest.raises(SettingsError, match="not one of torch-tensorrt, onnxruntime"):
        plan_adoption("tvm", Path())


def test_a_store_that_asks_for_signatures_takes_what_this_process_signs(tmp_path: Path) -> None:
    """Without a key nothing is brought in."""
    store = DiskStore.open(tmp_path / "store", trust=Trust(required=True))
    with pytest.raises(UntrustedWriterError):
        plan_adoption("onnxruntime", onnxruntime_cache(tmp_path / "cache")).execute(store)


@pytest.mark.torture
@pytest.mark.no_cover
@pytest.mark.parametrize("tool", ["torch-tensorrt", "onnxruntime"])
def test_whatever_is_in_a_file_it_is_listed(tool: str, tmp_path: Path) -> None:
    """Damaged pickles, models and plans have a state; nothing is unpickled, and no error is raised."""
    root = tmp_path / "cache" / "name"
    root.mkdir(parents=True)
    if tool == "torch-tensorrt":
        path, whole = root / "blob.bin", blob(rtx_plan("8.9"), tmp_path / "trap")
    else:
        path, whole = root / "m_ctx.onnx", ep_context(tensorrt_plan(b"inside"))
    states, chance = set(), random.Random(5)
    for what, data in mutations(whole, tries(200, 5000)):
        path.write_bytes(data[: chance.randrange(len(data))] if chance.random() < 0.1 and len(data) > 1 else data)
        (found, *more) = plan_adoption(tool, root.parent if tool == "torch-tensorrt" else root).finds
        assert found.state in {"sound", "damaged", "no engine", "orphan", "unsafe"}, what
        assert len(more) < 3
        states.add(found.state)
    assert {"sound", "damaged"} <= states
    assert not (tmp_path / "trap").exists()
