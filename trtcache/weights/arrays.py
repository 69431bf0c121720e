"""Host arrays: memory with a dtype, sizes and strides, without torch and without NumPy.

An array is read from anything that exports its memory: a tensor of torch, an array of NumPy, and objects with
``__dlpack__``, ``__array_interface__`` or the buffer protocol. Nothing is copied unless torch could not describe the
memory: a negative stride, one that is no multiple of the item's size, another byte order, or a misaligned address.
"""

from __future__ import annotations

import ctypes
import math
import sys
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

ITEM_BYTES: Final[Mapping[str, int]] = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "uint16": 2,
    "int16": 2,
    "uint32": 4,
    "int32": 4,
    "uint64": 8,
    "int64": 8,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "complex32": 4,
    "complex64": 8,
    "complex128": 16,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2": 1,
    "float8_e5m2fnuz": 1,
}
"""Size of an item by torch's name of its dtype."""

_FORMATS = {  # of the buffer protocol, with the sizes of this platform
    **{code: f"int{8 * ctypes.sizeof(kind)}" for code, kind in zip("bhilqn", (
        ctypes.c_int8, ctypes.c_short, ctypes.c_int, ctypes.c_long, ctypes.c_longlong, ctypes.c_ssize_t), strict=True)},
    **{code: f"uint{8 * ctypes.sizeof(kind)}" for code, kind in zip("BHILQN", (
        ctypes.c_uint8, ctypes.c_ushort, ctypes.c_uint, ctypes.c_ulong, ctypes.c_ulonglong, ctypes.c_size_t),
        strict=True)},
    "?": "bool", "e": "float16", "f": "float32", "d": "float64", "Zf": "complex64", "Zd": "complex128",
}  # fmt: skip
_TYPESTRS = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex"}
_DLPACK = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}
_NATIVE = "<" if sys.byteorder == "little" else ">"
_CPU = 1  # kDLCPU
_MOST_COMPARED = 1 << 20
_OF_ML_DTYPES = frozenset({"bfloat16", *(name for name in ITEM_BYTES if name.startswith("float8"))})

capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
capsule_pointer.restype, capsule_pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


