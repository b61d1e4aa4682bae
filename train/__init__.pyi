"""The public names, each from its module: `train` imports them from there when they are first used."""

from .apply.models import Model as Model
from .apply.models import load_model as load_model
from .apply.scans import CalibrationOverrides as CalibrationOverrides
from .apply.trust import KnownSpecimen as KnownSpecimen
from .evaluation import evaluate as evaluate
from .tasks.classify.application import ClassifiedScan as ClassifiedScan
from .tasks.classify.application import classify as classify
from .tasks.density.application import reconstruct as reconstruct
from .tasks.density.live import LiveUpdate as LiveUpdate
from .tasks.density.live import next_row as next_row
from .tasks.density.live import reconstruct_live as reconstruct_live
from .tasks.density.preparation import ReconstructionOptions as ReconstructionOptions
from .tasks.density.result import Reconstruction as Reconstruction
from .tasks.embed.application import EmbeddedScan as EmbeddedScan
from .tasks.embed.application import embed as embed
from .tasks.estimate.application import estimate as estimate
from .tasks.estimate.result import EstimatedScan as EstimatedScan
from .tasks.segment.application import SegmentedScan as SegmentedScan
from .tasks.segment.application import segment as segment

__version__: str
