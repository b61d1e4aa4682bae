#!/bin/bash
# Python and all its packages as one archive, which a batch job reads once per node and unpacks onto the node's disk.
# Thousands of ranks that import from a parallel file system would open thousands of files each.
#
#     scripts/environment.sh pack environment.tar.zst [PYTHON]    # once, on a login node; PYTHON: .venv/bin/python
#     scripts/environment.sh unpack environment.tar.zst FOLDER    # on each node: FOLDER/bin/python
#
# The archive holds the interpreter, its standard library, the environment's packages, and this checkout's own. `unpack`
# also takes archives of conda-pack. The suffix says how an archive is compressed: .tar.zst, .tar.gz or .tar.
set -euo pipefail

die() {
    echo "error: $*" >&2
    exit 2
}

filter() { # compress or decompress: the program for an archive's suffix
    case $2 in
    *.tar.zst) [ "$1" = compress ] && echo "zstd -T0 -q -c" || echo "zstd -d -q -c" ;;
    *.tar.gz) [ "$1" = compress ] && echo "gzip -1 -c" || echo "gzip -d -c" ;;
    *.tar) echo cat ;;
    *) die "$2 must end in .tar.zst, .tar.gz or .tar" ;;
    esac
}

# Three archives, one behind the other: of the interpreter's installation, the environment and the checkout.
members() {
    tar -c -C "$base" --exclude=site-packages --exclude=dist-packages --exclude='python*/test' --exclude='python*/config-*' \
        --transform "s,^bin/$executable\$,bin/python,;s,^lib[0-9]*/libpython,libpython/libpython," \
        "bin/$executable" "${libraries[@]}"
    tar -c -C "$environment" --exclude='*namsa*.pth' --exclude=bin --exclude=pyvenv.cfg "${packages[@]}"
    tar -c -C "$root" --exclude=__pycache__ --transform "s,^,${packages[0]}/," namsa fcdensenet train
}

pack() {
    archive=$1 python=${2:-.venv/bin/python} root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
    compress=$(filter compress "$archive")
    [ -x "$python" ] || die "there is no $python: install the environment first"
    places=$("$python" -c '
import os, shlex, sys, sysconfig
paths, base = sysconfig.get_paths(), os.path.realpath(sys.base_prefix)
executable = os.path.basename(os.path.realpath(sys.executable))
libraries = {os.path.relpath(os.path.realpath(paths["stdlib"]), base)}
shared = sysconfig.get_config_var("INSTSONAME") or ""
folder = sysconfig.get_config_var("LIBDIR") or ""
if ".so" in shared and os.path.exists(os.path.join(folder, shared)):
    libraries.add(os.path.relpath(os.path.join(os.path.realpath(folder), shared), base))
packages = {os.path.relpath(os.path.realpath(paths[key]), os.path.realpath(sys.prefix)) for key in ("purelib", "platlib")}
print(f"base={shlex.quote(base)} environment={shlex.quote(os.path.realpath(sys.prefix))}", end=" ")
print(f"executable={shlex.quote(executable)} libraries=({shlex.join(sorted(libraries))})", end=" ")
print(f"packages=({shlex.join(sorted(packages))})")')
    eval "$places"
    [ "$base" != "$environment" ] || die "$python is no virtual environment: pack a conda environment with conda-pack"
    members | $compress >"$archive.part"
    mv "$archive.part" "$archive"
    echo "$archive: $(du -h "$archive" | cut -f 1)"
}

unpack() {
    archive=$1 folder=$2
    decompress=$(filter decompress "$archive")
    rm -rf "$folder"
    mkdir -p "$folder"
    $decompress <"$archive" | tar -x --ignore-zeros -C "$folder"
    for library in "$folder"/lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2; do # before that of Horovod's build
        [ ! -e "$library" ] || { mkdir -p "$folder/libpython" && ln -s "$(realpath "$library")" "$folder/libpython/"; }
    done
    if [ -x "$folder/bin/conda-unpack" ]; then # paths in a conda environment's files
        "$folder/bin/python" "$folder/bin/conda-unpack"
    fi
}

case ${1-} in
pack) [ $# -ge 2 ] || die "pack needs the archive's name" && pack "${@:2}" ;;
unpack) [ $# -eq 3 ] || die "unpack needs an archive and a folder" && unpack "${@:2}" ;;
*) die "the first word must be pack or unpack" ;;
esac
