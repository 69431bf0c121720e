"""The contents of a program to export: one interface, one set of weights, and engines for each target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trtcache.errors import ProgramFileError
from trtcache.runtime.provenance import parameters_of, slot_values

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from trtcache.frontends.request import Request
    from trtcache.partition.partitions import PartitionedProgram
    from trtcache.runtime import CompiledModule
    from trtcache.runtime.executable import Executable
    from trtcache.runtime.provenance import Provenance
    from trtcache.runtime.signature import CallSignature


@dataclass(frozen=True, slots=True)
class ProgramContents:
    """The contents of a program file.

    Attributes:
        name: the program's name.
        executable: its interface, constants, and the model's names.
        call: the structure of arguments and outputs.
        division: its partitions, the same for all targets.
        weights: the value of each slot, by number.
        parameters: the names of parameters.
        origins: the engines of each target; the first one is the compiled module's.
    """

    name: str
    executable: Executable
    call: CallSignature
    division: PartitionedProgram
    weights: Mapping[int, torch.Tensor]
    parameters: frozenset[str]
    origins: tuple[Provenance, ...]

    @property
    def backend(self) -> str:
        """The backend of the engines."""
        return self.origins[0].backend


def contents_of_module(module: CompiledModule, path: str) -> ProgramContents:
    """Return the contents of a compiled module, with its current weights.

    Raises:
        ProgramFileError: it does not come from ``compile``, or one of its engines runs in torch.
        RefitError: model weights that an engine weight is computed from no longer exist.
    """
    origin = getattr(module, "origin", None)  # a module of an ONNX file has none
    if origin is None:
        what = f"a {type(module).__name__} has no stored engines of a program"
        raise ProgramFileError(
            path, f"{what}; give a model compiled by trtcache.compile (an ONNX file's plan is a file)"
        )
    if missing := set(origin.division.engines or ({0} if origin.division.is_whole else ())) - set(origin.entries):
        why = f"parts {sorted(missing)} of it run in torch in this process, while another builds their engines"
        raise ProgramFileError(path, f"{why}; compile it again when they are built")
    executable, call, weights = module.stored_form()
    values = slot_values(executable.interface, weights)
    return ProgramContents(module.report.name, executable, call, origin.division, values, origin.parameters, (origin,))


def contents_of_request(request: Request, origin: Provenance) -> ProgramContents:
    """Return the contents of a lowered program."""
    from trtcache.runtime.executable import Executable
    from trtcache.runtime.signature import CallSignature

    program = request.program
    values = {slot.index: program.state[slot.names[0]].detach() for slot in program.interface.slots}
    call = CallSignature(program.in_spec, program.out_spec, None)
    parameters = parameters_of(program.state)
    return ProgramContents(program.name, Executable.of(program), call, request.division, values, parameters, (origin,))
