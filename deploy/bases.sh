#!/bin/sh
# Makes the two bases of the image on a machine that reaches Debian's packages but no registry:
#
#   ticketing-runtime-base:local   a minimal Debian system
#   ticketing-builder-base:local   the same with a C compiler and this machine's Rust toolchain
#
#   deploy/bases.sh [runtime]      with `runtime`: only the first
#
# Needs root, debootstrap, a container engine and (for the second) rustc. DEBIAN_MIRROR names
# another mirror than the one that debootstrap knows.
set -eu

release=bookworm
runtime=ticketing-runtime-base:local
builder=ticketing-builder-base:local

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# import DIRECTORY NAME: makes an image of a directory.
import() {
    tar --create --directory "$1" --one-file-system . | docker import - "$2" >/dev/null
    echo "made $2"
}

debootstrap --variant=minbase "$release" "$work/root" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"} \
    >"$work/log" || {
    cat "$work/log" >&2
    exit 1
}
rm -rf "$work/root/var/cache/apt" "$work/root/var/lib/apt/lists"
import "$work/root" "$runtime"
if [ "${1:-all}" = runtime ]; then
    exit 0
fi

# The toolchain that this directory asks for, as rustup laid it out. Certificate authorities are
# this machine's: cargo has to trust whatever stands between it and its registry here.
mkdir "$work/context"
cp -a "$(rustc --print sysroot)" "$work/context/rust"
rm -rf "$work/context/rust/share"
cp /etc/ssl/certs/ca-certificates.crt "$work/context/ca.crt"
cat >"$work/context/Dockerfile" <<END
FROM $runtime
RUN mkdir -p /var/cache/apt/archives/partial && apt-get update -qq \\
    && apt-get install -y -qq --no-install-recommends gcc libc6-dev ca-certificates \\
    && rm -rf /var/lib/apt/lists /var/cache/apt
COPY rust /usr/local
COPY ca.crt /etc/ssl/certs/ca-certificates.crt
END
docker build --quiet --tag "$builder" "$work/context" >/dev/null
echo "made $builder"
