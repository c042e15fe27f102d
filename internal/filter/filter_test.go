package filter

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// decisions says which paths rules exclude; folders have a trailing slash. Everything below an
// excluded folder is excluded, too.
var decisions = []struct {
	rules    string // separated by newlines
	excluded string // separated by spaces
	selected string
}{
	{"", "", "a b/ b/c"},
	{"a", "a a/ a/x b/a b/a/ c/d/a/x", "ab A b/ab b/"},
	{"/a", "a a/ a/x", "b/a b/a/ ab"},
	{"a/", "a/ a/x b/a/", "a b/a"},
	{"/a/", "a/ a/x", "a b/a/"},
	{"a/b", "a/b a/b/ a/b/c", "a a/ c/a/b b a/c"},
	{"/a/b/", "a/b/ a/b/c", "a/b a/ b/"},
	{"*", "a a/ a/b .h", ""},
	{"/*", "a a/ a/b", ""},
	{"*.o", "a.o .o b/c.o x.o/ x.o/y", "a.oo o a.O b.o.c"},
	{"a*", "a ab a.b c/ab/", "ba c/ba"},
	{"a*b", "ab axb aab abab", "a b aba ba x/ba"},
	{"*a*", "a xa ax xax x/bab", "b x/b x/"},
	{"*a*b*c", "abc xaxbxc aabbcc", "ab ac acb abcx"},
	{"?", "a x/b", "ab é"}, // é is two bytes
	{"??", "ab é", "a abc"},
	{"a?c", "abc a.c x/axc", "ac abbc a/c"},
	{"a/?", "a/b a/b/", "a/bc a a/ x/a/b"},
	{"a/*", "a/b a/b/ a/b/c", "a a/ x/a/b"},
	{"a/*/c", "a/b/c a/x/c/d", "a/c a/b/b/c a/b/ x/a/b/c"},
	{"a/*.c", "a/x.c a/.c", "a/x/y.c x.c b/a/x.c"},
	{"[a-c]x", "ax bx cx d/bx", "dx x aax -x"},
	{"[!a-c]x", "dx -x", "ax cx x"},
	{"[^a]", "b !", "a aa"},
	{"[]a]", "] a", "b"},
	{"[a-]", "a -", "b"},
	{"[--0]", "- 0 x/-", "1 ,"},
	{"[a-c-e]", "a c - e", "d"},
	{`[\]]`, "]", `\`},
	{`[a\-c]`, "a - c", "b"},
	{"[c-a]", "c", "a b"},
	{"[[:digit:]_]", "1 _", "a : ["},
	{"[[:alpha:]-z]", "a z Q -", "1 ["},
	{"[[:x]", "[ : x", "] a"},
	{"a[b/c]d", "abd acd", "a/d x/abd"}, // a slash anchors even in a class
	{"x/[!a]", "x/b", "x/a x/bb"},
	{"**", "a a/ a/b", ""},
	{"**/", "a/ a/b", "a"},
	{"/**", "a a/ a/b", ""},
	{"**/a", "a b/a b/c/a a/x", "ab b/ba"},
	{"**/a/b", "a/b x/a/b x/y/a/b/z", "a b x/a a/x/b"},
	{"a/**", "a/b a/b/ a/b/c", "a a/ x/a/b"},
	{"a/**/", "a/b/ a/b/c", "a a/ a/b"},
	{"a/**/b", "a/b a/x/b a/x/y/b a/b/b", "a/ab ab b a/b.c x/a/b"},
	{"a/**/**/b", "a/b a/x/b a/x/y/b", "a/ab ab"},
	{"a/***/b", "a/b a/x/b a/x/y/b", "ab"},
	{"**/a/**/b/**", "a/b/c x/a/y/b/z", "a/b a/b/ x/a/y/b x/a/"},
	{"**/*.d/*", "a.d/x x/a.d/y x/y/a.d/z", "a.d x/a.d/"},
	{"a/**/*.c", "a/x.c a/y/x.c", "a/x x.c"},
	{"a/b**", "a/b a/bc", "a/c a/ b/c"},
	{"a/**b", "a/b a/cb", "a/c/b a/bc"},
	{"a**/b", "a/b ax/b", "a/x/b ab b"},
	{"a**", "a ab x/ac", "b"},
	{`\*`, "* x/*", "a **"},
	{`\!a`, "!a", "a"},
	{`\#a`, "#a", "a"},
	{"#a", "#a", "a"},
	{`a\b`, "ab", `a\b`},
	{`a\\b`, `a\b`, "ab"},
	{`a\/b`, "a/b", "ab x/a/b"},
	{"\xff*", "\xff \xff\xfe x/\xffa", "\xfe a"},
	{"[\x80-\xff]", "\x80 \xff x/\xc3", "a \x7f"},
	{"a\nb", "a b", "ab"},

	// The last rule that matches decides.
	{"*.o\n!a.o", "b.o x/b.o", "a.o x/a.o"},
	{"!a.o\n*.o", "a.o", "a"},
	{"*\n!*.c\n!*/", "a x/a", "a.c x/ x/a.c"},
	{"*\n!a\n!b", "c a/c", "a b a/ a/a"},
	{"/*\n!/a/\n/a/*\n!/a/b", "a b c/ c/x a/c", "a/ a/b a/b/c"},
	{"a\n!a\na\n!a/", "a x/a", "a/ a/b"},
	{"!!a", "", "a !a"},
	{"!*", "", "a a/ a/b"},
	{"*\n!!a", "a b", "!a"},
	// Rules cannot include what is below an excluded folder.
	{"a/\n!a/b", "a/ a/b a/b/c", "a b"},
	{"a\n!b", "a a/b a/x/b", "b"},
	{"*/\n!a/", "b/ b/x a/b/", "a/ b a/b"},
}

func TestExcluded(t *testing.T) {
	for _, c := range decisions {
		f, err := New(Options{Rules: split(c.rules, "\n")})
		require.NoError(t, err, c.rules)
		for _, path := range split(c.excluded, " ") {
			name, dir := strings.CutSuffix(path, "/")
			require.True(t, f.Excluded(name, dir), "%q excludes %q", c.rules, path)
		}
		for _, path := range split(c.selected, " ") {
			name, dir := strings.CutSuffix(path, "/")
			require.False(t, f.Excluded(name, dir), "%q selects %q", c.rules, path)
		}
		require.False(t, f.Excluded(".", true))
	}
}

func split(s, separator string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, separator)
}

