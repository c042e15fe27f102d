package files

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// TestOutcome: whatever ends a command, it says which entries failed before.
func TestOutcome(t *testing.T) {
	t.Parallel()
	lost := errors.New("the connection is lost")
	a, b := errors.New("a: no right"), errors.New("b: no right")
	for _, c := range []struct {
		done   int
		failed []error
		err    error // of the last session
		want   string
		prints string
	}{
		{1, nil, nil, "", ""},
		{0, []error{a}, nil, "a: no right", ""},
		{1, []error{a}, nil, "1 of 2 failed", "fxfer: error: a: no right\n"},
		{0, []error{a, b}, nil, "2 of 2 failed", "fxfer: error: a: no right\nfxfer: error: b: no right\n"},
		{0, nil, lost, "the connection is lost", ""},
		{1, []error{a}, lost, "the connection is lost", "fxfer: error: a: no right\n"},
		{0, []error{a}, lost, "the connection is lost", "fxfer: error: a: no right\n"},
	} {
		var errs strings.Builder
		x := command{c: &cobra.Command{}, done: c.done, failed: c.failed}
		x.c.SetErr(&errs)
		err := x.outcome(c.err)
		if c.want == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, c.want)
		}
		require.Equal(t, c.prints, errs.String())
	}
}
