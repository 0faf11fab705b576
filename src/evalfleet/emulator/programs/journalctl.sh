#!/bin/sh
# journalctl for an emulated machine: what its units wrote. A file etc/evalfleet/journal/UNIT says it instead.
etc=${0%/*}/../etc/evalfleet
. "$etc/host"
lines=1000 units=
for word in "$@"; do
    case $word in
        --lines=*) lines=${word#*=} ;;
        --unit=*) units="$units ${word#*=}" ;;
    esac
done
for unit in $units; do
    if [ -f "$etc/journal/$unit" ]; then
        cat "$etc/journal/$unit"
    elif [ "$unit" = cloud-final ]; then
        echo "2026-01-01T00:00:20+0000 $vm cloud-init[900]: Cloud-init finished. Datasource DataSourceAzure."
    elif [ "$unit" = docker ] && [ "$dockerd" = 1 ]; then
        echo "2026-01-01T00:00:21+0000 $vm dockerd[950]: Daemon has completed initialization"
    elif [ "$unit" = docker ]; then
        echo "2026-01-01T00:00:21+0000 $vm dockerd[950]: failed to start daemon: error initializing graphdriver"
    fi
done | tail -n "$lines"
