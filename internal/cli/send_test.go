package cli

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/cli/transfer"
	"github.com/fxfer/fxfer/internal/hint"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

func TestPipeReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := pipeReader{ctx, strings.NewReader("abc")}
		b := make([]byte, 8)
		n, err := p.Read(b)
		require.NoError(t, err)
		require.Equal(t, 3, n)
		_, err = p.Read(b)
		require.ErrorIs(t, err, io.EOF)
		time.AfterFunc(pipeGrace/2, cancel)
		_, err = p.Read(b)
		require.ErrorIs(t, err, context.Canceled, "the same signal ended both programs")
	})
}

func TestSendArgs(t *testing.T) {
	for args, want := range map[string]string{ // "" means accepted
		"a fxfer://h/s":            "",
		"a b/ fxfer://h/s/p/":      "",
		"- fxfer://h/s/dump.sql":   "",
		"./- a fxfer://h/s":        "",
		"a":                        "needs a source and a URL",
		"a b":                      `"b", is neither a fxfer:// URL nor host:path`,
		"fxfer://h/s a":            `"a", is neither a fxfer:// URL nor host:path`,
		"fxfer://h/s fxfer://g/s":  "the source is a URL, too",
		"a fxfer://h":              "names no share",
		"a fxfer://h/":             "names no share",
		"a fxfer://h/s/../t":       `".." in the path`,
		"- a fxfer://h/s/x":        "together with other sources",
		"a - fxfer://h/s/x":        "together with other sources",
		"- fxfer://h/s":            "needs a file name",
		"- fxfer://h/s/p/":         "needs a file name",
		"a fxfer://u:p@h/s":        "fxfer has no user names or passwords",
		"a fxfer://h:99999/s":      "is not a port",
		"a b c fxfer:/h/s":         "is neither a fxfer:// URL nor host:path",
		"a fxfer://h/s fxfer://h/": "names no share",
		"a:b h:dir":                "",
		"a ssh://u@h:22/dir/":      "",
		"a ./h:dir":                "is neither a fxfer:// URL nor host:path",
	} {
		_, _, err := sendArgs(strings.Fields(args), false)
		if want == "" {
			require.NoError(t, err, args)
			continue
		}
		require.ErrorContains(t, err, want, args)
		require.Equal(t, fxfer.KindUsage, fxfer.KindOf(err), args)
	}
}

func TestGetArgs(t *testing.T) {
	for args, want := range map[string]string{ // "" means accepted
		"fxfer://h/s/a .":                   "",
		"fxfer://h/s/a fxfer://h/s/b/ dir/": "",
		"fxfer://h/s/a":                     "needs a URL and a folder",
		"fxfer://h/s/a fxfer://h/s/b":       "not a folder of this host",
		"a fxfer://h/s":                     `"a", is not a fxfer:// URL`,
		"a b":                               `"a" is neither a fxfer:// URL nor host:path`,
		"fxfer://h .":                       "names no share",
		"fxfer://h/s/a fxfer://h/s/b -":     "standard output",
		"fxfer://h/s/a h:b":                 "",
		"h:a ./h:b":                         "",
		"h:a h:b":                           "a place that ssh reaches",
	} {
		_, _, err := getArgs(strings.Fields(args))
		if want == "" {
			require.NoError(t, err, args)
			continue
		}
		require.ErrorContains(t, err, want, args)
		require.Equal(t, fxfer.KindUsage, fxfer.KindOf(err), args)
	}
}

// TestRulesOfSettings: rules on the command line decide before rules in the settings.
func TestRulesOfSettings(t *testing.T) {
	t.Setenv("FXFER_HOME", t.TempDir())
	t.Setenv("FXFER_EXCLUDE", "*.o\n*.tmp")
	c := newSend()
	var f transfer.Flags
	c.ResetFlags()
	f.Add(c.Flags(), f.AddList)
	option.AddSettings(c)
	require.NoError(t, c.ParseFlags([]string{"--include", "a.o"}))
	require.NoError(t, f.Settle(c))
	require.Equal(t, []string{"*.o", "*.tmp", "!a.o"}, f.Call.Selection.Rules)
}

func TestGroupedUsage(t *testing.T) {
	for _, c := range []*cobra.Command{newSend(), newGet()} {
		usage := c.UsageString()
		c.Flags().VisitAll(func(f *pflag.Flag) {
			name := f.Name + " "
			if f.Hidden {
				require.NotContains(t, usage, "--"+name)
				return
			}
			if f.Name == "snapshot" {
				name = "snapshot[=time]   " // the value can be left out; what it means then is no default
			}
			require.Equal(t, 1, strings.Count(usage, "      --"+name)+strings.Count(usage, ", --"+name), f.Name)
			require.True(t, f.Annotations[option.GroupKey] != nil || f.Name == "config", f.Name)
		})
	}
}

// TestHelpWidth: no line of any help is longer than a terminal of 89 columns.
func TestHelpWidth(t *testing.T) {
	var check func(c *cobra.Command)
	check = func(c *cobra.Command) {
		for line := range strings.Lines(c.Long + "\n" + c.UsageString()) {
			require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 89, "%s: %s", c.CommandPath(), line)
		}
		for _, sub := range c.Commands() {
			check(sub)
		}
	}
	root := newRoot(io.Discard)
	root.InitDefaultHelpFlag()
	check(root)
}

// Flags of rsync, rclone and lftp that people try first have a hint in send and get.
func TestForeignFlags(t *testing.T) {
	for _, name := range []string{
		"--bwlimit", "--progress", "--parallel", "--transfers", "--archive", "--compress-level", "--recursive", "--partial", "--whole-file",
		"--link-dest", "--timeout", "--checkers", "--copy-links", "--max-age", "--retries", "-D", "-L", "-W", "-S", "-i", "-e", "-t",
	} {
		for _, c := range []*cobra.Command{newSend(), newGet()} {
			err := option.Error(c, c.ParseFlags([]string{name + "=1"}))
			require.ErrorContains(t, err, "there is no flag "+name)
			if c.Name() == "send" || name != "--link-dest" { // get makes no snapshots
				require.NotEmpty(t, hint.Of(err), name)
			}
		}
	}
}
