"""Lets torchvision be imported beside a CPU build of torch; import it first.

The wheel of torchvision on PyPI is built for CUDA. Beside a CPU build of torch its operators are missing, and the
import fails where it describes them. PtyRAD and quantem use none of these operators.
"""

import sys
from types import ModuleType

import torch

if not torch.version.cuda:
    sys.modules["torchvision._meta_registrations"] = ModuleType("torchvision._meta_registrations")
