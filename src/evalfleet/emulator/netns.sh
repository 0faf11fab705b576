#!/bin/sh
# Becomes one emulated VM: runs as the first process of its own mount, network, process, host name and IPC namespaces.
# Arguments: folder of its disks, host name, address with prefix, gateway. Waits for its interface, then is sshd.
set -eu
folder=$1 name=$2 address=$3 gateway=$4
root=$folder/root

mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/disk,workdir=$folder/work" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
mount --bind "$folder/mnt" "$root/mnt"
mkdir -p "$root/run/sshd"
mount --bind "$folder/cpuinfo" "$root/proc/cpuinfo"
if [ -e "$root/dev/kvm" ]; then
    # What is mounted over the device is what the VM sees: a device that everybody may write, or a file that nobody may.
    if [ "$(cat "$folder/kvm")" = usable ]; then mount --bind /dev/null "$root/dev/kvm"; else
        : >"$folder/no-kvm"
        chmod 000 "$folder/no-kvm"
        mount --bind "$folder/no-kvm" "$root/dev/kvm"
    fi
fi

hostname "$name"
while ! ip link show eth0 >/dev/null 2>&1; do sleep 0.01; done
ip link set lo up
ip addr add "$address" dev eth0
ip link set eth0 up
ip route add default via "$gateway"
exec chroot "$root" /usr/sbin/sshd -D -e -f /etc/ssh/evalfleet_sshd_config
