#!/bin/bash
# tests/mount/package.sh - the Debian package: installed, used as README.md says, mounted by /etc/fstab, purged; on a copy of this machine (an
# overlay that is thrown away), so that the machine itself has nothing of it, and what the package leaves can be seen.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

machine=$work/machine
upper=$work/over/upper
install=(dpkg --no-triggers -i) purge=(dpkg --no-triggers --purge)
if [ -n "${LONG:-}" ]; then # takes its time: apt to find out that nothing else is needed, the trigger of man-db to read all pages
    install=(apt-get install -y -q --no-install-recommends) purge=(apt-get purge -y -q)
fi

# As udev makes them, which may not run here.
make_devices() {
    mount -t tmpfs tblfs-test "$machine/dev"
    mknod -m 666 "$machine/dev/fuse" c 10 229
    mknod -m 666 "$machine/dev/null" c 1 3
    mknod -m 666 "$machine/dev/urandom" c 1 9
    ln -s /proc/self/fd "$machine/dev/fd"
}

# Mounts below $machine are private: none of them is seen anywhere else, and lib.sh takes them away.
make_machine() {
    local dir
    mkdir "$work/over" "$machine"
    mount -t tmpfs tblfs-test "$work/over"
    mkdir "$upper" "$work/over/work"
    if ! mount -t overlay tblfs-test -o "lowerdir=/,upperdir=$upper,workdir=$work/over/work" "$machine" 2>"$work/said"; then
        echo "skipped: no overlay here: $(cat "$work/said")"
        exit 77
    fi
    mount --make-private "$machine"
    make_devices
    mount -t proc proc "$machine/proc"
    mount -t sysfs sysfs "$machine/sys"
    for dir in tmp root run home etc; do # what is not of the root filesystem here is empty there
        mkdir -p "$machine/$dir"
    done
    chmod 1777 "$machine/tmp"
    rm -rf "$machine/usr/local/bin/tblfs" "$machine"/sbin/{,u}mount*.tblfs
    echo 'reader:x:4242:4242::/home/reader:/bin/bash' >>"$machine/etc/passwd"
    touch "$machine/etc/fstab"
    mkdir "$machine/home/reader"
    chown 4242:4242 "$machine/home/reader"
}

inside() {
    timeout 100 chroot "$machine" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TEST_SCRATCH="${TEST_SCRATCH:-}" \
        DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 "$@"
}

# What differs from the machine, without the package manager's own notes and what it caches.
files_of_machine() {
    (cd "$upper" && find . -mindepth 1 ! -type d \
        ! -path './var/lib/dpkg/*' ! -path './var/lib/apt/*' ! -path './var/log/*' ! -path './var/cache/*' ! -path './tmp/*' ! -path './run/*' |
        sort)
}

package_installs() {
    deb=$("$root/mountscripts/package" "$(dirname "$TBLFS")" "$work/deb" 2>"$work/said") || fail "$(cat "$work/said")"
    files_of_machine >"$work/before"
    cp "$deb" "$machine/tmp/"
    inside "${install[@]}" "/tmp/${deb##*/}" >"$work/said" 2>&1 || fail "$(cat "$work/said")"
    same "state" "$(inside dpkg-query -W -f '${db:Status-Status} ${Version}' tblfs)" "installed $("$TBLFS" version | cut -d' ' -f2)"
    same "changed files" "$(inside dpkg --verify tblfs)" ""
    same "the command" "$(inside tblfs version)" "$("$TBLFS" version)"
    inside test -r /usr/share/man/man8/mount.fuse.tblfs.8.gz || fail "man pages"
    ok package_installs
}

# As a user who is not root: fusermount3 mounts.
readme_does_what_it_shows() {
    cp "$root/README.md" "$root/mountscripts/session" "$machine/tmp/"
    "$root/mountscripts/session" --expected "$root/README.md" installed >"$work/expected"
    [ "$(grep -c '^\$ ' "$work/expected")" -ge 8 ] || fail "no commands found"
    inside setpriv --reuid=4242 --regid=4242 --clear-groups env HOME=/home/reader \
        bash /tmp/session /tmp/README.md /home/reader installed >"$work/got" || fail "session: $(cat "$work/got")"
    diff "$work/expected" "$work/got" || fail "README.md shows (<) what an installed tblfs does not say (>)"
    ok readme_does_what_it_shows
}

fstab_mounts_and_umount_waits() {
    local type pid
    inside tblfs mkfs /var/lib/tblfs >/dev/null
    inside mkdir /srv/tables
    for type in fuse.tblfs tblfs; do
        echo "/var/lib/tblfs /srv/tables $type defaults,allow_other,cache=32M,nofail,x-systemd.requires=/ 0 0" >"$machine/etc/fstab"
        inside mount -a || fail "mount -a with $type"
        same "options" "$(inside awk -F '\t' '$1 == "cache" { print $2 }' /srv/tables/.tblfs/settings)" $((32 << 20))
        inside sh -c 'echo row >>/srv/tables/table'
        inside setpriv --reuid=4242 --regid=4242 --clear-groups grep -q row /srv/tables/table || fail "others may not read"
        pid=$(awk -F '\t' '$1 == "pid" { print $2 }' "$machine/srv/tables/.tblfs/status")
        inside mount -a || fail "mount -a twice"
        same "mounts" "$(inside findmnt -rn -o TARGET /srv/tables | wc -l)" 1
        inside umount /srv/tables || fail "umount of $type"
        is_gone "$pid" || fail "umount came back before the daemon of $type was gone"
    done
    inside tblfs check /var/lib/tblfs >"$work/said" 2>&1 || fail "check: $(cat "$work/said")"
    same "rows" "$(inside tblfs mount /var/lib/tblfs /srv/tables && inside cat /srv/tables/table | wc -l)" 2
    inside umount /srv/tables
    ok fstab_mounts_and_umount_waits
}

package_purges() {
    inside rm -r /var/lib/tblfs /srv/tables /home/reader/tables /home/reader/tables.data
    inside "${purge[@]}" tblfs >"$work/said" 2>&1 || fail "$(cat "$work/said")"
    files_of_machine >"$work/after"
    diff "$work/before" "$work/after" || fail "purge leaves (>) files"
    [ ! -e "$machine/etc/tblfs" ] && [ ! -e "$machine/usr/share/tblfs" ] || fail "purge leaves directories"
    ok package_purges
}

lintian_finds_nothing() {
    if [ -z "${LONG:-}" ] || ! command -v lintian >/dev/null; then
        ok "lintian_finds_nothing (not looked at: in long runs only)"
        return
    fi
    # Who builds it says with DEBEMAIL who they are.
    timeout 200 lintian --allow-root --suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog "$deb" >"$work/said" 2>&1 || true
    same "lintian" "$(cat "$work/said")" ""
    ok lintian_finds_nothing
}

make_machine
package_installs
readme_does_what_it_shows
fstab_mounts_and_umount_waits
package_purges
lintian_finds_nothing
