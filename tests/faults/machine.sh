#!/usr/bin/env bash
# Runs a command on a machine of its own, made of namespaces: only what the command starts has
# processes, sockets, files in /tmp and in /dev/shm there. Needs root.
set -euo pipefail

# shellcheck disable=SC2016  # what is quoted is expanded inside
inside='
set -euo pipefail
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mkdir /dev/shm/tmp
mount -t tmpfs -o mode=1777,size=4g tmpfs /dev/shm/tmp
# A repository in /tmp stays where it is.
if [[ $PWD/ = /tmp/* ]]; then
    mkdir -p "/dev/shm$PWD"
    mount --bind "$PWD" "/dev/shm$PWD"
fi
mount --move /dev/shm/tmp /tmp
rmdir /dev/shm/tmp
# A disk that is made as small as its content must not be empty.
echo content > /tmp/content
mkdir "$SUNSPOT_TESTS_DISK"
mount -t tmpfs -o size=1g tmpfs "$SUNSPOT_TESTS_DISK"
ip link set lo up
ip link add eth0 type veth peer name wire
ip address add 10.9.0.4/24 dev eth0
ip link set wire up
ip link set eth0 up
ip route add default via 10.9.0.1
# Not by exec: the first process of a machine also takes note of the orphans that end.
status=0
"$@" || status=$?
exit "$status"
'
# The disk of a user: home, project and state directory.
export SUNSPOT_TESTS_DISK=/tmp/user
exec unshare --mount --pid --net --ipc --fork --kill-child --mount-proc \
    bash -c "$inside" bash "$@"
