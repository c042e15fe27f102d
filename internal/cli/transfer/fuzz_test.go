package transfer

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
)

// FuzzSelection: every value that a flag's parser accepts is within the range of the flag.
func FuzzSelection(f *testing.F) {
	for _, s := range []string{"0", "1", "2GiB", "9223372036854775808"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for name, parse := range map[string]func(string) (int64, error){"entries": parseEntries, "max-size": parseMaxSize} {
			if n, err := parse(s); err == nil {
				require.Positive(t, n, "%s %q", name, s)
			}
		}
	})
}

// FuzzEnvironment: a variable sets its flag, or the error says what is wrong with its value.
func FuzzEnvironment(f *testing.F) {
	f.Add("streams", "8")
	f.Add("rate-limit", "200mbit")
	f.Add("exclude", "*.o\n!a.o\n")
	f.Add("newer-than", "7d")
	f.Add("pin", "ed25519:x")
	f.Fuzz(func(t *testing.T, name, text string) {
		send := &cobra.Command{Use: "send"}
		new(Flags).Add(send.Flags(), nil)
		option.AddSettings(send)
		x := send.Flags().Lookup(name)
		if x == nil || name == "config" || name == "exclude-from" || strings.Contains(text, "\x00") {
			return
		}
		t.Setenv("FXFER_HOME", filepath.Join(t.TempDir(), "none"))
		t.Setenv("FXFER_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_")), text)
		if err := option.ApplySettings(send); err != nil {
			_, code := exit.Classify(err)
			require.Equal(t, 2, code)
			require.NotContains(t, err.Error(), "\x1b", strconv.Quote(err.Error()))
		}
	})
}
