"""A program that is about to be written to a file: one border, one set of weights, and engines for each target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trtcache.errors import ProgramFileError
from trtcache.runtime.provenance import parameters_of, slot_values

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from trtcache.compiler.request import Request
    from trtcache.partition.partitions import PartitionedProgram
    from trtcache.runtime import CompiledModule
    from trtcache.runtime.executable import Executable
    from trtcache.runtime.provenance import Provenance
    from trtcache.runtime.signature import CallSignature


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What a file is written from.

    Attributes:
        name: what people call the program.
        executable: its border, constants, and the model's names.
        call: how arguments and outputs are nested.
        division: its parts, the same for all targets.
        weights: the value of each slot, by its number.
        parameters: which names are those of parameters.
        origins: the engines, once for each target; the first is the one that the caller compiled.
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
        """Whose engines they are."""
        return self.origins[0].backend


def of_module(module: CompiledModule, path: str) -> Outgoing:
    """Return what a compiled module is written from, with the weights that it has now.

    Raises:
        ProgramFileError: it was not made by ``compile``, or an engine of it runs in torch.
        RefitError: weights that an engine's were made from are gone.
    """
    origin = getattr(module, "origin", None)  # what an ONNX file became has none
    if origin is None:
        what = f"a {type(module).__name__} has no stored engines of a program"
        raise ProgramFileError(
            path, f"{what}; give what trtcache.compile made of a model (an ONNX file's plan is a file)"
        )
    if missing := set(origin.division.engines or ({0} if origin.division.is_whole else ())) - set(origin.entries):
        why = f"parts {sorted(missing)} of it run in torch in this process, while another builds their engines"
        raise ProgramFileError(path, f"{why}; compile it again when they are built")
    executable, call, weights = module.stored_form()
    values = slot_values(executable.interface, weights)
    return Outgoing(module.report.name, executable, call, origin.division, values, origin.parameters, (origin,))


def of_request(request: Request, origin: Provenance) -> Outgoing:
    """Return what a lowered program is written from."""
    from trtcache.runtime.executable import Executable
    from trtcache.runtime.signature import CallSignature

    program = request.program
    values = {slot.index: program.state[slot.names[0]].detach() for slot in program.interface.slots}
    call = CallSignature(program.in_spec, program.out_spec, None)
    parameters = parameters_of(program.state)
    return Outgoing(program.name, Executable.of(program), call, request.division, values, parameters, (origin,))
