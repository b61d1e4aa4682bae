"""The package `train` by the name that it has in an installed wheel, for a checkout.

    import namsa_train

    result = namsa_train.reconstruct("scan.h5", "200kv-20mrad-reality")

`python -m namsa_train` is `python -m train`. A wheel has the package itself by this name (see hatch_build.py).
"""

import sys

import train

if __name__ == "__main__":
    from train.__main__ import main

    sys.exit(main())
sys.modules[__name__] = train
