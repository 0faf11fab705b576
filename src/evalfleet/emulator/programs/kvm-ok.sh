#!/bin/sh
# Ubuntu's kvm-ok (package cpu-checker), as an emulated machine would have it say.
. "${0%/*}/../etc/evalfleet/host"
if [ "$kvm" = 1 ]; then
    echo "INFO: /dev/kvm exists"
    echo "KVM acceleration can be used"
    exit 0
fi
echo "INFO: Your CPU does not support KVM extensions"
echo "KVM acceleration can NOT be used"
exit 1
