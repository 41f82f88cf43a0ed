#!/bin/sh
# Checks and tests the alerts of deploy/monitoring/alerts.yaml. Needs promtool.
set -eu

here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A rules file is what is below `spec:`.
sed '1,/^spec:/d' "$here/../monitoring/alerts.yaml" >"$work/rules.yaml"
cp "$here/alerts.yaml" "$work"
promtool check rules "$work/rules.yaml"
promtool test rules "$work/alerts.yaml"
