package client

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/wire"
)

// TestDiskEnded: where a disk ended a transfer, no window or line is to blame.
func TestDiskEnded(t *testing.T) {
	full := &wire.Error{Code: wire.CodeNoSpace, Remote: true, Text: "no space left"}
	lost := &session.Error{Kind: session.KindUnreachable, Err: errors.New("connection lost")}
	some := func(sent, failed int64, err error) *session.Report {
		return &session.Report{Sent: sent, Failed: failed, Failures: []session.FileResult{{Path: "a", Err: err}}}
	}
	for name, c := range map[string]struct {
		report *session.Report
		err    error
		want   bool
	}{
		"it went well":                       {&session.Report{Sent: 5}, nil, false},
		"the target's disk is full":          {&session.Report{Sent: 5}, full, true},
		"this host's disk is full":           {&session.Report{Sent: 5}, &session.Error{Kind: session.KindLocalDisk, Err: full}, true},
		"the connection was lost":            {&session.Report{Sent: 5}, lost, false},
		"most entries had no room":           {some(1, 2, full), nil, true},
		"one of many had no room":            {some(5, 1, full), nil, false},
		"most entries failed, but not by it": {some(1, 2, &wire.Error{Code: wire.CodeChanged}), nil, false},
	} {
		require.Equal(t, c.want, diskEnded(c.report, c.err), name)
	}
}
