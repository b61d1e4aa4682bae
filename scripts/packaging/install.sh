#!/bin/sh
# Installs the wheel of a folder into /opt/namsa on a bare Debian 12: the steps of Dockerfile and namsa.def.
# The folder is dist/ as scripts/wheels.sh makes it; versions.txt has the versions of uv.lock.
set -eu

folder=$1
extra=${2:-reconstruct}
apt-get update -q
apt-get install -y -q --no-install-recommends ca-certificates python3-venv
rm -rf /var/lib/apt/lists/*
python3 -m venv /opt/namsa
set -- "$folder"/namsa-*-manylinux*_"$(uname -m)".whl
/opt/namsa/bin/pip install --no-cache-dir --constraint "$folder/versions.txt" "$1[$extra]"
