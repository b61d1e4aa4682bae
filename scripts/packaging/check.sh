#!/bin/bash
# Runs the steps of the container recipes in a new Debian 12, without Docker or Apptainer, and works in it as a user does.
# Needs root, debootstrap, and the wheels of scripts/wheels.sh in dist/.
set -euo pipefail
cd "$(dirname "$0")/../.."

place=$(mktemp -d)
trap 'rm -rf --one-file-system "$place"' EXIT
debootstrap --variant=minbase --include=ca-certificates bookworm "$place" http://deb.debian.org/debian >/dev/null
cp -r dist scripts/packaging/install.sh "$place/tmp/"
cp /etc/ssl/certs/ca-certificates.crt "$place/etc/ssl/certs/" # of networks with an authority of their own
cp /etc/resolv.conf "$place/etc/"
inside() { # with its own mounts, which end with it
    unshare --mount --pid --fork --mount-proc="$place/proc" chroot "$place" env -i HOME=/root \
        PATH=/opt/namsa/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        PIP_CERT=/etc/ssl/certs/ca-certificates.crt "$@"
}
inside sh /tmp/install.sh /tmp/dist
inside sh -ec '
    cd /root
    namsa init first
    cd first
    namsa simulate starter.yaml --set "scan.shape=[32, 32]" --set "specimen.thickness_angstrom=[20]" --out scan.h5
    namsa-train reconstruct scan.h5 --checkpoint 200kv-20mrad-fast --out density.h5
    test -s density.h5'
