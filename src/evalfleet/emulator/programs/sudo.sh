#!/bin/sh
# sudo for a machine that is a folder of this one: nothing becomes root here.
while [ $# -gt 0 ]; do
    case $1 in
        -u | -g | -h | -p | -C | -D | -R | -T | --user | --group) shift 2 ;;
        --) shift; break ;;
        -*) shift ;;
        *=*) export "${1?}"; shift ;;
        *) break ;;
    esac
done
[ $# -gt 0 ] || exit 0
exec "$@"
