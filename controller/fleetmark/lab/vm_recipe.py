"""What goes into the root image of guests, and the key by which an image is found again."""

import hashlib
import json
from dataclasses import asdict, dataclass

from fleetmark.lab.vm_apt import Release

_KERNELS = {"Debian": "linux-image-cloud-amd64", "Ubuntu": "linux-image-virtual"}
_SYSTEM = (
    "systemd-sysv",
    "udev",
    "dbus",
    "kmod",
    "initramfs-tools",
    "openssh-server",
    "python3",
    "python3-apt",
    "acl",
    "sudo",
    "iproute2",
    "procps",
    "pciutils",
    "ca-certificates",
    "xz-utils",
    "zstd",
)
_OF_ROLES = (
    "mariadb-server",
    "sysbench",
    "fio",
    "nvme-cli",
    "smartmontools",
    "chrony",
    "prometheus-node-exporter",
    "prometheus-mysqld-exporter",
    "e2fsprogs",
    "xfsprogs",
    "mdadm",
    "lvm2",
    "parted",
    "numactl",
    "ethtool",
    "iperf3",
    "stress-ng",
)

_ESSENTIAL = """\
#!/bin/sh
# Before the kernel comes: an initial RAM disk of what guests have, so that it loads fast.
set -eu
mkdir -p "$1/etc/initramfs-tools/conf.d" "$1/etc/initramfs-tools/hooks"
echo 'MODULES=list' >"$1/etc/initramfs-tools/conf.d/lab"
cat >"$1/etc/initramfs-tools/hooks/lab" <<'END'
#!/bin/sh
[ "${1:-}" = prereqs ] && exit 0
. /usr/share/initramfs-tools/hook-functions
for module in virtio_pci virtio_blk ext4; do manual_add_modules "$module"; done
# Scripts of other packages call it.
copy_exec /usr/bin/rm /bin
END
chmod 755 "$1/etc/initramfs-tools/hooks/lab"
"""

_CUSTOMIZE = """\
#!/bin/sh
set -eu
cd "$1"

# A guest's own part comes on a small disk that is a tar archive, and is taken at the first boot.
cat >etc/systemd/system/lab-identity.service <<'END'
[Unit]
Description=Take this host's keys and addresses
DefaultDependencies=no
ConditionPathExists=!/etc/lab-identity
BindsTo=dev-vdb.device
After=dev-vdb.device systemd-remount-fs.service
Before=sysinit.target systemd-networkd.service ssh.service shutdown.target
Conflicts=shutdown.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/tar -x -C / --no-overwrite-dir -f /dev/vdb
ExecStart=/bin/sync
ExecStart=/bin/touch /etc/lab-identity
ExecStart=/bin/sync

[Install]
WantedBy=sysinit.target
END

mkdir -p etc/ssh/sshd_config.d
cat >etc/ssh/sshd_config.d/lab.conf <<'END'
HostKey /etc/ssh/ssh_host_ed25519_key
PasswordAuthentication no
UseDNS no
MaxStartups 100
MaxSessions 100
END
rm -f etc/ssh/ssh_host_*
echo 'LANG=C.UTF-8' >etc/default/locale
echo '/dev/vda / ext4 rw,noatime,errors=remount-ro 0 1' >etc/fstab
: >etc/machine-id

# Roles decide which services run; nothing else may cost CPU beside a measurement.
chroot . systemctl enable lab-identity.service systemd-networkd.service ssh.service
for unit in mariadb chrony smartmontools prometheus-node-exporter prometheus-mysqld-exporter \\
  iperf3 lvm2-monitor mdmonitor e2scrub_reap console-getty getty@tty1 cron; do
  chroot . systemctl disable "$unit.service" 2>/dev/null || true
done
chroot . systemctl mask -q systemd-networkd-wait-online.service apt-daily.timer \\
  apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer
for timer in etc/systemd/system/timers.target.wants/prometheus-*; do rm -f "$timer"; done

# The way to the package mirror is this machine's affair; guests have no way out.
rm -f etc/apt/sources.list etc/apt/sources.list.d/* etc/apt/apt.conf.d/99mmdebstrap
: >etc/apt/sources.list
"""


@dataclass(frozen=True)
class Recipe:
    """All that decides what an image is; where the packages come from is no part of it."""

    distribution: str
    codename: str
    packages: tuple[str, ...]
    essential: str
    customize: str

    @property
    def key(self) -> str:
        """The release, and a hash of everything."""
        text = json.dumps(self.as_dict(), sort_keys=True)
        return f"{self.codename}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def as_dict(self) -> dict[str, object]:
        """For the record in the image's directory."""
        return asdict(self)


def recipe(machine: Release, additional: tuple[str, ...]) -> Recipe:
    """The recipe for this machine's release, with additional packages."""
    kernel = _KERNELS[machine.distribution]
    packages = tuple(dict.fromkeys((kernel, *_SYSTEM, *_OF_ROLES, *sorted(additional))))
    return Recipe(machine.distribution, machine.codename, packages, _ESSENTIAL, _CUSTOMIZE)
