package term

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestShortName(t *testing.T) {
	for path, want := range map[string]string{
		"short":                   "short",
		"exactly-ten":             "…actly-ten",
		"evil\x1b[2J":             "evil\ufffd[2J",
		"bad\xffutf8":             "bad\ufffdutf8",
		"two\nlines":              "two\ufffdlines",
		"日本語のファイル名":               "… ァイル名",
		"folder/with/a/long/name": "…long/name",
	} {
		require.Equal(t, want, ShortName(path, 10), path)
	}
}

func TestAsk(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, "YES\n": true, "\ty\n": true, "n\n": false, "\n": false, "": false, "yeah\n": false} {
		var out strings.Builder
		got, err := ask(t.Context(), strings.NewReader(answer), &out, "nas:7433\x1b[2J", "ed25519:key", nil)
		require.NoError(t, err)
		require.Equal(t, want, got, answer)
		require.Contains(t, out.String(), "nas:7433\ufffd[2J")
		require.Contains(t, out.String(), "ed25519:key")
	}
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = ask(ctx, r, &strings.Builder{}, "s", "p", nil)
	require.ErrorIs(t, err, context.Canceled)
}

func TestName(t *testing.T) {
	require.Equal(t, "a\ufffdb; c", Name("a\nb; c"))
	require.Equal(t, "a\ufffdb: c; d", PathAnd("a\nb", "c\nd"))
	require.Equal(t, "a\ufffdb", ShortName("a\nb", 9))
}

func TestOneLine(t *testing.T) {
	for in, want := range map[string]string{
		"plain": "plain", "a\nb": "a; b", "\x1b[2J": "\ufffd[2J", "a\u202eb": "a\ufffdb", "a\u2066b": "a\ufffdb",
		"a\u2028b": "a\ufffdb", "\x7f\u0085": "\ufffd\ufffd", "a\xffb": "a\ufffdb", "grün ☕": "grün ☕",
	} {
		require.Equal(t, want, OneLine(in), "%q", in)
	}
}

func TestWrap(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 20)
	for text, want := range map[string][]string{
		"":                         nil,
		"one two":                  {"one two"},
		"one two, three four":      {"one two,", "three four"},
		"one two three four":       {"one two", "three four"},
		"日本 語の 名前":                 {"日本 語の", "名前"},
		long + " y":                {long, "y"},
		"a, " + long + ", b, c, d": {"a,", long + ",", "b, c, d"},
	} {
		require.Equal(t, want, Wrap(text, 10), text)
	}
}

// A table that is wider than the terminal becomes a paragraph for each row, and nothing of it is lost.
func TestParagraphs(t *testing.T) {
	var out strings.Builder
	paragraphs(&out, [][]string{
		{"began", "what", "size", "goodput", "limit"},
		{"09:15", "send fxfer://nas/data", "1.25 GB", "941 Mbit/s", "line rate"},
		{"09:20", "get fxfer://nas/data", "8 B", "1 kbit/s", ""},
	}, 2, 30)
	require.Equal(t, `09:15  send fxfer://nas/data
    size 1.25 GB,
    goodput 941 Mbit/s,
    limit line rate
09:20  get fxfer://nas/data
    size 8 B, goodput 1 kbit/s
`, out.String())
	out.Reset()
	Records(&out, [][]string{{"a", "b"}, {"1", "2"}}, 1)
	require.Equal(t, "a  b\n1  2\n", out.String(), "no terminal")
}
