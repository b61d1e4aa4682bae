#!/bin/bash
# Works with the wheels of dist/ as a user does: in an empty environment, without a checkout, a compiler or Horovod.
# The libraries have the versions of uv.lock. Arguments are for `uv venv`, such as --python 3.12.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD
uv() { "$root/scripts/uv" --quiet "$@"; }
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

uv venv "$@" "$place/env"
cd "$place" # where Python finds no module of the checkout
install() { uv pip install --python env --constraints "$root/dist/versions.txt" "$@"; }
export PATH=$place/env/bin:$PATH CC=false VIRTUAL_ENV=$place/env

small=(--set 'scan.shape=[32, 32]' --set 'specimen.thickness_angstrom=[20]')
compiled=("$root"/dist/namsa-*-manylinux*_"$(uname -m)".whl)
install "${compiled[0]}"
namsa init first
cd first
namsa simulate starter.yaml "${small[@]}" --out compiled.h5
namsa info compiled.h5

(cd .. && install "${compiled[0]}[jax]")
namsa-train reconstruct compiled.h5 --checkpoint 200kv-20mrad-fast --out density_jax.h5

(cd .. && install "${compiled[0]}[reconstruct]")
namsa-train reconstruct compiled.h5 --checkpoint 200kv-20mrad-fast --out density.h5
namsa-train "$root/tests/data/tiny.yaml" --set training.steps=2 # one rank trains without Horovod

(cd .. && install --reinstall-package namsa --no-deps "$root"/dist/namsa-*-none-any.whl)
namsa simulate starter.yaml "${small[@]}" --out plain.h5
python - <<'PYTHON'
import importlib.util
import sys

import h5py
import numpy as np

import namsa
import namsa_train
from namsa.engines import fused_library

assert namsa.__file__.startswith(sys.prefix) and namsa_train.__file__.startswith(sys.prefix)
assert not importlib.util.find_spec("train") and not importlib.util.find_spec("horovod")
assert not fused_library.available()
plain, compiled = (namsa.read_sample(f"{name}.h5").cbed for name in ("plain", "compiled"))
np.testing.assert_allclose(plain, compiled, rtol=1e-3, atol=1e-7)


def density(path):
    with h5py.File(path) as file:
        return file["reconstruction/density/data"][()]


ours, theirs = density("density.h5"), density("density_jax.h5")  # of TensorFlow, and without
assert ours.shape == (32, 32)
np.testing.assert_allclose(theirs, ours, rtol=0, atol=1e-5 * np.abs(ours).max())
print("the wheels simulate the same patterns, and one of them reconstructs")
PYTHON

# Pages of the documentation that need no checkout.
mkdir guides
python "$root/tests/support/guides.py" guides "$root"/docs/{view,reading}.md
