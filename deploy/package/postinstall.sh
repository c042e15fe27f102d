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
    # What runs goes on with the new program, its transfers from their checkpoints. Nothing is started that was not.
    systemctl try-restart fxfer.service
fi
