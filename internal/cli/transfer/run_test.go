package transfer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// TestSayWait: who waits for a server that does not answer hears of that, unless the server was only slow,
// or somebody reads a question.
func TestSayWait(t *testing.T) {
	for name, c := range map[string]struct {
		before func(*fxfer.Options, *fxfer.Transfer)
		said   []string
	}{
		"silent":   {func(*fxfer.Options, *fxfer.Transfer) {}, []string{"no answer yet from fxfer://nas/x"}},
		"begun":    {func(_ *fxfer.Options, call *fxfer.Transfer) { call.Progress(fxfer.Progress{}) }, nil},
		"question": {func(opt *fxfer.Options, _ *fxfer.Transfer) { _, _ = opt.Confirm(t.Context(), "nas", "", nil) }, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			var said []string
			opt := fxfer.Options{
				Notice:  func(text string) { said = append(said, text) },
				Confirm: func(context.Context, string, string, []string) (bool, error) { return true, nil },
			}
			call := fxfer.Transfer{Progress: func(fxfer.Progress) {}}
			done := sayWait("fxfer://nas/x", &opt, &call)
			time.Sleep(answerSoon / 2)
			c.before(&opt, &call)
			time.Sleep(answerSoon)
			done()
			synctest.Wait()
			require.Equal(t, c.said, said, name)
		})
	}
	synctest.Test(t, func(t *testing.T) { // it is over before
		opt := fxfer.Options{Notice: func(text string) { require.Fail(t, text) }}
		sayWait("fxfer://nas/x", &opt, &fxfer.Transfer{})()
		time.Sleep(2 * answerSoon)
	})
}
