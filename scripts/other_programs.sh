#!/bin/bash
# Runs the tests of what namsa is in other programs, each with its program, in environments that uv makes: about 8 GB.
# TensorFlow is only where a network is used: beside quantem, its LLVM is the second in a process, which ends that.
#     scripts/other_programs.sh [libertem|browser|loaders|quantem ...]
set -euo pipefail
cd "$(dirname "$0")/.."
export QT_QPA_PLATFORM=offscreen OMP_NUM_THREADS=1

tests() { # extras of namsa, packages, and the tests that need them
    local with=(--with ".[$1]" --with pytest --with pytest-xdist --with hypothesis) packages=$2
    shift 2
    for package in $packages; do with+=(--with "$package"); done
    scripts/uv run --no-project --isolated --python 3.11 "${with[@]}" python -m pytest -n 0 -rs "$@"
}

for name in "${@:-libertem browser loaders quantem}"; do
    for each in $name; do
        case $each in
        libertem) tests reconstruct,formats libertem tests/train/integrations/test_libertem.py ;;
        browser) tests reconstruct,formats py4D-browser tests/train/integrations/test_py4d_browser.py ;;
        loaders) tests formats 'torch grain' tests/namsa/dataset/test_indexed.py ;;
        quantem) tests formats quantem==0.1.10 tests/namsa/exchange/test_quantem.py ;;
        *) echo "no program $each: libertem, browser, loaders or quantem" >&2 && exit 2 ;;
        esac
    done
done
