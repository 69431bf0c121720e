"""Every error that trtcache raises: fields first, the message in ``__str__``, an exit code on the class.

A cache miss is not an error (it is ``None``), and corruption is a miss with a reason; the store's errors reach a caller
only where there is no way on.
"""

from __future__ import annotations

from trtcache.errors.base import CanonicalizationError as CanonicalizationError
from trtcache.errors.base import GuardError as GuardError
from trtcache.errors.base import InputError as InputError
from trtcache.errors.base import SettingsError as SettingsError
from trtcache.errors.base import TrtcacheError as TrtcacheError
from trtcache.errors.base import did_you_mean as did_you_mean
from trtcache.errors.engines import BackendError as BackendError
from trtcache.errors.engines import BackendUnavailableError as BackendUnavailableError
from trtcache.errors.engines import BuildCancelledError as BuildCancelledError
from trtcache.errors.engines import BuildError as BuildError
from trtcache.errors.engines import BuildForbiddenError as BuildForbiddenError
from trtcache.errors.engines import BuildMemoryError as BuildMemoryError
from trtcache.errors.engines import FrozenWeightsError as FrozenWeightsError
from trtcache.errors.engines import IncompatibleEngineError as IncompatibleEngineError
from trtcache.errors.engines import NoDeviceError as NoDeviceError
from trtcache.errors.engines import PartitionError as PartitionError
from trtcache.errors.engines import ProfileError as ProfileError
from trtcache.errors.engines import RunError as RunError
from trtcache.errors.engines import UnsupportedOperatorError as UnsupportedOperatorError
from trtcache.errors.models import ExportError as ExportError
from trtcache.errors.models import OnnxFileError as OnnxFileError
from trtcache.errors.models import PassError as PassError
from trtcache.errors.models import PostconditionError as PostconditionError
from trtcache.errors.models import PreconditionError as PreconditionError
from trtcache.errors.models import RefitError as RefitError
from trtcache.errors.models import RefitStoppedError as RefitStoppedError
from trtcache.errors.models import TrainingError as TrainingError
from trtcache.errors.models import VerifyError as VerifyError
from trtcache.errors.models import WeightsFileError as WeightsFileError
from trtcache.errors.programs import DamagedProgramError as DamagedProgramError
from trtcache.errors.programs import MissingEngineError as MissingEngineError
from trtcache.errors.programs import NoFittingEngineError as NoFittingEngineError
from trtcache.errors.programs import NotAProgramError as NotAProgramError
from trtcache.errors.programs import ProgramContentError as ProgramContentError
from trtcache.errors.programs import ProgramFileError as ProgramFileError
from trtcache.errors.programs import ProgramNamesError as ProgramNamesError
from trtcache.errors.programs import ProgramSizesError as ProgramSizesError
from trtcache.errors.programs import ProgramVersionError as ProgramVersionError
from trtcache.errors.programs import TamperedProgramError as TamperedProgramError
from trtcache.errors.programs import TruncatedProgramError as TruncatedProgramError
from trtcache.errors.programs import UntrustedProgramError as UntrustedProgramError
from trtcache.errors.programs import WeightMapError as WeightMapError
from trtcache.errors.store import AmbiguousKeyError as AmbiguousKeyError
from trtcache.errors.store import BusyError as BusyError
from trtcache.errors.store import CorruptBlobError as CorruptBlobError
from trtcache.errors.store import FormatVersionError as FormatVersionError
from trtcache.errors.store import HeaderSizeError as HeaderSizeError
from trtcache.errors.store import IndexUnavailableError as IndexUnavailableError
from trtcache.errors.store import LockTimeoutError as LockTimeoutError
from trtcache.errors.store import NotAStoreError as NotAStoreError
from trtcache.errors.store import ReadOnlyError as ReadOnlyError
from trtcache.errors.store import StoreError as StoreError
from trtcache.errors.store import UnknownKeyError as UnknownKeyError
from trtcache.errors.store import UnsafeStoreError as UnsafeStoreError
from trtcache.errors.store import UntrustedEntryError as UntrustedEntryError
from trtcache.errors.store import UntrustedWriterError as UntrustedWriterError
