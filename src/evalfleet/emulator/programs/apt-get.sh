#!/bin/sh
# apt-get for a machine that is a folder of this one: notes what was asked for, and installs nothing.
echo "$*" >>"${0%/*}/../etc/evalfleet/apt-get"
