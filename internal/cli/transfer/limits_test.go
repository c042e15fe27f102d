package transfer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/path/diagnose"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// The limit of a transfer is shown only where it is the reason for its speed.
func TestLimits(t *testing.T) {
	for _, c := range []struct {
		name   string
		first  diagnose.Limiter
		report fxfer.Report
		shown  bool
	}{
		{"it went well", diagnose.ReceiverWindow, fxfer.Report{Written: 1e6, Sent: 1}, true},
		{"nothing stands out", diagnose.Unknown, fxfer.Report{Written: 1e6, Sent: 1}, false},
		{"nothing was written", diagnose.ReceiverWindow, fxfer.Report{Same: 1}, false},
		{"its only entry failed", diagnose.ReceiverWindow, fxfer.Report{Written: 1e6, Failed: 1}, false},
		{"one of its entries failed", diagnose.ReceiverWindow, fxfer.Report{Written: 1e6, Sent: 5, Failed: 1}, true},
		{"a black hole swallowed it", diagnose.BlackHole, fxfer.Report{Retransmits: 7}, true},
	} {
		c.report.Limits = []fxfer.Limit{{Limiter: c.first}}
		require.Equal(t, c.shown, (&humanOutput{verbose: true}).limits(&c.report) != "", c.name)
	}
	require.Empty(t, (&humanOutput{verbose: true}).limits(&fxfer.Report{Written: 1}))
}

// By default a limit is shown with its remedy, and only if it cost more than a tenth.
func TestCostlyLimits(t *testing.T) {
	remedy := func(expect float64) []fxfer.Remedy {
		return []fxfer.Remedy{{Kind: diagnose.SyncNothing, Expect: expect}}
	}
	for _, c := range []struct {
		name  string
		limit fxfer.Limit
		shown bool
	}{
		{"costly", fxfer.Limit{Limiter: diagnose.ReceiverWindow, Share: 0.8, Time: 8 * time.Second, Remedies: remedy(200e6)}, true},
		{"little to gain", fxfer.Limit{Limiter: diagnose.ReceiverWindow, Share: 0.8, Time: 8 * time.Second, Remedies: remedy(105e6)}, false},
		{"gain unknown", fxfer.Limit{Limiter: diagnose.ReceiverWindow, Share: 0.2, Time: 2 * time.Second, Remedies: remedy(0)}, true},
		{"seldom", fxfer.Limit{Limiter: diagnose.ReceiverWindow, Share: 0.05, Time: 2 * time.Second, Remedies: remedy(0)}, false},
		{"short", fxfer.Limit{Limiter: diagnose.ReceiverWindow, Share: 0.9, Time: 90 * time.Millisecond, Remedies: remedy(300e6)}, false},
		{"no remedy", fxfer.Limit{Limiter: diagnose.ReceiverWindow, Share: 0.9, Time: 9 * time.Second}, false},
		{"asked for", fxfer.Limit{Limiter: diagnose.RateLimit, Share: 1, Time: 9 * time.Second,
			Remedies: []fxfer.Remedy{{Kind: diagnose.RaiseLimit}}}, false},
		{"of the server", fxfer.Limit{Limiter: diagnose.RateLimit, Share: 1, Time: 9 * time.Second,
			Remedies: []fxfer.Remedy{{Kind: diagnose.RaiseServerLimit}}}, true},
		{"black hole", fxfer.Limit{Limiter: diagnose.BlackHole}, true},
	} {
		r := fxfer.Report{Written: 1e6, Sent: 1, Goodput: 100e6, Limits: []fxfer.Limit{c.limit}}
		require.Equal(t, c.shown, (&humanOutput{}).limits(&r) != "", c.name)
		require.NotEmpty(t, (&humanOutput{verbose: true}).limits(&r), c.name)
		require.NotEmpty(t, (&humanOutput{explain: true}).limits(&r), c.name)
	}
}
