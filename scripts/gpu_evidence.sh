#!/bin/bash
# What this tree does on one GPU, measured in minutes and without a network; the tree need not be installed.
#
#     scripts/gpu_evidence.sh [--parts tests,engines] [--out FOLDER] [--seconds 520]
#
# PYTHON (python3) has the packages of scripts/gpu/machine.txt. What it lacks is installed from the wheels in WHEELS
# (.wheels, see scripts/gpu_wheels.sh) into a temporary folder. scripts/bench/gpu_evidence.py runs the parts.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3} wheels=${WHEELS:-.wheels}
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
shopt -s nullglob
files=("$wheels"/*.whl "$wheels"/rival/*.whl)
if [ ${#files[@]} -gt 0 ]; then
    "$python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps --no-compile --no-cache-dir \
        --target "$site" "${files[@]}"
fi
flags=$("$python" -c "import re; print(*re.findall(r'\"(.*?)\"', re.search(r'FLAGS = (.*)', open('hatch_build.py').read())[1]))")
# shellcheck disable=SC2086
if ! ${CC:-cc} $flags -o "$site/_namsa_fused.so" namsa/engines/fused.c; then
    echo "gpu_evidence: no C compiler, so the engine for processors is the plain one" >&2
fi
export PYTHONPATH=$PWD:$site${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
"$python" scripts/bench/gpu_evidence.py "$@"