func TestSkip(t *testing.T) {
	then := time.Unix(1e9, 5)
	f, err := New(Options{Rules: []string{"*.o", "d"}, MaxSize: 100, NewerThan: then})
	require.NoError(t, err)
	for _, c := range []struct {
		path  string
		dir   bool
		size  int64
		after time.Duration
		skip  bool
	}{
		{"a", false, 100, 1, false},
		{"a", false, 0, time.Hour, false},
		{"a", false, 101, 1, true},
		{"a", false, 100, 0, true},
		{"a", false, 100, -1, true},
		{"a.o", false, 1, 1, true},
		{"a", false, -1, 1, false}, // a symlink
		{"a", false, -1, -1, true},
		{"a", true, 4096, -1, false},
		{"d", true, 4096, 1, true},
		{"d/a", false, 1, 1, false}, // a walk does not come here
		{".", true, 4096, -1, false},
		{".", false, 101, 1, true},
	} {
		require.Equal(t, c.skip, f.Skip(c.path, c.dir, c.size, then.Add(c.after)), "%+v", c)
	}
	require.True(t, f.Excluded("d/a", false))
	require.False(t, f.Excluded("a", false))

	for _, all := range []*Filter{nil, new(Filter)} {
		require.False(t, all.Skip("a", false, 1<<62, time.Time{}))
		require.False(t, all.Excluded("a/b", true))
	}
}

