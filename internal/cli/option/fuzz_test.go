package option

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/cli/exit"
)

// FuzzFlags: every value that a flag's parser accepts is within the range of the flag.
func FuzzFlags(f *testing.F) {
	for _, s := range []string{"auto", "none", "8", "0", "17520", "64KiB", "1.5MB", "2TB", "200mbit", "20MB/s", "36h", "7d ago", "2w", "bbr", "2026-11-21", "ed25519:x"} {
		f.Add(s)
	}
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := ParseLimit(s); err == nil {
			require.Equal(t, s == "none", n == 0, "%q", s)
		}
		if n, err := ParseSockBuf(s); err == nil {
			require.True(t, n > 0 && n <= maxSockBuf || n == 0 && s == Auto, "%q is %d", s, n)
		}
		if n, err := ParseAutoCount(s); err == nil {
			require.True(t, n > 0 || n == 0 && s == Auto, "%q is %d", s, n)
		}
		if at, err := ParseNewer(s, now); err == nil && strings.HasSuffix(s, " ago") {
			require.False(t, at.After(now), "%q is %v", s, at)
		}
		if name, err := ParseCongestion(s); err == nil && name != "" {
			require.NotContains(t, name, "/")
			require.LessOrEqual(t, len(name), 15)
		}
	})
}

// FuzzConfig: whatever a configuration file contains, it is either rejected, or all its settings
// are flags that exist.
func FuzzConfig(f *testing.F) {
	for _, text := range []string{
		"", "streams: 4\nsend:\n  rate-limit: 200mbit\n", "serve:\n  share: [a=/a, 'b=/b:ro']\n", "a: &x [*x]\n", "? [a]\n: b\n", "{a: {b: {c: d}}}", "--- !!map\nx: |\n  y\n",
		"streams: 0x10\n", "streams: .inf\n", "\"quiet\": yes\n", "<<: *x\n", "streams: 1\n---\nstreams: 2\n", "send: {streams: 1, streams: 2}\n",
	} {
		f.Add(text)
	}
	root, _, _ := testCommands()
	commands := root.Commands()
	known := func(command, flag string) bool {
		for _, c := range commands {
			if c.Annotations[Settable] != "" && (command == "" || command == c.Name()) && c.Flags().Lookup(flag) != nil {
				return true
			}
		}
		return false
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4096 {
			return
		}
		settings, err := parseSettings("c.yaml", []byte(text), commands)
		if err != nil {
			_, code := exit.Classify(err)
			require.Equal(t, 2, code)
			return
		}
		for command, section := range settings {
			for flag := range section {
				require.True(t, known(command, flag), "%q of %q", flag, command)
			}
		}
	})
}
