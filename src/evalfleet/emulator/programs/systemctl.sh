#!/bin/sh
# systemctl for a machine that is a folder of this one: every service is active, and none is touched.
echo "$*" >>"${0%/*}/../etc/evalfleet/systemctl"
case " $* " in *" is-active "*) echo active ;; *" is-enabled "*) echo enabled ;; esac
