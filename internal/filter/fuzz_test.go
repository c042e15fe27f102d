package filter

import (
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzRule compares a rule with a regular expression.
func FuzzRule(f *testing.F) {
	for _, c := range decisions {
		for _, p := range strings.Fields(c.excluded + " " + c.selected) {
			f.Add(c.rules, strings.TrimSuffix(p, "/"), strings.HasSuffix(p, "/"))
		}
	}
	f.Fuzz(func(t *testing.T, rule, p string, dir bool) {
		filter, err := New(Options{Rules: []string{rule}})
		if err != nil || p == "." || p != path.Clean(p) || strings.HasPrefix(p, "/") || strings.HasPrefix(p+"/", "../") {
			return
		}
		excluded := filter.excluded(p, dir)
		if excluded {
			require.True(t, filter.Excluded(p, dir))
		}
		if strings.Contains(rule, "[") || strings.Contains(rule, `\/`) {
			return
		}
		pattern, include := strings.CutPrefix(rule, "!")
		pattern, dirOnly := strings.CutSuffix(pattern, "/")
		want := !include && (dir || !dirOnly) && expression(pattern).MatchString(runes(p))
		require.Equal(t, want, excluded, "%q: %q", rule, p)
	})
}

// expression translates a pattern without classes to a regular expression.
func expression(pattern string) *regexp.Regexp {
	var b strings.Builder
	b.WriteString(`(?s)\A`)
	if !strings.Contains(pattern, "/") {
		b.WriteString("(?:.*/)?")
	}
	pattern = strings.TrimPrefix(pattern, "/")
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '*':
			stars := len(pattern[i:]) - len(strings.TrimLeft(pattern[i:], "*"))
			begins, ends := i == 0 || pattern[i-1] == '/', i+stars == len(pattern)
			i += stars - 1
			switch {
			case stars == 1 || !begins || !ends && pattern[i+1] != '/':
				b.WriteString("[^/]*")
			case ends:
				b.WriteString(".+")
			default:
				b.WriteString("(?:[^/]+/)*")
				i++
			}
		case '?':
			b.WriteString("[^/]")
		case '\\':
			i++
			fallthrough
		default:
			b.WriteString(regexp.QuoteMeta(runes(pattern[i : i+1])))
		}
	}
	b.WriteString(`\z`)
	return regexp.MustCompile(b.String())
}

// runes returns a character for each byte of s, so that regexp sees bytes.
func runes(s string) string {
	var b strings.Builder
	for i := range len(s) {
		b.WriteRune(rune(s[i]))
	}
	return b.String()
}

// FuzzReadRules checks that New accepts what ReadRules returns, and that reading it again changes
// nothing.
func FuzzReadRules(f *testing.F) {
	f.Add("# rules\n*.o\r\n!a.o  \n\n/b\\ \n")
	f.Add("\ufeffa\n\\")
	f.Fuzz(func(t *testing.T, text string) {
		rules, err := ReadRules(strings.NewReader(text))
		if err != nil {
			return
		}
		if len(text) <= MaxRuleBytes {
			_, err = New(Options{Rules: rules})
			require.NoError(t, err)
		}
		again, err := ReadRules(strings.NewReader("\n" + strings.Join(rules, "\r\n") + "\r\n"))
		require.NoError(t, err)
		require.Equal(t, rules, again)
	})
}

// FuzzReadFiles checks that paths stay below the root.
func FuzzReadFiles(f *testing.F) {
	f.Add("a\nb/../c\r\n\n./d/\n/e\n", false)
	f.Add("a\x00../b\x00", true)
	f.Fuzz(func(t *testing.T, text string, nul bool) {
		failed := false
		for name, err := range ReadFiles(strings.NewReader(text), nul) {
			require.False(t, failed, "something comes after an error")
			if failed = err != nil; failed {
				require.Empty(t, name)
				continue
			}
			require.Equal(t, path.Clean(name), name)
			require.False(t, path.IsAbs(name) || strings.HasPrefix(name+"/", "../"), name)
			require.NotContains(t, name, "\x00")
			require.LessOrEqual(t, len(name), maxPath)
		}
	})
}
