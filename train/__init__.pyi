"""The public names, each from its module: `train` imports them when they are first used."""

from .apply.models import Model as Model
from .apply.models import load_model as load_model
from .apply.scans import CalibrationOverrides as CalibrationOverrides
from .evaluation import evaluate as evaluate
from .optimization.optimizers import LarsAdam as LarsAdam
from .optimization.optimizers import LarsMomentum as LarsMomentum
from .optimization.precision import LogMaxOptimizer as LogMaxOptimizer
from .tasks.classify.application import ClassifiedScan as ClassifiedScan
from .tasks.classify.application import classify as classify
from .tasks.density.scan.application import reconstruct as reconstruct
from .tasks.density.scan.live import next_row as next_row
from .tasks.density.scan.live import reconstruct_live as reconstruct_live
from .tasks.density.scan.live_session import LiveUpdate as LiveUpdate
from .tasks.density.scan.options import ReconstructionOptions as ReconstructionOptions
from .tasks.density.scan.result import Reconstruction as Reconstruction
from .tasks.density.trust.consistency import KnownSpecimen as KnownSpecimen
from .tasks.embed.application import EmbeddedScan as EmbeddedScan
from .tasks.embed.application import embed as embed
from .tasks.estimate.application import estimate as estimate
from .tasks.estimate.result import EstimatedScan as EstimatedScan
from .tasks.segment.application import SegmentedScan as SegmentedScan
from .tasks.segment.application import segment as segment

__version__: str
