package disk

import (
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPathFault(t *testing.T) {
	long := strings.Repeat("x", maxElement)
	for _, c := range []struct {
		path          string
		unix, windows bool // allowed
	}{
		{".", true, true},
		{"a", true, true},
		{"a/b/c.txt", true, true},
		{"...", true, false},
		{".hidden", true, true},
		{"with space/and\ttab", true, false},
		{"line\nbreak", true, false},
		{"grün/日本", true, true},
		{"bad\xff\xfeutf8", true, false},
		{`back\slash`, true, false},
		{"a:b", true, false},
		{"what?", true, false},
		{"star*", true, false},
		{"trailing.", true, false},
		{"trailing ", true, false},
		{"con", true, false},
		{"dir/NUL.txt", true, false},
		{"nul .txt", true, false},
		{"COM1", true, false},
		{"lpt¹.log", true, false},
		{"COM10", true, true},
		{"FXFER-~1.PAR", true, false},
		{"2026-0~2", true, false},
		{"a~12", true, false},
		{"~", true, true},
		{"notes~1 of mine.txt", true, true},
		{"file~x.txt", true, true},
		{"file~1.html", true, true},
		{"CONSOLE", true, true},
		{"conout$", true, false},
		{long, true, true},
		{long + "/" + long, true, true},
		{".fxfe", true, true},
		{"fxfer-1.part", true, true},

		{"", false, false},
		{"/", false, false},
		{"/etc/passwd", false, false},
		{"//host/share", false, false},
		{"..", false, false},
		{"../a", false, false},
		{"a/..", false, false},
		{"a/../b", false, false},
		{"./a", false, false},
		{"a/.", false, false},
		{"a//b", false, false},
		{"a/", false, false},
		{"nul\x00byte", false, false},
		{long + "x", false, false},
		{strings.Repeat(long+"/", 16) + "x", false, false},
		{".fxfer-", false, false},
		{".fxfer-0123.part", false, false},
		{"a/.FXfer-0123.ckpt", false, false},
		{".fxfer-x/y", false, false},
		{`C:\Windows`, true, false},
		{`..\up`, true, false},
	} {
		require.Equal(t, c.unix, pathFault(c.path, false) == nil, "unix %q: %v", c.path, pathFault(c.path, false))
		require.Equal(t, c.windows, pathFault(c.path, true) == nil, "windows %q: %v", c.path, pathFault(c.path, true))
	}
	require.ErrorIs(t, CheckPath("../x"), ErrPath)
	require.NoError(t, CheckPath("x/y"))
}

func TestReservedNames(t *testing.T) {
	long := strings.Repeat("n", maxElement)
	name := reservedName(long) + partialSuffix
	require.LessOrEqual(t, len(name), maxElement)
	require.True(t, isReserved(name))
	require.NotEqual(t, name, reservedName(long[1:])+partialSuffix)
}

// A path that CheckPath accepts stays below the root and names exactly one entry.
func FuzzCheckPath(f *testing.F) {
	for _, seed := range []string{"a", "a/b", "..", "/", "a//b", ".fxfer-x", "a\x00b", "\xff", "a/./b", "con", `a\..\..\b`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, p string) {
		if CheckPath(p) != nil {
			return
		}
		require.Equal(t, p, path.Clean(p))
		require.True(t, filepath.IsLocal(filepath.FromSlash(p)))
		require.NotContains(t, strings.ToLower("/"+p), "/"+reservedPrefix)
		joined := filepath.Join(string(os.PathSeparator)+"root", filepath.FromSlash(p))
		require.True(t, p == "." || strings.HasPrefix(joined, string(os.PathSeparator)+"root"+string(os.PathSeparator)), joined)
	})
}
