"""`python -m train`: the training job, and what can be done again with a run directory.

Exit codes: 0 done, 1 the work failed, 2 bad input or configuration, 130 interrupted.
"""

import os
import sys
from collections.abc import Sequence

from train.commands import datasets, job, models, reports

USAGE = """
  python -m train CONFIG [--set section.key=value ...] [--run-dir DIR] [--home DIR]
      simulate what is missing, train, evaluate and report; run again to go on from the newest checkpoint
  python -m train CONFIG [--set ...] --dry-run [--ranks N] [--json]
      what that will take: time by a few steps measured here, memory, disk
  python -m train CONFIG ... --supervise [--ranks N [--min-ranks M] [--fewer-by K]] [--max-restarts R] [-- LAUNCHER ...]
      the same, and again from the newest checkpoint where it fails: -- horovodrun -np {ranks}
  python -m train evaluate RUN_DIR
      measure the newest checkpoint on the held-out materials, and report
  python -m train calibrate RUN_DIR [--passes N] [--simulated N]
      measure how far the network's uncertainty holds, and how well its answers, simulated, explain their patterns
  python -m train pack RUN_DIR --out DIR
      what of a finished, calibrated run is worth shipping: its configuration, weights, calibration and a card
  python -m train stage FROM TO [--partition] [--threads N]
      bring a dataset from a shared file system to every node's own disk; run again to go on
  python -m train keep FROM TO
      copy home what this rank has added to a dataset on its node's own disk
  python -m train reconstruct DATA.h5 --checkpoint NAME --out OUT.h5
      the electron density in a microscope's 4D-STEM file, by a trained network
  python -m train report RUN_DIR
      write report.html again
  python -m train scaling CONFIG [--ranks 1..27600] [--machine FILE.yaml] [--run RUN_DIR] [--out PICTURE] [--json]
      how efficient the job would be on many ranks, and how many to ask for
  python -m train scaling --compare RUN_DIR RUN_DIR ...
      speed-ups of runs on different numbers of ranks: of an epoch, and until the same loss

Under horovodrun, mpirun, jsrun or srun each process is a rank of one job.
"""

COMMANDS = {
    "evaluate": job.evaluate,
    "calibrate": models.calibrate,
    "pack": models.pack,
    "stage": datasets.stage,
    "keep": datasets.keep,
    "reconstruct": models.reconstruct,
    "report": reports.report,
    "scaling": reports.scaling,
}


def main(arguments: Sequence[str] | None = None) -> int:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow's errors only; before anything imports it
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    command = COMMANDS.get(arguments[0] if arguments else "")
    return command(arguments[1:]) if command else job.train(arguments, USAGE)


if __name__ == "__main__":
    sys.exit(main())
