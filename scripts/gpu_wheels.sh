#!/bin/bash
# Packages for scripts/gpu_evidence.sh on a GPU machine without a network: Python 3.12, CUDA 13, the packages of
# scripts/gpu/machine.txt, no TensorFlow.
#
#     scripts/gpu_wheels.sh fetch [FOLDER]       # what the machine lacks, as wheels in FOLDER (.wheels), 19 MB, and
#                                                # abTEM in FOLDER/rival, 6 MB
#     scripts/gpu_wheels.sh rehearse FOLDER      # such a machine's environment in FOLDER, without a GPU; of PYTHON
#
# A rehearsal: PYTHON=FOLDER/bin/python scripts/gpu_evidence.sh, in a copy of the checkout's files that is not installed.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)

case ${1-} in
fetch)
    folder=${2:-.wheels}
    rm -rf "$folder"
    platforms=()
    for glibc in 28 27 24 17; do platforms+=(--platform "manylinux_2_${glibc}_x86_64"); done
    for list in wheels rival; do
        destination=$folder
        [ $list = wheels ] || destination=$folder/rival
        "$here/scripts/uv" tool run --quiet pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
            --implementation cp --python-version 3.12 "${platforms[@]}" --platform manylinux2014_x86_64 \
            --dest "$destination" -r "$here/scripts/gpu/$list.txt"
    done
    du -sh "$folder"
    ;;
rehearse)
    [ $# -eq 2 ] || { echo "error: rehearse needs a folder" >&2 && exit 2; }
    "$here/scripts/uv" venv --quiet --clear --python "${PYTHON:-3.12}" "$2"
    "$here/scripts/uv" pip install --quiet --python "$2/bin/python" -r "$here/scripts/gpu/machine.txt"
    ;;
*)
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
