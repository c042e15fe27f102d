// Package hint finds words that help against an error. The command line shows these hints, and
// backups store them in their history, so the package is below both.
package hint

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/wire"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// words are the hints by the advice of an error.
var words = map[fxfer.Advice]string{
	fxfer.AdviceResume:            "the same command resumes",
	fxfer.AdviceRetry:             "run the command again: a transfer resumes, and by itself with --retry-for 10m",
	fxfer.AdviceRetryLater:        "try again later; a transfer does so by itself with --retry-for 10m",
	fxfer.AdviceMakeRoom:          "make room on that disk; the same command resumes",
	fxfer.AdviceAgain:             "nothing is left to resume: run the command again",
	fxfer.AdviceMakeRoomAgain:     "make room on that disk, then run the command again: nothing is left to resume",
	fxfer.AdviceRename:            "rename it, or leave it out with --exclude: fxfer keeps such names for its own files",
	fxfer.AdviceMakeFolder:        "create that folder first: only the last folder of the target is made",
	fxfer.AdviceInvitation:        "ask its administrator for an invitation: `fxfer invite` while the server runs, or fxfer serve --invite",
	fxfer.AdviceReadmit:           "give the server's administrator what `fxfer key` prints here: `fxfer clients add` there admits it again",
	fxfer.AdviceServerLog:         "the server's administrator finds this client in its log",
	fxfer.AdviceServerPort:        "is `fxfer serve` running there, and on this port? Another service may have it, or the server hangs",
	fxfer.AdviceServerCopies:      "`fxfer serve --copies`, or copies: true in its configuration, allows them; `fxfer get` and `fxfer send` go by way of this machine",
	fxfer.AdviceServerCertificate: "give it one, by tls: in its configuration; or leave --tls-ca out to know it by its key",
	fxfer.AdviceServerClientCA:    "name their CA there, by tls: in its configuration; or leave --tls-cert out",
	fxfer.AdviceCheckPin:          "if the server was set up anew, ask for its new key; otherwise somebody may be posing as it: do not continue",
	fxfer.AdviceFixPathMTU:        "sudo sysctl -w net.ipv4.tcp_mtu_probing=1, or let ICMP pass the firewalls",
	fxfer.AdviceNotStrict:         "without --strict that is a warning",
	fxfer.AdviceUpdateServer:      "the server has an older version that can't do this: update it",
	fxfer.AdviceRestartServer:     "the server is confined to the folders that it had when it started: restart it",
	fxfer.AdviceRelay:             "does `fxfer relay` run there, with this server among --to, and does `fxfer clients ls` there list this client?",
	fxfer.AdviceRelayInvitation:   "ask for an invitation of the relay, which `fxfer invite` prints there, and pass it to --via once",
	fxfer.AdviceStandardCrypto:    "--crypto std uses Go's TLS records and ciphers instead; please report this, with the model of the processor",
}

// Of returns a hint against err. The hint follows from the cause; otherwise it is the first hint or
// advice on the error's chain, or "".
func Of(err error) string {
	var name *net.DNSError
	var dial *net.OpError
	var coded *wire.Error
	var unknown *identity.UnknownServerError
	var changed *identity.ServerChangedError
	var relay *fxfer.Error
	switch {
	case errors.As(err, &relay) && (relay.Advice == fxfer.AdviceRelay || relay.Advice == fxfer.AdviceRelayInvitation):
		return words[relay.Advice]
	case errors.As(err, &unknown):
		return "compare this key with the one that `fxfer serve` prints there, then add --pin KEY once; or use the URL that `fxfer invite` or `fxfer serve --invite` prints"
	case errors.As(err, &changed):
		return fmt.Sprintf("somebody may be posing as the server; only if whoever runs it confirms the new key, delete line %d of %s and connect again", changed.Line, changed.File)
	case errors.As(err, &coded) && (coded.Code == wire.CodeDraining || coded.Code == wire.CodeBusy):
		return words[fxfer.AdviceRetryLater]
	case errors.As(err, &coded) && coded.Code == wire.CodeNotEmpty:
		return "`fxfer rm -r` removes a folder with everything in it; `fxfer rm -r -n` lists what that is"
	case errors.As(err, &coded) && coded.Code == wire.CodeFolder:
		return "`fxfer get` copies a folder, `fxfer ls` lists it"
	case errors.Is(err, fxfer.ErrSnapshotExists):
		return "a snapshot is named after its time, to the second: wait a second, or name another time"
	case errors.As(err, &dial) && dial.Op == "dial" && dial.Timeout():
		return fmt.Sprintf("is the host up? A firewall may block the server's port, %d unless the URL names another: it needs TCP and UDP", identity.DefaultPort)
	case errors.Is(err, syscall.ECONNREFUSED) && own(err) == "":
		return "is `fxfer serve` running there, and on this port?"
	case errors.As(err, &name) && name.IsNotFound:
		return "check the name of the host"
	}
	if text := own(err); text != "" {
		return text
	}
	var known *fxfer.Error
	for e := err; errors.As(e, &known); e = known.Err {
		if text := words[known.Advice]; text != "" {
			return text
		}
	}
	if coded == nil || !coded.Remote {
		return ""
	}
	switch coded.Code {
	case wire.CodeRight:
		return "`fxfer ls fxfer://HOST/` lists your shares and your rights"
	case wire.CodeNotFound:
		return "`fxfer ls fxfer://HOST/SHARE` lists what is there"
	}
	return ""
}

// own returns the first hint that an error on the chain contains itself.
func own(err error) string {
	var hinted interface {
		error
		Hint() string
	}
	for e := err; errors.As(e, &hinted); e = errors.Unwrap(hinted) {
		if text := hinted.Hint(); text != "" {
			return text
		}
	}
	return ""
}

// FromPeer reports whether the other side sent the error. Then help for this side does not help.
func FromPeer(err error) bool {
	var coded *wire.Error
	return errors.As(err, &coded)
}
