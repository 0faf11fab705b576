"""The shell scripts that checks run on a machine; plain POSIX sh, no program that a bare Ubuntu lacks."""

from __future__ import annotations

FREE_GB = """df -Pk "$HOME" | awk 'NR == 2 { printf "%.1f\\n", $4 / 1048576 }'"""

# Only what can be had again: what Docker keeps without use, packages that are installed already, old logs.
TIDY = """as=; [ "$(id -u)" = 0 ] || as='sudo -n'
if command -v docker >/dev/null 2>&1; then $as docker system prune --force >/dev/null 2>&1; fi
if command -v apt-get >/dev/null 2>&1; then $as apt-get clean >/dev/null 2>&1; fi
if command -v journalctl >/dev/null 2>&1; then $as journalctl --vacuum-size=50M >/dev/null 2>&1; fi
exit 0
"""

# That the device is there says nothing: the processor must have it, too. A user without the right gets it for good.
KVM = """if command -v kvm-ok >/dev/null 2>&1; then
    kvm-ok >/dev/null 2>&1 && echo usable || echo 'kvm-ok says no'
    exit 0
fi
grep -Eqw 'svm|vmx' /proc/cpuinfo || { echo 'the processor has neither svm nor vmx'; exit 0; }
[ -e /dev/kvm ] || { echo 'there is no /dev/kvm'; exit 0; }
[ -w /dev/kvm ] || sudo -n chmod a+rw /dev/kvm 2>/dev/null
[ -w /dev/kvm ] && echo usable || echo '/dev/kvm is not writable'
"""
