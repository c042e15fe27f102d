package cli

import (
	"io"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/profile"
)

// TestCompletedValues: a flag takes each word that shells offer for it, and every flag that takes
// one of a few words offers them.
func TestCompletedValues(t *testing.T) {
	home := t.TempDir()
	t.Setenv("FXFER_HOME", home)
	require.NoError(t, (&profile.Profile{Streams: 4}).Save(home, "office", "four streams"))
	offered := 0
	var check func(c *cobra.Command)
	check = func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			complete, ok := c.GetFlagCompletionFunc(f.Name)
			require.True(t, ok || f.Value.Type() != "how", "%s --%s", c.CommandPath(), f.Name)
			if !ok || f.Name == "snapshot" || f.Name == "at" {
				return
			}
			words, _ := complete(c, nil, "")
			require.NotEmpty(t, words)
			for _, word := range words {
				require.NoError(t, f.Value.Set(word), "%s --%s %s", c.CommandPath(), f.Name, word)
				offered++
			}
		})
		for _, sub := range c.Commands() {
			check(sub)
		}
	}
	root := newRoot(io.Discard)
	option.AddCompletion(root)
	check(root)
	require.Greater(t, offered, 50)
}
