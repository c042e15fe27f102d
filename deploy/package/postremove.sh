#!/bin/sh
set -e

if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi

# Only dpkg purges. The clients' files always stay.
if [ "$1" = purge ]; then
    rm -rf /var/lib/fxfer /var/log/fxfer
    rmdir /etc/fxfer /srv/fxfer 2>/dev/null || true
    if getent passwd fxfer >/dev/null; then
        userdel fxfer || true
    fi
    if getent group fxfer >/dev/null; then
        groupdel fxfer || true
    fi
elif [ "$1" = 0 ]; then # rpm has no purge: state and account stay
    rmdir /srv/fxfer 2>/dev/null || true
fi