func TestBadRules(t *testing.T) {
	for rule, why := range map[string]string{
		"":        "empty pattern",
		"/":       "empty pattern",
		"//":      "empty pattern",
		"!":       "empty pattern",
		"!/":      "empty pattern",
		"a//b":    `no path has an element ""`,
		"//a":     `no path has an element ""`,
		"a//":     `no path has an element ""`,
		"./a":     `no path has an element "."`,
		"a/../b":  `no path has an element ".."`,
		`\.\.`:    `no path has an element ".."`,
		`a\`:      `nothing follows the last "\"`,
		`a\/`:     `nothing follows the last "\"`,
		"a[":      `"[" without "]"`,
		"[!":      `"[" without "]"`,
		"[]":      `"[" without "]"`,
		"[!]":     `"[" without "]"`,
		"[a-":     `"[" without "]"`,
		"[a-b":    `"[" without "]"`,
		`[a\`:     `"[" without "]"`,
		`[a-\`:    `"[" without "]"`,
		"[a/":     `"[" without "]"`,
		"[[:a":    `"[" without "]"`,
		"[[:x:]]": `there is no class "x"`,
		"[/]":     "the class is empty",
		"a\x00b":  "NUL byte",

		strings.Repeat("a", MaxRule+1): fmt.Sprintf("longer than %d bytes", MaxRule),
	} {
		_, err := New(Options{Rules: []string{"fine", rule}})
		require.EqualError(t, err, fmt.Sprintf("rule 2 %q: %s", clip(rule), why))
	}
	_, err := New(Options{Rules: make([]string, MaxRules+1)})
	require.ErrorContains(t, err, "4097 rules")
	many := make([]string, MaxRuleBytes/MaxRule+1)
	for i := range many {
		many[i] = strings.Repeat("a", MaxRule)
	}
	_, err = New(Options{Rules: many})
	require.ErrorContains(t, err, "rule 65")
	_, err = New(Options{Rules: many[:64]})
	require.NoError(t, err)
	_, err = New(Options{MaxSize: -1})
	require.ErrorContains(t, err, "negative size limit")
}

// A naive matcher takes exponential time for these.
func TestHostileRules(t *testing.T) {
	began := time.Now()
	for _, c := range []struct{ rule, path string }{
		{strings.Repeat("*a", 1000) + "*b", strings.Repeat("a", 255)},
		{strings.Repeat("*a", 100) + "*b", strings.Repeat("a", 255) + "b"},
		{strings.Repeat("*?", 100) + "b*", strings.Repeat("a", 255)},
		{strings.Repeat("*[ab]", 100) + "*c*d", strings.Repeat("a", 255) + "d"},
		{"*" + strings.Repeat("?", 127) + "b*", strings.Repeat("a", 255)},
		{strings.Repeat("**/a/", 800) + "b", strings.Repeat("a/", 2000) + "b/b"},
		{strings.Repeat("**/*a*/", 500) + "b", strings.Repeat("aaaaaaaaaaaaaaa/", 255) + "b/b"},
		{"**/" + strings.Repeat("a/", 1000) + "b/b", strings.Repeat("a/", 2000) + "a/b"},
	} {
		f, err := New(Options{Rules: []string{c.rule}})
		require.NoError(t, err)
		f.Skip(c.path, false, 0, time.Time{})
	}
	rules := make([]string, MaxRules)
	for i := range rules {
		rules[i] = "*a*" + strings.Repeat("?", 55) + "b*"
	}
	f, err := New(Options{Rules: rules})
	require.NoError(t, err)
	require.False(t, f.Skip(strings.Repeat("a", 255), false, 0, time.Time{}))
	require.Less(t, time.Since(began), 10*time.Second)
}

func TestNoAllocation(t *testing.T) {
	f, err := New(Options{Rules: typical, MaxSize: 1, NewerThan: time.Unix(1, 0)})
	require.NoError(t, err)
	paths, now := paths(), time.Now()
	require.Zero(t, testing.AllocsPerRun(10, func() { // a rare one is of the runtime
		for _, path := range paths {
			f.Skip(path, false, 0, now)
			f.Excluded(path, true)
		}
	}))
}

var typical = []string{
	"*.o", "*.pyc", "*~", ".git/", "node_modules/", "/build/", "__pycache__/", "*.tmp", ".DS_Store", "/var/cache/**", "core.[0-9]*",
	"*.sw?", "Thumbs.db", "/proc/*", "**/testdata/*.golden", "*backup*", "docs/**/*.html", "target/", "!/keep/*.o", "*.log",
}

// paths returns paths as a walk of a source tree might see them.
func paths() []string {
	random := rand.New(rand.NewPCG(1, 2))
	words := strings.Fields("src lib usr share main util test docs python3 include linux kernel modules net drivers common cache index")
	ends := strings.Fields(".go .c .h .o .py .txt .html .so.1 .json .md .png .log .gz -doc") // and none
	var all []string
	for range 4096 {
		var b strings.Builder
		for range 2 + random.IntN(5) {
			b.WriteString(words[random.IntN(len(words))])
			b.WriteByte('/')
		}
		b.WriteString(words[random.IntN(len(words))])
		if i := random.IntN(len(ends) + 1); i < len(ends) {
			fmt.Fprintf(&b, "%d%s", random.IntN(100), ends[i])
		}
		all = append(all, b.String())
	}
	return all
}

func BenchmarkSkip(b *testing.B) {
	many := make([]string, MaxRules)
	for i := range many {
		many[i] = fmt.Sprintf("name-%d.c", i)
	}
	for _, c := range []struct {
		name  string
		rules []string
	}{
		{"none", nil}, {"typical20", typical}, {"names4096", many},
		{"stars20", strings.Split(strings.Repeat("*x*y* ", 19)+"*x*y*", " ")},
		{"paths20", strings.Split(strings.Repeat("**/x/*/y? ", 19)+"**/x/*/y?", " ")},
	} {
		b.Run(c.name, func(b *testing.B) {
			f, err := New(Options{Rules: c.rules, MaxSize: 1 << 40, NewerThan: time.Unix(1, 0)})
			require.NoError(b, err)
			paths, now := paths(), time.Now()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				f.Skip(paths[i%len(paths)], false, 0, now)
			}
		})
	}
}
