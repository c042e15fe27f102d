package transfer

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/path/diagnose"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// The limit of a transfer is shown only where it is the reason for its speed.
func TestLimits(t *testing.T) {
	full := &fxfer.Error{Kind: fxfer.KindRemoteDisk, Err: errors.New("no space left")}
	for _, c := range []struct {
		name   string
		first  diagnose.Limiter
		report fxfer.Report
		err    error
		shown  bool
	}{
		{"it went well", diagnose.ReceiverWindow, fxfer.Report{Written: 1e6, Sent: 1}, nil, true},
		{"nothing stands out", diagnose.Unknown, fxfer.Report{Written: 1e6, Sent: 1}, nil, false},
		{"nothing was written", diagnose.ReceiverWindow, fxfer.Report{Same: 1}, nil, false},
		{"its only entry failed", diagnose.ReceiverWindow, fxfer.Report{Written: 1e6, Failed: 1}, nil, false},
		{"one of its entries failed", diagnose.ReceiverWindow, fxfer.Report{Written: 1e6, Sent: 5, Failed: 1}, nil, true},
		{"a full disk ended it", diagnose.ReceiverWindow, fxfer.Report{Written: 1e6, Sent: 5}, full, false},
		{"a full disk ended most entries", diagnose.ReceiverWindow,
			fxfer.Report{Written: 1e6, Sent: 1, Failed: 2, Failures: []fxfer.FileResult{{Path: "a", Err: full}}}, nil, false},
		{"a black hole swallowed it", diagnose.BlackHole, fxfer.Report{Retransmits: 7}, errors.New("it hangs"), true},
	} {
		c.report.Limits = []fxfer.Limit{{Limiter: c.first}}
		require.Equal(t, c.shown, limits(&c.report, c.err) != "", c.name)
	}
	require.Empty(t, limits(&fxfer.Report{Written: 1}, nil))
}