@dataclass(slots=True, eq=False)
class HostArray:
    """An array in this process's memory.

    Attributes:
        dtype: torch's name of the dtype, ``float32``.
        shape: sizes.
        strides: strides in items, none negative.
        pointer: the address of the first item.
        owner: the object that keeps the memory alive.
        library: ``torch``, ``numpy``, ``dlpack`` or ``buffer``: what the object was.
        writable: whether the memory may be written to.
        device: ``cpu``, or the name of another device, whose memory cannot be read here.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    pointer: int
    owner: Any
    library: str = "buffer"
    writable: bool = True
    device: str = "cpu"

    @property
    def count(self) -> int:
        """The number of items."""
        return math.prod(self.shape)

    @property
    def item_bytes(self) -> int:
        """The size of an item."""
        return ITEM_BYTES[self.dtype]

    @property
    def extent_bytes(self) -> int:
        """The bytes from the start of the first item to the end of the last."""
        if not self.count:
            return 0
        return (1 + sum((size - 1) * step for size, step in zip(self.shape, self.strides, strict=True))) * (
            self.item_bytes
        )

    @property
    def is_contiguous(self) -> bool:
        """Whether the items follow each other in order, as torch defines it."""
        step = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size != 1 and stride != step and self.count:
                return False
            step *= size
        return True

    def overlaps(self, other: HostArray) -> bool:
        """Return whether the extents of two arrays have an address in common."""
        begin, end = self.pointer, self.pointer + self.extent_bytes
        return begin < other.pointer + other.extent_bytes and other.pointer < end

    def shares_items(self, other: HostArray) -> bool:
        """Return whether two arrays share an item's memory; True for large ones whose extents overlap."""
        if not self.overlaps(other):
            return False
        if self.item_bytes != other.item_bytes or max(self.count, other.count) > _MOST_COMPARED:
            return True
        return not self._addresses().isdisjoint(other._addresses())

    def _addresses(self) -> set[int]:
        found = {self.pointer}
        for size, step in zip(self.shape, self.strides, strict=True):
            found = {base + place * step * self.item_bytes for base in found for place in range(size)}
        return found

    def numpy(self) -> Any:
        """Return it as an array of NumPy that shares its memory.

        Raises:
            ImportError: NumPy, or for ``bfloat16`` and ``float8`` the package ``ml_dtypes``, is not installed.
            BufferError: NumPy has no such dtype.
        """
        import numpy

        if self.dtype in _OF_ML_DTYPES:
            import ml_dtypes

            return self.as_integers().view(getattr(ml_dtypes, self.dtype))
        if not hasattr(numpy, self.dtype) and self.dtype != "bool":
            raise BufferError(f"NumPy has no {self.dtype}")
        return self._in_numpy(numpy, self.dtype)

    def as_integers(self) -> Any:
        """Return its bits as an array of NumPy of unsigned integers, of 8 to 64 bits, that shares its memory."""
        import numpy

        return self._in_numpy(numpy, f"uint{8 * self.item_bytes}")

    def _in_numpy(self, numpy: Any, dtype: str) -> Any:
        kind, size = numpy.dtype(dtype), self.item_bytes
        if not self.count:
            return numpy.empty(self.shape, kind)
        return numpy.asarray(_Exported(self, kind.str, tuple(step * size for step in self.strides)))

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU, 0

    def __dlpack__(self, *, max_version: tuple[int, int] | None = None, copy: bool | None = None, **_: Any) -> Any:
        """Return it as a DLPack capsule; NumPy, which makes it, keeps the memory alive.

        Args:
            max_version: the latest version of DLPack that the consumer knows; None if it knows only those before 1.0,
                in which nothing is read-only: read-only memory is copied for it.
            copy: whether it is a copy; None if it is one where that is needed.
        """
        is_bfloat16 = self.dtype == "bfloat16"
        values = self.as_integers() if is_bfloat16 else self.numpy()
        if copy:
            values = values.copy(order="K")
        if max_version and max_version >= (1, 0) and not is_bfloat16:  # whose code is written below
            with suppress(TypeError):  # NumPy before 2.1 knows no version
                return values.__dlpack__(max_version=max_version)
        if copy is None and not values.flags.writeable:
            values = values.copy(order="K")
        capsule = values.__dlpack__()
        if is_bfloat16:
            _DLTensor.from_address(capsule_pointer(capsule, b"dltensor")).code = 4  # kDLBfloat
        return capsule


class _Exported:
    """The array interface of an array, which it keeps alive."""

    def __init__(self, array: HostArray, typestr: str, strides: tuple[int, ...]) -> None:
        self.__array_interface__ = {
            "version": 3,
            "typestr": typestr,
            "shape": array.shape,
            "strides": strides,
            "data": (array.pointer, not array.writable),
        }
        self._array = array


class UnreadableArrayError(ValueError):
    """An object that exports its memory in a form that an engine cannot read.

    Attributes:
        found: what it is.
        expected: what an engine takes.
        hint: what to do.
    """

    def __init__(self, found: str, expected: str = "a dense tensor", hint: str = "") -> None:
        super().__init__(found)
        self.found, self.expected, self.hint = found, expected, hint


def array_of(value: Any) -> HostArray | None:
    """Return the array of an object; None if it exports no memory.

    Raises:
        UnreadableArrayError: an engine cannot read its memory: it is sparse, or has a dtype that torch does not have.
    """
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(value, getattr(torch, "Tensor", ())):
        return _of_tensor(torch, value)
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        return _of_numpy(numpy, value)
    if isinstance(value, HostArray):
        return value
    has_interface = isinstance(getattr(value, "__array_interface__", None), dict)
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        try:
            return _of_dlpack(value)
        except BufferError as error:  # its library does not export such an array: read-only, or of another byte order
            if not has_interface:
                raise UnreadableArrayError(f"one that its library does not export: {error}") from error
    if has_interface:
        return _of_interface(value, value.__array_interface__)
    try:
        view = memoryview(value)
    except TypeError:
        return None
    return _of_buffer(view)


