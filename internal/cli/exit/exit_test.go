package exit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/wire"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

func TestClassify(t *testing.T) {
	other := errors.New("x")
	for _, c := range []struct {
		err  error
		kind string
		code int
	}{
		{other, "other", 1},
		{Usage("", "x"), "usage", 2},
		{&fxfer.Error{Kind: fxfer.KindPartial, Err: other}, "partial", 3},
		{fmt.Errorf("dial: %w", fxfer.ErrUnknownServer), "trust", 4},
		{&fxfer.Error{Kind: fxfer.KindUnreachable, Err: other}, "unreachable", 5},
		{&fxfer.Error{Kind: fxfer.KindIntegrity, Err: other}, "integrity", 6},
		{&fs.PathError{Op: "open", Path: "x", Err: fs.ErrNotExist}, "local_disk", 7},
		{fmt.Errorf("write x: %w", &fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}), "local_disk", 7},
		{&os.LinkError{Op: "rename", Old: "x", New: "y", Err: syscall.EIO}, "local_disk", 7},
		{&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, "unreachable", 5},
		{&net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}, "unreachable", 5},
		{&fxfer.Error{Kind: fxfer.KindRemoteDisk, Err: other}, "remote_disk", 8},
		{&fxfer.Error{Kind: fxfer.KindNotFound, Err: other}, "not_found", 10},
		{context.Canceled, "interrupted", 130},
		{errors.Join(Status{Code: 42}), "command", 42},
	} {
		kind, code := Classify(c.err)
		require.Equal(t, c.kind, kind)
		require.Equal(t, c.code, code)
	}
}

// What a signal has stopped says so, and keeps its hint. Other errors stay.
func TestOutcome(t *testing.T) {
	for _, c := range []struct{ err, want error }{
		{context.Canceled, Interrupted("")},
		{errors.Join(fmt.Errorf("reading: %w", context.Canceled), errors.New("x")), Interrupted("")},
		{WithHint(&fxfer.Error{Kind: fxfer.KindInterrupted, Err: context.Canceled}, "again"), Interrupted("again")},
	} {
		got := Outcome(c.err)
		require.Equal(t, c.want, got)
		_, code := Classify(got)
		require.Equal(t, 130, code)
	}
	for _, err := range []error{io.EOF, &fxfer.Error{Kind: fxfer.KindPartial, Err: fmt.Errorf("2 entries failed: %w", context.Canceled)}} {
		require.Equal(t, err, Outcome(err))
	}
}

func TestPrintError(t *testing.T) {
	inner := WithHint(errors.New("a\x07\nb"), "inner")
	for _, c := range []struct {
		err  error
		want string
	}{
		{errors.New("plain"), "fxfer: error: plain\n"},
		{inner, "fxfer: error: a\ufffd; b\nfxfer: hint: inner\n"},
		{fmt.Errorf("w: %w", &fxfer.Error{Err: inner}), "fxfer: error: w: a\ufffd; b\nfxfer: hint: inner\n"},
		{&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)},
			"fxfer: error: dial tcp: connect: connection refused\nfxfer: hint: is `fxfer serve` running there, and on this port?\n"},
		{fmt.Errorf("nas: %w", &wire.Error{Code: wire.CodeDraining, Text: "the server is shutting down", Remote: true}),
			"fxfer: error: nas: the server is shutting down\nfxfer: hint: try again later; a transfer does so by itself with --retry-for 10m\n"},
		{fmt.Errorf("head:7435: %w", context.DeadlineExceeded), "fxfer: error: head:7435: no answer in time\n"},
		{Status{Code: 3}, ""},
		{errors.Join(errors.New("the lab broke"), Status{Code: 3}), "fxfer: error: the lab broke; exit code 3\n"},
	} {
		var out strings.Builder
		Print(&out, c.err)
		require.Equal(t, c.want, out.String())
	}
}

func TestPrintJSON(t *testing.T) {
	var out strings.Builder
	PrintJSON(&out, WithHint(&fxfer.Error{Kind: fxfer.KindPartial, Err: errors.New("1 failed")}, "again"))
	require.JSONEq(t, `{"type": "error", "kind": "partial", "message": "1 failed", "hint": "again", "exit_code": 3}`, out.String())
	out.Reset()
	PrintJSON(&out, Status{Code: 9})
	require.Empty(t, out.String())
}

func TestWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		got, err := Within(ctx, func() (int, error) { return 7, nil })
		require.NoError(t, err)
		require.Equal(t, 7, got)

		start := time.Now()
		time.AfterFunc(time.Hour, cancel)
		got, err = Within(ctx, func() (int, error) {
			<-ctx.Done()
			time.Sleep(stopGrace / 2) // in virtual time
			return 8, nil
		})
		require.NoError(t, err, "it stopped in time")
		require.Equal(t, 8, got)
		require.Equal(t, time.Hour+stopGrace/2, time.Since(start))

		start = time.Now()
		_, err = Within(ctx, func() (int, error) {
			time.Sleep(time.Hour)
			return 9, nil
		})
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, stopGrace, time.Since(start))
		time.Sleep(time.Hour)
	})
}
