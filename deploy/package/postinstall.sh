#!/bin/sh
set -e

if ! getent passwd fxfer >/dev/null; then
    if command -v systemd-sysusers >/dev/null; then
        systemd-sysusers fxfer.conf
    else
        useradd --system --user-group --home-dir /var/lib/fxfer --no-create-home --shell /usr/sbin/nologin --comment 'fxfer file transfer' fxfer
    fi
fi
if [ ! -e /srv/fxfer ]; then
    install -d -o fxfer -g fxfer -m 0750 /srv/fxfer
fi
install -d -o fxfer -g fxfer -m 0700 /var/lib/fxfer

if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    # A running server restarts with the new program, and its transfers resume from their checkpoints.
    # A stopped server stays stopped.
    systemctl try-restart fxfer.service
fi
