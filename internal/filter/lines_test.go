package filter

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func TestReadRules(t *testing.T) {
	for text, want := range map[string][]string{
		"":                                     nil,
		"a":                                    {"a"},
		"a\nb\n":                               {"a", "b"},
		"a\r\nb\r":                             {"a", "b"},
		"a\r\r\n":                              {"a\r"},
		"\n\n  \n\r\na\n":                      {"a"},
		"# no\n#\na#\n #b\n\\#c\n":             {"a#", " #b", `\#c`},
		"a  \n b\nc \r\nd\t\n":                 {"a", " b", "c", "d\t"},
		"a\\ \nb\\  \nc\\\\ \nd\\ e":           {`a\ `, `b\ `, `c\\`, `d\ e`},
		"!a\n\\!b\n!":                          nil, // see below
		"\ufeffa\n\ufeffb":                     {"a", "\ufeffb"},
		"\ufeff# no\n":                         nil,
		"\xff*\n":                              {"\xff*"},
		strings.Repeat("a", MaxRule) + "\r\nb": {strings.Repeat("a", MaxRule), "b"},
	} {
		for _, r := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text)),
			bufio.NewReaderSize(strings.NewReader(text), 1<<16)} {
			rules, err := ReadRules(r)
			if strings.HasSuffix(text, "\n!") {
				require.EqualError(t, err, `line 3: "!": empty pattern`)
				continue
			}
			require.NoError(t, err, "%q", text)
			require.Equal(t, want, rules, "%q", text)
		}
	}
}

func TestReadRulesErrors(t *testing.T) {
	long := strings.Repeat("x", MaxRule+1)
	for text, want := range map[string]string{
		"a\n#\n[b\nc":                            `line 3: "[b": "[" without "]"`,
		"a\x00b":                                 `line 1: "a\x00b": NUL byte`,
		"a\n" + long:                             `line 2: "` + long[:128] + `…": longer than 4096 bytes`,
		long + "\na":                             `line 1: "` + long[:128] + `…": longer than 4096 bytes`,
		long + long:                              `line 1: "` + long[:128] + `…": longer than 4096 bytes`,
		"\n" + strings.Repeat("a\n", MaxRules+1): "line 4098: more than 4096 rules",
	} {
		for _, r := range []io.Reader{strings.NewReader(text), bufio.NewReaderSize(strings.NewReader(text), 1<<16)} {
			_, err := ReadRules(r)
			require.EqualError(t, err, want)
		}
	}
	broken := errors.New("broken")
	_, err := ReadRules(io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(broken)))
	require.ErrorIs(t, err, broken)
}

func TestReadFiles(t *testing.T) {
	long := strings.Repeat("x/", maxPath/2)
	for _, c := range []struct {
		text string
		nul  bool
		want []string
		err  string
	}{
		{"", false, nil, ""},
		{"a\nb/c\n", false, []string{"a", "b/c"}, ""},
		{"a\r\n\r\n\n#b\n c ", false, []string{"a", "#b", " c "}, ""},
		{"./a//b/\na/../c\n.\na/..\n...\n..a\n", false, []string{"a/b", "c", ".", ".", "...", "..a"}, ""},
		{"a\na\n", false, []string{"a", "a"}, ""},
		{"\xff\xfe\n-x\n", false, []string{"\xff\xfe", "-x"}, ""},
		{"a\nb\x00c\r\x00\x00d", true, []string{"a\nb", "c\r", "d"}, ""},
		{long[2:] + "\n", false, []string{strings.TrimSuffix(long[2:], "/")}, ""},
		{long + "\n" + "a", false, []string{strings.TrimSuffix(long, "/"), "a"}, ""},

		{"a\n\n/etc/passwd\nb\n", false, []string{"a"}, `line 3: "/etc/passwd": absolute; paths in the list are relative to the transfer root`},
		{"//a", false, nil, `line 1: "//a": absolute; paths in the list are relative to the transfer root`},
		{"..", false, nil, `line 1: "..": leads out of the transfer root`},
		{"a\x00b/../../c\x00", true, []string{"a"}, `path 2: "b/../../c": leads out of the transfer root`},
		{"a\x00b", false, nil, `line 1: "a\x00b": NUL byte; is this a list with NUL bytes between the paths?`},
		{"a\n" + long + "x\nb", false, []string{"a"}, `line 2: "` + long[:128] + `…": longer than 4096 bytes`},
		{long + long + long, true, nil, `path 1: "` + long[:128] + `…": longer than 4096 bytes`},
	} {
		var names []string
		var failure error
		for name, err := range ReadFiles(strings.NewReader(c.text), c.nul) {
			require.NoError(t, failure, "the last element")
			if failure = err; err == nil {
				names = append(names, name)
			}
		}
		require.Equal(t, c.want, names, "%q", c.text)
		if c.err == "" {
			require.NoError(t, failure)
		} else {
			require.EqualError(t, failure, c.err)
		}
	}

	broken := errors.New("broken")
	r := io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(broken))
	var failure error
	for _, err := range ReadFiles(r, false) {
		failure = err
	}
	require.ErrorIs(t, failure, broken)

	left := strings.NewReader(strings.Repeat("a\n", 1e6))
	for _, err := range ReadFiles(left, false) {
		require.NoError(t, err)
		break
	}
	require.NotZero(t, left.Len(), "read as the loop goes")
}
