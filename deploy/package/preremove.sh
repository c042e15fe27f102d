#!/bin/sh
set -e

# dpkg passes "remove" or, for an upgrade, "upgrade". rpm passes how many versions will be left.
case "$1" in
remove | 0)
    if [ -d /run/systemd/system ]; then
        systemctl disable --now fxfer.socket fxfer.service || true
    fi
    ;;
esac
