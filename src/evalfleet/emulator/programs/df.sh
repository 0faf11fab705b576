#!/bin/sh
# df for an emulated machine: `df -Pk [FILE…]` shows its disk; with other options it is the real one.
. "${0%/*}/../etc/evalfleet/host"
for word in "$@"; do
    case $word in
        -k | -P | -Pk | -kP | --) ;;
        -*) PATH=$path exec df "$@" ;;
    esac
done
free=$((disk_kb - used_kb))
echo "Filesystem     1024-blocks      Used Available Capacity Mounted on"
printf '%-14s %11d %9d %9d %7d%% /\n' /dev/root "$disk_kb" "$used_kb" "$free" $(((used_kb * 100 + disk_kb - 1) / disk_kb))
