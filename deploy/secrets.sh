#!/bin/sh
# Makes the secrets of a cluster as files in deploy/secrets, each a line of 43 random characters:
#
#   auth-token       what clients prove to know
#   cluster-secret   what nodes prove to each other
#   admin-token      what an operator shows to the admin endpoints
#
# A file that is there stays as it is, so it may be run again at any time. The directory is the
# owner's alone; the files in it can be read by all because the user inside the container, who has
# no name here, must read them.
set -eu

directory=$(dirname "$0")/secrets
umask 077
mkdir -p "$directory"
for name in auth-token cluster-secret admin-token; do
    file=$directory/$name
    if [ ! -s "$file" ]; then
        head -c 32 /dev/urandom | base64 | tr '+/' '-_' | tr -d '=\n' >"$file.new"
        echo >>"$file.new"
        chmod 0444 "$file.new"
        mv "$file.new" "$file"
        echo "made $file"
    fi
done
