package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

func TestKinds(t *testing.T) {
	for want, err := range map[string]error{
		"other":       errors.New("x"),
		"usage":       Usage("", "x"),
		"trust":       &wire.Error{Code: wire.CodeTrust, Remote: true},
		"unreachable": &wire.Error{Code: wire.CodeBusy, Remote: true},
		"integrity":   fmt.Errorf("f: %w", &wire.Error{Code: wire.CodeIntegrity}),
		"local disk":  fs.ErrPermission,
		"remote disk": &wire.Error{Code: wire.CodeNoSpace, Remote: true},
		"interrupted": context.Canceled,
		"partial":     &Error{Kind: KindPartial, Err: errors.New("x")},
	} {
		require.Equal(t, want, KindOf(err).String())
	}
	require.Equal(t, "kind 99", Kind(99).String())
	require.Equal(t, "kind -1", Kind(-1).String())
}

// An address that no host has is a wrong command line, and a port that is taken is not.
func TestListenError(t *testing.T) {
	for err, want := range map[error]Kind{
		&net.AddrError{Err: "missing port", Addr: "7433"}:               KindUsage,
		&net.OpError{Op: "listen", Err: &net.DNSError{Name: "300.1.1"}}: KindUsage,
		&net.OpError{Op: "listen", Err: syscall.EADDRINUSE}:             KindOther,
		&net.OpError{Op: "listen", Err: transport.ErrCongestion}:        KindUsage,
	} {
		require.Equal(t, want, KindOf(ListenError("x", err)), "%v", err)
	}
}

// A failure names the path once, and wholly if the entry failed on this host. Its cause stays.
func TestFailure(t *testing.T) {
	denied := func(path string) error { return &fs.PathError{Op: "open", Path: path, Err: fs.ErrPermission} }
	for want, r := range map[string]FileResult{
		"a: permission denied":               {Path: "a", Err: fs.ErrPermission},
		"a: open: permission denied":         {Path: "a", Err: denied("a")},
		"a: open b: permission denied":       {Path: "a", Err: denied("b")},
		"/etc/xx: open: permission denied":   {Path: "a", Local: "/etc/xx", Err: denied("xx")},
		"/root: open: permission denied":     {Path: "root", Local: "/root", Err: fmt.Errorf("%w", denied("root"))},
		"d/a: open ../d: permission denied":  {Path: "a", Local: "d/a", Err: denied("../d")},
		"/srv/x/a: mkdir: permission denied": {Path: "x/a", Local: "/srv/x/a", Err: fmt.Errorf("mkdir: %w", fs.ErrPermission)},
	} {
		require.EqualError(t, r.Failure(), want)
		require.ErrorIs(t, r.Failure(), fs.ErrPermission)
	}
	require.Equal(t, fs.ErrPermission, (&FileResult{Err: fs.ErrPermission}).Failure())
}