def _of_tensor(torch: Any, tensor: Any) -> HostArray:
    from trtcache.weights.slots import NESTED, NESTED_HINT, is_plain, memory_fault  # it imports this module

    if tensor.is_nested:
        raise UnreadableArrayError(NESTED, hint=NESTED_HINT)
    if tensor.layout is not torch.strided:
        raise UnreadableArrayError(f"one of layout {tensor.layout}", hint="use .to_dense()")
    if not is_plain(tensor):
        raise UnreadableArrayError(type(tensor).__name__, "a plain tensor", "an engine reads memory directly")
    if tensor.device.type == "cpu" and (fault := memory_fault(tensor)):
        raise UnreadableArrayError(fault, "a tensor with memory")
    plain = tensor.detach().resolve_conj().resolve_neg()
    dtype, device = str(plain.dtype).removeprefix("torch."), str(plain.device)
    if dtype not in ITEM_BYTES:
        raise UnreadableArrayError(f"a tensor of {dtype}")
    # A conjugated tensor was copied: what a call writes there would be lost.
    writable = plain.data_ptr() == tensor.data_ptr()
    return HostArray(dtype, tuple(plain.shape), plain.stride(), plain.data_ptr(), plain, "torch", writable, device)


def _of_numpy(numpy: Any, value: Any) -> HostArray:
    # NumPy imports this module on its first use: without it there is no masked array.
    if isinstance(value, getattr(sys.modules.get("numpy.ma"), "MaskedArray", ())):
        raise UnreadableArrayError("a masked array", hint="use .filled()")
    array = numpy.asarray(value)
    if isinstance(value, numpy.generic):
        array.flags.writeable = False  # a copy of a scalar: what a call writes there would be lost
    dtype = array.dtype.name
    if dtype not in ITEM_BYTES:
        raise UnreadableArrayError(f"an array of {dtype}")
    size = array.itemsize
    is_readable = array.dtype.isnative and array.flags.aligned
    if not is_readable or any(step < 0 or step % size for step in array.strides):
        array = numpy.array(array, dtype=array.dtype.newbyteorder("="), order="C", copy=True)
        array.flags.writeable = False  # a copy: what a call writes there would be lost
    strides = tuple(step // size for step in array.strides)
    pointer = array.__array_interface__["data"][0]
    return HostArray(dtype, array.shape, strides, pointer, array, "numpy", bool(array.flags.writeable))


def _import_numpy() -> Any:
    try:
        import numpy
    except ImportError as error:
        raise UnreadableArrayError("one in a layout that needs NumPy", hint="install NumPy, or copy it") from error
    return numpy


def _through_numpy(value: Any) -> HostArray:
    """Return the array of an object whose memory only NumPy can describe."""
    numpy = _import_numpy()
    found = _of_numpy(numpy, numpy.asarray(value))
    found.writable = False
    return found


def _contiguous_copy(array: HostArray) -> HostArray:
    """Return a contiguous copy of an array with negative strides, or at a misaligned address."""
    numpy = _import_numpy()
    size = array.item_bytes
    # As bytes without a meaning, NumPy copies items of any dtype.
    exported = _Exported(array, f"|V{size}", tuple(step * size for step in array.strides))
    copied = numpy.array(exported, order="C", copy=True)
    pointer = copied.__array_interface__["data"][0]
    return replace(array, strides=contiguous(array.shape), pointer=pointer, owner=copied, writable=False)


def _of_interface(value: Any, interface: Mapping[str, Any]) -> HostArray:
    kind, shape = str(interface["typestr"]), tuple(interface["shape"])
    order, name, size = kind[:1], _TYPESTRS.get(kind[1:2]), int(kind[2:]) if kind[2:].isdecimal() else 0
    dtype = name if name == "bool" else f"{name}{8 * size}"
    data, strides = interface.get("data"), interface.get("strides")
    if dtype not in ITEM_BYTES or interface.get("mask") is not None:
        raise UnreadableArrayError(f"an array of {kind}")
    strided = _steps(shape, strides, size)
    if not isinstance(data, tuple) or order not in {_NATIVE, "|"} or strided is None or data[0] % size:
        return _through_numpy(value)
    return HostArray(dtype, shape, strided, int(data[0]), (value, interface), "numpy", not data[1])


def _of_buffer(view: memoryview) -> HostArray:
    dtype = _FORMATS.get(view.format.lstrip("@=<>!"))
    is_native = not view.format.startswith((">", "!") if _NATIVE == "<" else "<")
    if dtype is None or ITEM_BYTES[dtype] != view.itemsize:
        raise UnreadableArrayError(f"a buffer of format {view.format!r}")
    shape = tuple(view.shape or ())
    strided = _steps(shape, view.strides, view.itemsize)
    if not is_native or strided is None or view.suboffsets:
        return _through_numpy(view)
    held = _BufferAddress(view)
    if held.pointer % view.itemsize:
        return _through_numpy(view)
    return HostArray(dtype, shape, strided, held.pointer, held, "buffer", not view.readonly)


def _steps(shape: Sequence[int], strides: Sequence[int] | None, size: int) -> tuple[int, ...] | None:
    """Return strides in items from those in bytes; None if torch could not describe them."""
    if strides is None:
        return contiguous(tuple(shape))
    if any(step < 0 or step % size for step in strides):
        return None
    return tuple(step // size for step in strides)


def can_overlap_itself(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether elements of an array with these sizes and strides can share memory; if False, they do not."""
    reach = 0
    for step, size in sorted((abs(step), size) for size, step in zip(shape, strides, strict=True) if size > 1):
        if step <= reach:
            return True
        reach += (size - 1) * step
    return False


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor of this shape."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def dense_strides(shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a dense tensor of this shape, with its dimensions in this order, outermost first."""
    steps = contiguous(tuple(shape[place] for place in order))
    return tuple(steps[place] for place in sorted(range(len(order)), key=order.__getitem__))


class Spans:
    """Spans of memory, such as that of weights, with which many others are compared."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        """Sort spans, each from its first address to the one after its last, and join those that overlap."""
        self._begins: list[int] = []
        self._ends: list[int] = []
        for begin, end in sorted(spans):
            if self._ends and begin < self._ends[-1]:
                self._ends[-1] = max(end, self._ends[-1])
            else:
                self._begins.append(begin)
                self._ends.append(end)

    def meet(self, begin: int, end: int) -> bool:
        """Return whether one of them has an address in common with another span."""
        place = bisect_right(self._ends, begin)  # the first that does not end before
        return place < len(self._begins) and self._begins[place] < end


class _Buffer(ctypes.Structure):
    """``Py_buffer`` of CPython's limited API."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


_STRIDED = 0x0010 | 0x0008  # PyBUF_STRIDES: readable memory, read-only or not
_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = (ctypes.py_object, ctypes.POINTER(_Buffer), ctypes.c_int)
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.restype, _release_buffer.argtypes = None, (ctypes.POINTER(_Buffer),)


class _BufferAddress:
    """The address of a buffer, which is exported, and so neither freed nor resized, as long as this object exists."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._buffer = _Buffer()
        _get_buffer(view, ctypes.byref(self._buffer), _STRIDED)
        self.pointer: int = self._buffer.buf or 0

    def __del__(self) -> None:
        _release_buffer(ctypes.byref(self._buffer))


def pointer_of(content: memoryview) -> tuple[int, object]:
    """Return the address of a contiguous buffer, and an object that keeps it there."""
    held = _BufferAddress(content)
    return held.pointer, held


class _DLTensor(ctypes.Structure):
    """``DLTensor`` of dlpack.h, with which a ``DLManagedTensor`` begins."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_VERSIONED_BYTES = 32  # of DLManagedTensorVersioned before its DLTensor: version, context, deleter, flags


def _of_dlpack(value: Any) -> HostArray:
    device = value.__dlpack_device__()
    if int(device[0]) != _CPU:
        return HostArray("uint8", (0,), (1,), 0, value, "dlpack", False, f"device {int(device[0])}:{int(device[1])}")
    try:
        capsule = value.__dlpack__(max_version=(1, 0))  # before, nothing is read-only, and NumPy refuses such an array
        place = capsule_pointer(capsule, b"dltensor_versioned") + _VERSIONED_BYTES
    except (TypeError, ValueError):  # the library knows no version, or returns a capsule of an earlier one
        capsule = value.__dlpack__()
        place = capsule_pointer(capsule, b"dltensor")
    found = _DLTensor.from_address(place)
    name = _DLPACK.get(found.code)
    dtype = name if name == "bool" else f"{name}{found.bits}"
    if dtype not in ITEM_BYTES or found.lanes != 1 or (name == "bool" and found.bits != 8):
        raise UnreadableArrayError(f"an array of DLPack's dtype {found.code}, {found.bits} bits")
    shape = tuple(found.shape[: found.ndim]) if found.ndim else ()
    strides = tuple(found.strides[: found.ndim]) if found.ndim and found.strides else contiguous(shape)
    pointer = (found.data or 0) + found.byte_offset
    # The capsule is not consumed: it frees the memory when it is collected, and so outlives this array. A library may
    # export read-only memory in this way, so a call does not write to it.
    array = HostArray(dtype, shape, strides, pointer, (value, capsule), "dlpack", writable=False)
    if any(step < 0 for step in strides) or pointer % ITEM_BYTES[dtype]:
        return _contiguous_copy(array)
    return array


def tensor_of(array: HostArray) -> tuple[Any, int] | None:
    """Return the tensor of torch whose memory an array reads, and its address when the array was made."""
    while isinstance(array.owner, HostArray):
        array = array.owner
    return (array.owner, array.pointer) if array.library == "torch" else None


def follow(array: HostArray) -> HostArray | None:
    """Return an array at the address where its tensor's memory is now; None if that was freed.

    ``share_memory_`` and ``resize_`` of a tensor move its memory, although the array refers to the tensor.
    """
    from trtcache.weights.slots import memory_fault  # it imports this module

    if isinstance(array.owner, HostArray):
        now = follow(array.owner)
        if now is None or now is array.owner:
            return array if now is not None else None
        return replace(array, pointer=array.pointer + now.pointer - array.owner.pointer, owner=now)
    if array.library != "torch":
        return array
    if array.device == "cpu" and memory_fault(array.owner) is not None:
        return None
    place = array.owner.data_ptr()
    return array if place == array.pointer else replace(array, pointer=place)


def same_bytes(first: HostArray, second: HostArray) -> bool:
    """Return whether two dense arrays of one dtype, shape and layout are bit-identical."""
    if first.pointer == second.pointer or not first.count:
        return True
    size_bytes = first.count * first.item_bytes
    compare = ctypes.CDLL(None).memcmp
    compare.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    return bool(compare(first.pointer, second.pointer, size_bytes) == 0)


def bytes_of(array: HostArray) -> memoryview:
    """Return the bytes of a contiguous array, without a copy."""
    size_bytes = array.count * array.item_bytes
    if not size_bytes:
        return memoryview(b"")
    buffer = (ctypes.c_ubyte * size_bytes).from_address(array.pointer)
    buffer._owner = array.owner  # type: ignore[attr-defined]  # keeps its memory alive
    return memoryview(buffer).cast("B")
