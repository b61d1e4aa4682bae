"""Kinds of operations of a training step, and its phases, by their names in a profile.

The kinds are those of tables 1 and 2 of Laanait et al. (2019), and what lies between. A transposed
convolution is counted by what it is for: its forward pass is the kernel of another convolution's
gradient by input. An exchange sends other data to each rank, as the borders of divided samples.
Coordination is the time from a rank's request for a reduction or an exchange until all ranks are
ready. The phases are those of Yoginath et al. (2019), table II.
"""

FORWARD = "convolution forward"
BY_INPUT = "convolution by input"
BY_WEIGHTS = "convolution by weights"
CONVOLUTIONS = (FORWARD, BY_INPUT, BY_WEIGHTS)
PRODUCT = "matrix product"
POINTWISE = "pointwise"
NORMALISATION = "normalisation"
POOLING = "pooling"
SUMS = "sums and norms"
RANDOM = "random"
OPTIMIZER = "optimizer"
MEMORY = "memory"
REDUCTION = "reduction"
EXCHANGE = "exchange"
COORDINATION = "coordination"
INPUT = "input"
OTHER = "other"
IDLE = "idle"
KINDS = (
    *CONVOLUTIONS,
    *(PRODUCT, POINTWISE, NORMALISATION, POOLING, SUMS, RANDOM, OPTIMIZER),
    *(MEMORY, REDUCTION, EXCHANGE, COORDINATION, INPUT, OTHER),
)

FORWARD_PASS = "forward"
BACKWARD_PASS = "backward"
UPDATE = "update"
SYNCHRONISATION = "synchronisation"
PHASES = (INPUT, FORWARD_PASS, BACKWARD_PASS, UPDATE, SYNCHRONISATION, OTHER)
